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
from deploy.run import attempts
from deploy.run.events import Event
from tests.faults import outcomes, sabotage, tiny
from tests.faults.tiny import Tiny
from tests.support.processes import gone, marked, ran
from toolchains.targets import host_target

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
    return Device(name="board", transport="local", target=host_target().name, root=str(home / ".slipway"))


class Phases:
    """Which step is going on; what comes after the comparison is the release."""

    now = "connect"

    def __call__(self, event: Event) -> None:
        if event.kind == "start":
            self.now = event.step
        elif (event.step, event.kind) == ("compare", "end"):
            self.now = "release"


@pytest.mark.parametrize("fault", sabotage.FAULTS)
def test_every_operation(fault: str, small: Tiny, device: Device, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a new device, so that a deploy has everything to do."""
    root = Path(device.root)
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    at, struck = 0, True
    while struck:
        transport = sabotage.Sabotage(home, fault, at)
        monkeypatch.setattr(attempts, "open_device", lambda *_, way=transport: way)
        subprocess.run(["rm", "-rf", str(root)], check=True)
        phases, when = Phases(), "connect"

        def note(event: Event, phases: Phases = phases) -> None:
            phases(event)

        told = outcomes.outcome(lambda note=note: small.deploy(device, listeners=[note], timeout=20))  # type: ignore[misc]
        struck = transport.struck
        when = phases.now
        if struck:
            seen[when][told] += 1
        assert gone(str(home), 15), (fault, at)
        assert tiny.whole(home, root) == [], (fault, at)
        monkeypatch.undo()
        monkeypatch.setenv("SLIPWAY_DIST", str(home.parent / "dist"))
        small.deploy(device)
        assert tiny.settled(home, root) == [], (fault, at)
        at += 1
    assert at > 12
    for phase, counted in seen.items():
        outcomes.check(fault, phase, counted)


@pytest.mark.parametrize("fault", sabotage.FAULTS)
def test_every_operation_of_a_deploy_that_verifies(
    fault: str, small: Tiny, device: Device, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file was changed on a device that has everything: whatever goes wrong meanwhile, it does not run."""
    root = Path(device.root)
    small.deploy(device)
    seen: Counter[str] = Counter()
    for at in range(1, 4):  # the digests, then a look at what else there is of the damaged file, then the upload
        (program,) = (root / "programs").iterdir()
        file = program / "model.pte"
        file.chmod(0o644)
        file.write_bytes(bytes(file.stat().st_size))
        transport = sabotage.Sabotage(home, fault, at)
        monkeypatch.setattr(attempts, "open_device", lambda *_, way=transport: way)
        phases, ran = Phases(), False

        def note(event: Event, phases: Phases = phases) -> None:
            nonlocal ran
            phases(event)
            ran = ran or event.step == "run"

        told = outcomes.outcome(lambda note=note: small.deploy(device, listeners=[note], timeout=20))  # type: ignore[misc]
        assert transport.struck
        assert not ran or told == outcomes.DONE
        if at < 3:
            assert phases.now == "verify"
            seen[told] += 1
        assert gone(str(home), 15), (fault, at)
        monkeypatch.undo()
        monkeypatch.setenv("SLIPWAY_DIST", str(home.parent / "dist"))
        small.deploy(device)
        assert tiny.settled(home, root) == [], (fault, at)
    outcomes.check(fault, "verify", seen)


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
    done = ran(
        ["unshare", "-rm", sys.executable, "-m", "tests.faults.full_disk", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for step, left, told, wrong in json.loads(done.stdout.splitlines()[-1]):
        assert wrong == [], (step, left)
        seen[step][told] += 1
    for step, counted in seen.items():
        outcomes.check("disk full", step, counted)
    assert sum(counted["device-full"] for counted in seen.values()) >= 5


def test_no_room_on_this_machine_at_any_step(tmp_path: Path) -> None:
    """Results and cache on a real file system without a byte, or without an inode, that is left."""
    (tmp_path / "disk").mkdir()
    folders = {name: str(tmp_path / "disk" / name) for name in ("SLIPWAY_DIST", "SLIPWAY_CACHE")}
    done = ran(
        ["unshare", "-rm", sys.executable, "-m", "tests.faults.no_room", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **folders},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    for what, step, told, wrong in rows:
        assert wrong == [], (what, step)
        assert (told["error"], told["exit_code"]) == ("host", 4), (what, step, told)
        assert told["cause"], (what, step, told)
        assert "free some space" in told["try"], (what, step, told)
    assert len(rows) == 8


@pytest.mark.parametrize("full", ["bytes", "inodes"])
def test_commands_without_room(tmp_path: Path, full: str) -> None:
    """``./inv`` itself, from the start: words, an exit code, and nothing that is half written."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = """
        mount -t tmpfs -o size=64k,nr_inodes=$2 none "$1" && mkdir "$1/own" && cd "$3" || exit 99
        [ "$2" -lt 9 ] || head -c 99999 /dev/zero >"$1/filler" 2>/dev/null
        SLIPWAY_DIST=$1/own/dist SLIPWAY_CACHE=$1/own/cache ./inv deploy --device local --program "$4" --json
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
            told.append(outcomes.outcome(lambda: another.deploy(device, wait=wait)))

        def listen(event: Event, phase: str = phase, helpers: list[threading.Thread] = helpers) -> None:
            if (event.step, event.kind) == (phase, "start") and not helpers:
                helpers.append(threading.Thread(target=second))
                helpers[-1].start()
                if not wait:
                    helpers[-1].join(20)

        subprocess.run(["rm", "-rf", device.root], check=True)
        first = outcomes.outcome(lambda listen=listen: small.deploy(device, listeners=[listen], wait=30))  # type: ignore[misc]
        for helper in helpers:
            helper.join(60)
        assert first == outcomes.DONE
        fault = "second deploy, waiting" if wait else "second deploy, not waiting"
        outcomes.check(fault, phase, Counter(told))
        assert tiny.settled(home, Path(device.root)) == []
        assert wait == 0 or told == [outcomes.DONE]


def test_a_run_that_is_left_behind_on_the_device_is_ended(small: Tiny, device: Device, home: Path) -> None:
    """This side is killed outright in mid-run."""
    code = (
        "import sys; from pathlib import Path; from tests.faults import tiny; from core.formats.bundle import Bundle;"
        "from deploy.devices.inventory import Device;"
        "t = tiny.Tiny(Bundle.load(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]));"
        "t.deploy(Device.model_validate_json(sys.argv[4]), num_executions=5000)"
    )
    words = [str(small.bundle.path), str(small.model), str(small.data), device.model_dump_json()]
    child = subprocess.Popen([sys.executable, "-c", code, *words], cwd=ROOT)
    while ["sleep", "4242"] not in marked(str(home)).values():
        assert child.poll() is None
        time.sleep(0.05)
    child.kill()
    child.wait()
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
            told = outcomes.outcome(
                lambda listen=listen, what=what: what.deploy(device, listeners=[listen], **options)  # type: ignore[misc]
            )
            assert came == [phase]
            outcomes.check(fault, phase, Counter({told: 1}))
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
    told = outcomes.outcome(lambda: odd.deploy(device))
    assert told == outcomes.DONE
    assert tiny.settled(home, root) == []
    assert not list(Path(os.getcwd()).glob("pwned")) + list(home.rglob("pwned"))  # noqa: PTH109 - of this process
    results = [path for path in (tmp_path / "dist/results").rglob("*") if path.is_file()]
    assert results
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", path.name) for path in results)
