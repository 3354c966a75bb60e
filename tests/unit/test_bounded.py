"""Programs that read what came from anywhere are ended when they take more than they may."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from core.errors import CrashError, ProgramError, SlipwayError
from core.formats.bundle import Bundle
from core.processes.bounded import LimitError, Limits, run_bounded
from deploy.run import needs
from tests.unit.test_preflight import bundle

MANY = Limits(seconds=60, memory=1 << 30, output=1 << 20)


def python(code: str, limits: Limits = MANY) -> tuple[int, str, str]:
    done = run_bounded([sys.executable, "-c", code], limits, "Reading a.pte")
    return done.returncode, done.stdout, done.stderr


def test_what_stays_within_its_limits_is_told_whole() -> None:
    code, out, err = python("import sys; print('x' * 500_000); sys.stderr.write('y'); sys.exit(3)")
    assert (code, len(out), err) == (3, 500_001, "y")


def test_endless_output_is_ended() -> None:
    begun = time.monotonic()
    with pytest.raises(LimitError, match=r"Reading a.pte printed more than 1,048,576 bytes"):
        python("while True: print('x' * 10_000)")
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    "code",
    ["import time; time.sleep(300)", "while True: pass", "import os, time; os.close(1); os.close(2); time.sleep(300)"],
)
def test_what_takes_too_long_is_ended(code: str) -> None:
    begun = time.monotonic()
    with pytest.raises(LimitError, match=r"took longer than 2 s"):
        python(code, Limits(seconds=2, memory=1 << 30, output=1000))
    assert time.monotonic() - begun < 30


@pytest.mark.skipif(sys.platform != "linux", reason="no other system limits another process's memory")
def test_memory_has_an_end() -> None:
    # The limit is set after the start, so the program waits for it.
    waits = "import resource, time\nwhile resource.getrlimit(resource.RLIMIT_DATA)[0] < 0: time.sleep(0.01)\n"
    code, _, err = python(f"{waits}b = bytearray(3 << 30); print(len(b))")
    assert code != 0
    assert "MemoryError" in err


def _describe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> SlipwayError:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(needs, "limits_for", lambda _: Limits(5, 1 << 30, 1000))

    def here(_: Bundle) -> list[str]:
        return [sys.executable, "-c", code]

    monkeypatch.setattr(needs, "runner_here", here)
    with pytest.raises(SlipwayError) as caught:
        needs.describe(bundle(), tmp_path / "a.pte", "0" * 64)
    return caught.value


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("while True: print('x' * 10_000)", "printed more than 1,000 bytes"),
        ("while True: pass", "took longer than 5 s"),
        ("import sys; sys.exit(9)", "took more than it may"),
        ("import sys; sys.exit(11)", "took more than it may"),
    ],
)
def test_a_program_that_takes_too_much_to_describe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, says: str
) -> None:
    error = _describe(monkeypatch, tmp_path, code)
    assert type(error) is ProgramError
    assert says in error.what
    assert "an exporter wrote takes a fraction" in error.cause


def test_a_crash_while_describing_is_not_the_programs_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    error = _describe(monkeypatch, tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert type(error) is CrashError
    assert "this machine" in error.what


def test_limits_grow_with_the_program(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"x" * 1000)
    (tmp_path / "a.onnx.data").write_bytes(b"x" * 3000)
    assert needs.limits_for(tmp_path / "a.onnx").memory == (2 << 30) + 16 * 4000
    (tmp_path / "a.pte").write_bytes(b"x" * 500)
    assert needs.limits_for(tmp_path / "a.pte").memory == (2 << 30) + 16 * 500
