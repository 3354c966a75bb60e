"""Every operation of a deploy goes wrong once: lost, unanswered, killed, restarted, full; and two deploys at once."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.errors import DeviceBusyError
from core.paths import ROOT
from deploy.devices.inventory import Device
from deploy.run import pipeline as attempts
from deploy.run.events import Event
from tests.faults import sabotage, tiny
from tests.faults.tiny import Tiny
from tests.support.deploying import Deploying
from tests.support.processes import gone, marked, ran, well

pytestmark = pytest.mark.usefixtures("dist")  # results go to a folder of the test's own


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return tiny.make(tmp_path_factory.mktemp("tiny"), elements=tiny.LARGE)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "precious").write_text("precious")
    yield folder
    assert gone(str(folder))


@pytest.fixture
def device(home: Path) -> Device:
    return tiny.local(home / ".slipway")


Struck = Callable[..., tuple[str, list[str], bool]]


@pytest.fixture
def struck(small: Tiny, device: Device, home: Path, monkeypatch: pytest.MonkeyPatch) -> Struck:
    """A deploy whose operation ``at`` goes wrong, and one after it: how it ended, its phases, whether it was struck."""

    def call(fault: str, at: int, damaged: bool = False) -> tuple[str, list[str], bool]:
        transport = sabotage.Sabotage(home, fault, at)
        phases = ["connect"]
        with monkeypatch.context() as patch:
            patch.setattr(attempts, "open_device", lambda *_: transport)
            note = [lambda event: phases.append(tiny.phase(event))]
            told = tiny.outcome(lambda: small.deploy(device, listeners=note, timeout=20))
        assert gone(str(home), 15), (fault, at)
        assert transport.struck or told == tiny.DONE
        assert damaged or tiny.whole(home, Path(device.root)) == [], (fault, at)
        small.deploy(device)
        assert tiny.settled(home, Path(device.root)) == [], (fault, at)
        return told, [phase for phase in phases if phase], transport.struck

    return call


@pytest.mark.parametrize("fault", sabotage.FAULTS)
def test_every_operation(fault: str, struck: Struck, device: Device) -> None:
    """On a new device, so that a deploy has everything to do."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    at = 0
    while True:
        subprocess.run(["rm", "-rf", device.root], check=True)
        told, phases, happened = struck(fault, at)
        if not happened:
            break
        seen[phases[-1]][told] += 1
        at += 1
    assert at > 11
    for phase, counted in seen.items():
        tiny.check(fault, phase, counted)


@pytest.mark.parametrize("fault", sabotage.FAULTS)
def test_every_operation_of_a_deploy_that_verifies(fault: str, struck: Struck, small: Tiny, device: Device) -> None:
    """A file was changed on a device that has everything: whatever goes wrong meanwhile, it does not run."""
    small.deploy(device)
    seen: Counter[str] = Counter()
    for at in range(1, 4):  # the digests, then a look at what else there is of the damaged file, then the upload
        (program,) = Path(device.root, "programs").iterdir()
        file = program / "model.pte"
        file.chmod(0o644)
        file.write_bytes(bytes(file.stat().st_size))
        told, phases, happened = struck(fault, at, damaged=True)
        assert happened
        assert "run" not in phases or told == tiny.DONE
        if at < 3:
            assert phases[-1] == "verify"
            seen[told] += 1
    tiny.check(fault, "verify", seen)


def test_round_trips(device: Device, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a deploy costs on a link with latency, counted: commands, files put, files fetched."""
    one = tiny.make(tmp_path / "tiny")
    ways = [sabotage.Sabotage(home) for _ in range(3)]
    left = iter(ways)
    monkeypatch.setattr(attempts, "open_device", lambda *_: next(left))
    one.deploy(device)
    one.deploy(device)
    tiny.make(tmp_path / "other", "other", seed=3, elements=tiny.LARGE).deploy(device)
    new, again, _ = (way.count for way in ways)
    assert again == 2, "ask, lock and look; put in place, run and bring back"
    # ask; lock a new store and look; two files of the bundle, program, input; verify; arrange the bundle and the
    # program; run; flip; collect
    assert new == 12
    assert tiny.settled(home, Path(device.root)) == []


def test_the_disk_is_full_at_every_step(tmp_path: Path) -> None:
    """On a real file system of 4 MB, mounted in a namespace of its own."""
    (tmp_path / "disk").mkdir()
    argv = ["unshare", "-rm", sys.executable, "-m", "tests.faults.full", str(tmp_path)]
    done = well(ran(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}))
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for step, left, told, wrong in json.loads(done.stdout.splitlines()[-1]):
        assert wrong == [], (step, left)
        seen[step][told] += 1
    for step, counted in seen.items():
        tiny.check("disk full", step, counted)
    assert sum(counted["device-full"] for counted in seen.values()) >= 5


@pytest.mark.parametrize("full", ["bytes", "inodes"])
def test_commands_without_room(tmp_path: Path, full: str) -> None:
    """``./inv`` itself, from the start: words, an exit code, and nothing that is half written."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = """
        mount -t tmpfs -o size=64k,nr_inodes=$2 none "$1" && mkdir "$1/own" && cd "$3" || exit 99
        [ "$2" -lt 9 ] || head -c 99999 /dev/zero >"$1/filler" 2>/dev/null
        SLIPWAY_DIST=$1/own/dist SLIPWAY_CACHE=$1/own/cache ./inv deploy --device local --model "$4" --json
        echo "exit $?"
        find "$1/own" -type f
    """
    program = tmp_path / "some.pte"
    program.write_bytes(b"\x20\0\0\0ET12" + bytes(40))  # a program's identifier; the rest is read after the build
    words = [str(disk), "40" if full == "bytes" else "4", str(ROOT), str(program)]
    argv = ["unshare", "-rm", "sh", "-c", script, "sh", *words]
    done = ran(argv, timeout=60)
    assert "exit 4" in done.stdout, done.stdout + done.stderr
    text, _, files = done.stdout.rpartition("exit 4\n")
    told = json.loads(text)
    assert (told["error"], bool(told["cause"])) == ("host", True)
    assert "free some space" in told["try"]
    assert "Traceback" not in done.stderr
    assert [name for name in files.splitlines() if not name.endswith((".lock", ".log"))] == []


PHASES = ("connect", "probe", "survey", "upload", "run", "settle", "fetch")


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return tiny.make(tmp_path_factory.mktemp("another"), "another", seed=2)


@pytest.mark.parametrize("wait", [0, 30], ids=["without waiting", "waiting"])
def test_two_at_once(small: Tiny, another: Tiny, device: Device, home: Path, wait: int) -> None:
    """The second one comes in each phase of the first; both are separate sessions, as from two machines."""
    for phase in PHASES:
        told: list[str] = []
        helpers: list[threading.Thread] = []

        def second(told: list[str] = told) -> None:
            told.append(tiny.outcome(lambda: another.deploy(device, wait=wait)))

        def listen(event: Event, phase: str = phase, helpers: list[threading.Thread] = helpers) -> None:
            if (event.step, event.kind) == (phase, "start") and not helpers:
                helpers.append(threading.Thread(target=second))
                helpers[-1].start()
                if not wait:
                    helpers[-1].join(20)

        subprocess.run(["rm", "-rf", device.root], check=True)
        first = tiny.outcome(lambda listen=listen: small.deploy(device, listeners=[listen], wait=30))  # type: ignore[misc]
        for helper in helpers:
            helper.join(60)
        assert first == tiny.DONE
        fault = "second deploy, waiting" if wait else "second deploy, not waiting"
        tiny.check(fault, phase, Counter(told))
        assert tiny.settled(home, Path(device.root)) == []
        assert wait == 0 or told == [tiny.DONE]


def test_a_run_that_is_left_behind_on_the_device_is_ended(small: Tiny, device: Device, home: Path) -> None:
    """This side is killed outright in mid-run."""
    deploying = Deploying(device, small.bundle, small.model, 5000)
    deploying.wait_for(lambda: ["sleep", "4242"] in marked(str(home)).values())
    deploying.process.kill()
    deploying.end()
    assert gone(str(home), 15)
    small.deploy(device, wait=0)
    assert tiny.settled(home, Path(device.root)) == []


Act = Callable[[str], None]
Acting = Callable[..., None]


@pytest.fixture
def in_each_phase(small: Tiny, another: Tiny, device: Device, home: Path) -> Acting:
    """Does something when a phase of a deploy begins, for each phase in turn."""

    def call(fault: str, act: Act, **options: float) -> None:
        for phase in PHASES:
            came: list[str] = []

            def listen(event: Event, phase: str = phase, came: list[str] = came) -> None:
                if (event.step, event.kind) == (phase, "start"):
                    came.append(phase)
                    act(phase)

            what = another if phase == "survey" else small  # a bundle in its place is not looked for in the store
            told = tiny.outcome(
                lambda listen=listen, what=what: what.deploy(device, listeners=[listen], **options)  # type: ignore[misc]
            )
            assert came == [phase]
            tiny.check(fault, phase, Counter({told: 1}))
            assert tiny.settled(home, Path(device.root)) == []

    return call


@pytest.mark.parametrize("stamp", [1.0, 4_000_000_000.0], ids=["1970", "2096"])
def test_the_devices_clock_jumps(in_each_phase: Acting, small: Tiny, device: Device, home: Path, stamp: float) -> None:
    """All of the store seems to be of another age, in every phase: nothing current is collected, no lock opens."""

    def jump(phase: str) -> None:
        for path in home.rglob("*"):
            if not path.is_symlink():
                os.utime(path, (stamp, stamp))
        if Path(device.root, "lock").is_dir() and phase not in {"connect", "probe", "survey"}:
            with pytest.raises(DeviceBusyError):
                small.deploy(device, wait=0)

    in_each_phase("device's clock jumps", jump)


def test_this_machines_clock_jumps(in_each_phase: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    real, offset = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])

    def jump(phase: str) -> None:
        offset[0] = -3e8 if offset[0] >= 0 else 3e8

    in_each_phase("this machine's clock jumps", jump, timeout=30)


NAMES = [
    "a b", "it's", 'say "hi"', "$(touch pwned)", "`touch pwned`", "a;touch pwned", "-rf", "*", "..", "ü", "\u202e",
    "a\nb",
]  # fmt: skip
"""As a model's name, and as far as an inventory takes them, as a folder on the device."""


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names(name: str, device: Device, home: Path, tmp_path: Path) -> None:
    odd = tiny.make(tmp_path / "tiny", f"..{name}" if name == ".." else name)
    root = home / ".slipway"
    if name not in {"..", "\u202e", "a\nb"}:  # the inventory refuses these (tests/unit/test_inventory.py)
        root = home / name
        device = Device.model_validate({**device.model_dump(), "root": str(root)})
    assert tiny.outcome(lambda: odd.deploy(device)) == tiny.DONE
    assert tiny.settled(home, root) == []
    assert not list(Path(os.getcwd()).glob("pwned")) + list(home.rglob("pwned"))  # noqa: PTH109 - of this process
    results = [path for path in (tmp_path / "dist/results").rglob("*") if path.is_file()]
    assert results
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", path.name) for path in results)
