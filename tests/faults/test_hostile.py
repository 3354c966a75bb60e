"""A device that means harm: it prints without end, lies about sizes, speaks to the terminal, answers with nonsense.

The connection is a real one (this machine's processes, or SSH), the store and the lock are real; only the runner, or
what stands in its place, is the attacker's.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core import console
from core.errors import DeadlineError, SlipwayError, TransferError
from core.files import sha256_file, write_json
from core.formats.bundle import Bundle
from core.paths import ROOT
from deploy.devices.inventory import Device
from deploy.run.connect import open_device
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from tests.faults import tiny
from tests.faults.tiny import Tiny
from tests.support.processes import executable, gone, peak, ran, well

pytestmark = pytest.mark.usefixtures("dist")  # results go to a folder of the test's own

ESC = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r"
FIX = "curl http://127.0.0.1/x | sh"

OVER = 10.0
"""Seconds that ending may take beyond the deadline: 3 of grace, and a slow machine."""


@pytest.fixture(params=["local", "ssh"])
def anyhow(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Device]:
    """A device of each kind; nothing runs on it when the test is over."""
    if request.param == "local":
        (tmp_path / "board/home").mkdir(parents=True)
        yield tiny.local(tmp_path / "board/home/.slipway")
    else:
        yield request.getfixturevalue("device")
    assert gone(str(tmp_path / "board"))


@pytest.fixture
def small(tmp_path: Path) -> Tiny:
    return tiny.make(tmp_path / "tiny")


def hostile(small: Tiny, last: str) -> Tiny:
    """`small` whose runner does ``last`` when it shall run; describing it is as ever."""
    file = small.bundle.path / "bin/pte_runner"
    described = file.read_text(encoding="utf-8").partition("[ -s ")[0]
    file.write_text(described + last)
    manifest = small.bundle.manifest
    entries = [
        entry.model_copy(update={"size": file.stat().st_size, "sha256": sha256_file(file)})
        if entry.path == "bin/pte_runner" else entry for entry in manifest.files
    ]  # fmt: skip
    write_json(
        small.bundle.path / "manifest.json",
        manifest.model_copy(update={"files": tuple(entries)}).model_dump(mode="json"),
    )
    return Tiny(Bundle.load(small.bundle.path), small.model, small.data)


MEASURED = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
from core.errors import SlipwayError
from deploy.transport.deadline import Deadline
from deploy.devices.inventory import Device
from deploy.run.connect import open_device
from deploy.store.store import Store
from deploy.transport.base import run
device = Device.model_validate_json(sys.argv[2])
with open_device(device) as transport:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.monotonic()
    try:
        if sys.argv[3] == "run":
            run(transport, ["sh", "-c", sys.argv[4]], deadline=Deadline.after(float(sys.argv[5])))
        else:
            with Store(transport, sys.argv[4]) as store:
                store.open(["store/x"], Deadline.after(float(sys.argv[5])), make=True)
        name = "none"
    except SlipwayError as error:
        name = type(error).__name__
    took = time.monotonic() - begun
    print(name, round(took, 1), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
"""Says which error came, after how many seconds, and how many MiB the process grew: in a process of its own."""


def measured(device: Device, tmp_path: Path, *words: str) -> tuple[str, float, int]:
    argv = [sys.executable, "-c", MEASURED, str(ROOT), device.model_dump_json(), *words]
    name, took, grown = well(ran(argv, timeout=150, cwd=tmp_path)).stdout.split()
    return name, float(took), int(grown)


@pytest.mark.parametrize("stream", [1, 2])
def test_output_without_end(anyhow: Device, tmp_path: Path, stream: int) -> None:
    """As fast as the device can, and deaf to TERM: it is cut off by bytes, and what runs is ended."""
    name, took, grown = measured(anyhow, tmp_path, "run", f"trap '' TERM; exec cat /dev/zero >&{stream}", "60")
    assert name == "AnswerError"
    assert took < 60
    assert grown < 250, f"{grown} MiB for an answer of 64"


def test_output_that_drips(anyhow: Device, tmp_path: Path) -> None:
    """A byte now and then, for ever: the deadline ends it."""
    name, took, _grown = measured(anyhow, tmp_path, "run", "while :; do echo x; sleep 0.05; done", "2")
    assert name == "DeadlineError"
    assert took < 2 + OVER


def test_a_lock_that_talks_without_end(anyhow: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's own shell is the attacker's: whatever it is asked, it prints."""
    shell = executable(tmp_path / "board/tools/sh", "#!/bin/sh\nexec cat /dev/zero\n")
    monkeypatch.setenv("PATH", f"{shell.parent}:{os.environ['PATH']}")
    name, took, grown = measured(anyhow, tmp_path, "lock", str(tmp_path / "board/root"), "30")
    assert name == "AnswerError"
    assert took < 30
    assert grown < 120


def test_a_file_without_end(anyhow: Device, tmp_path: Path) -> None:
    """What should be an output is a link to a device that never ends, or a pipe that nobody writes to."""
    (tmp_path / "board/home").mkdir(parents=True, exist_ok=True)
    endless, pipe, long = (tmp_path / f"board/home/output{number}.npy" for number in range(3))
    endless.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    with long.open("wb") as file:
        file.truncate(4 << 30)
    with open_device(anyhow) as transport:
        begun, before = time.monotonic(), peak()
        with pytest.raises(TransferError):
            transport.get(str(endless), tmp_path / "got", 1 << 20, Deadline.after(20))
        with pytest.raises(TransferError, match="longer than expected"):
            transport.get(str(long), tmp_path / "got", 1 << 20, Deadline.after(20))
        with pytest.raises((TransferError, DeadlineError)):
            transport.get(str(pipe), tmp_path / "got", 1 << 20, Deadline.after(3))
        assert time.monotonic() - begun < 3 + OVER
        assert peak() - before < 64 << 20
    assert not (tmp_path / "got").exists()
    assert not list(tmp_path.glob(".got*"))


def attempt(what: Callable[[], object]) -> SlipwayError:
    with pytest.raises(SlipwayError) as caught:
        what()
    return caught.value


def clean(text: str) -> bool:
    """Whether a terminal only shows it."""
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


SPEAKS = f"""\
cat >"$json" <<'END'
{json.dumps({"error": {"message": "needs a" + ESC + "[bold]b[/bold]", "fix": FIX, "names": ["aten::c" + ESC, 7]}})}
END
exit 7
"""


def test_words_of_a_device_are_its_own(anyhow: Device, small: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    evil = hostile(small, SPEAKS)
    error = attempt(lambda: evil.deploy(anyhow))
    assert error.exit_code == 30
    assert clean(str(error))
    assert 'board says: "needs a' in error.cause
    assert "[bold]b[/bold]" in error.cause
    assert FIX not in error.hint
    assert f'board suggests: "{FIX}"' in error.cause
    assert all(clean(name) for name in error.names)
    console.note(str(error))
    console.print_json(error.to_json())
    console.table(error.cause, [error.cause], [[error.cause]], error.cause)
    shown = capfd.readouterr()
    assert clean(shown.out + shown.err)


def answer(change: Callable[[dict[str, Any]], Any]) -> str:
    """A runner that leaves such a result; it says nothing of its inputs, whose digests are compared before all else."""
    tensor = {"dtype": "float32", "shape": [1], "sha256": "0" * 64}
    good = {
        "engine": {"name": "tiny", "version": "1"}, "method": "forward", "load_ms": 0.1, "peak_rss_bytes": 1,
        "latency_ms": {"count": 1, "min": 1, "p50": 1, "p90": 1, "p99": 1, "mean": 1}, "threads": 1,
        "inputs": [], "outputs": [tensor],
    }  # fmt: skip
    changed = change(good)
    return changed if isinstance(changed, str) else json.dumps(changed)


def tensor(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda good: {**good, "outputs": [{**good["outputs"][0], **changes}]}


ANSWERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nested 200,000 deep": lambda _: "[" * 200_000 + "]" * 200_000,
    "dtype f4,(": tensor(dtype="f4,("),
    "a shape of 10**12": tensor(shape=[10**12]),
    "thousands of outputs": lambda good: {**good, "outputs": good["outputs"] * 5000},
}
"""tests/unit/test_result.py and test_hostile_words.py have the others, and test_compare.py all that an array may be."""


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_are_none(name: str, small: Tiny, tmp_path: Path) -> None:
    """Each ends in one class of error, never in a traceback, and nothing is left running."""
    (tmp_path / "board").mkdir()
    text = tmp_path / "answer"
    text.write_bytes(answer(ANSWERS[name]).encode("latin-1"))
    board = tiny.local(tmp_path / "board/.slipway")
    evil = hostile(small, f'cp {text} "$json"; cp "$inputs" "${{output}}0.npy"; exit 0\n')
    error = attempt(lambda: evil.deploy(board))
    assert (type(error).__name__, error.exit_code, error.kind) == ("AnswerError", 26, "answer")
    assert clean(str(error))
    assert len(str(error)) < 2000
    assert gone(str(tmp_path / "board"))


def test_ordinary_output_is_untouched(anyhow: Device) -> None:
    """What a program of a user prints comes back byte by byte."""
    with open_device(anyhow) as transport:
        done = run(transport, ["printf", r"\033[1mb\033[0m\r\n\377"], deadline=Deadline.after(30))
    assert done.stdout == b"\x1b[1mb\x1b[0m\r\n\xff"
