"""Commands and executables on devices: what is refused, exit statuses, limits, and that nothing outlives them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core.errors import CrashError, PreflightError, ProgramError, RunError, SlipwayError, TransferError, UsageError
from core.files import write_atomic
from core.formats.bundle import Needs
from core.processes import commands
from deploy.devices.facts import DeviceFacts
from deploy.devices.probe import TOOLS
from deploy.run import needs
from deploy.run.execute import Executed, _blobs, check, needs_of, split
from deploy.transport.base import run, supervised
from deploy.transport.deadline import Deadline
from deploy.transport.local import LocalTransport
from deploy.upkeep import report
from tests.support.processes import gone, marked
from tests.unit.test_preflight import bundle

ZERO = DeviceFacts(
    system="Linux", machine="armv6l", kernel="6.1", root="/home/pi/.slipway", libc="glibc", glibc="2.36",
    loaders=("/lib/ld-linux.so.3",), libraries=("libc.so.6",), tools=TOOLS,
)  # fmt: skip
STATIC = Needs(os="linux", machine="armv6l")
DYNAMIC = STATIC.model_copy(update={"loader": "/lib/ld-linux.so.3", "libraries": ("libc.so.6",), "glibc": "2.36"})


@pytest.mark.parametrize("needs", [None, STATIC, DYNAMIC], ids=["script", "static", "dynamic"])
def test_what_can_run(needs: Needs | None) -> None:
    check(Path("tool"), needs, ZERO, "zero")


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"machine": "aarch64"}, "machine: needs aarch64; has armv6l"),
        ({"machine": "armv7l"}, "machine: needs armv7l"),
        ({"loader": "/lib/ld-linux-armhf.so.3"}, "loader: needs /lib/ld-linux-armhf.so.3"),
        ({"libraries": ("libc.so.6", "libgomp.so.1")}, "has without libgomp.so.1"),
        ({"glibc": "2.38"}, "GLIBC: needs ≥ 2.38; has 2.36"),
    ],
)
def test_what_cannot(change: dict[str, object], cause: str) -> None:
    with pytest.raises(PreflightError, match="nothing was uploaded") as caught:
        check(Path("tool"), DYNAMIC.model_copy(update=change), ZERO, "zero")
    assert cause in caught.value.cause


def test_a_library_that_goes_along_is_not_asked_of_the_device() -> None:
    program = Path(sys.executable).resolve()
    needs = needs_of(program)
    assert needs and needs.loader
    library = next(name for name in needs.libraries if name.startswith("libc."))
    brought = needs_of(program, [Path("somewhere") / library])
    assert brought and library not in brought.libraries


def test_files_and_words_that_cannot_be_taken(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_atomic(tmp_path / folder / "tool", "x")
    with pytest.raises(UsageError, match="one name"):
        _blobs(tmp_path / "a/tool", [tmp_path / "b/tool"])
    with pytest.raises(UsageError, match="There is no file"):
        _blobs(tmp_path / "a/tool", [tmp_path / "c"])
    assert [blob.executable for blob in _blobs(tmp_path / "a/tool", []).values()] == [True]
    assert split("one 'two words' \\$x") == ["one", "two words", "$x"]
    with pytest.raises(UsageError, match="cannot be split"):
        split("'open")


SAID = b"\x1b[1mbold\x1b[0m\r\n::error::x\xff\n"


def test_a_pipe_gets_a_programs_bytes_and_a_terminal_plain_text(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = Executed("pi", ("tool",), 0, SAID, SAID, 0.1, 0)
    report.executed(executed)
    out, err = capfdbinary.readouterr()
    assert out == SAID
    assert err.startswith(SAID)
    ours, theirs = os.openpty()
    with os.fdopen(os.dup(theirs), "w") as stdout, os.fdopen(theirs, "w") as stderr:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        report.executed(executed)
        stdout.flush()
        shown = b""
        while shown.count(b"bold") < 2:
            shown += os.read(ours, 65536)
    os.close(ours)
    assert b"\x1b" not in shown
    assert shown.count(rb"\x1b[1mbold\x1b[0m") == 2
    assert b"::error" not in shown


def python(code: str, timeout: float = 60) -> tuple[int, str, str]:
    limits: dict[str, Any] = {"timeout": timeout, "memory": 1 << 30, "most": 1 << 20}
    done = commands.run([sys.executable, "-c", code], error=None, what="Reading a.pte", **limits)
    return done.returncode, done.stdout, done.stderr


def test_output_is_told_whole_or_ended() -> None:
    code, out, err = python("import sys; print('x' * 500_000); sys.stderr.write('y'); sys.exit(3)")
    assert (code, len(out), err) == (3, 500_001, "y")
    begun = time.monotonic()
    with pytest.raises(commands.LimitError, match=r"Reading a.pte printed more than 1,048,576 bytes"):
        python("while True: print('x' * 10_000)")
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("code", ["while True: pass", "import os, time; os.close(1); os.close(2); time.sleep(300)"])
def test_what_takes_too_long_is_ended(code: str) -> None:
    begun = time.monotonic()
    with pytest.raises(commands.LimitError, match=r"took longer than 1 s"):
        python(code, timeout=1)
    assert time.monotonic() - begun < 30


@pytest.mark.skipif(sys.platform != "linux", reason="no other system limits another process's memory")
def test_memory_has_an_end() -> None:
    # The limit is set after the start, so the program waits for it.
    waits = "import resource, time\nwhile resource.getrlimit(resource.RLIMIT_DATA)[0] < 0: time.sleep(0.01)\n"
    code, _, err = python(f"{waits}b = bytearray(3 << 30); print(len(b))")
    assert code != 0
    assert "MemoryError" in err


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("while True: print('x' * 10_000)", ProgramError, "printed more than 1,000 bytes"),
        ("import sys; sys.exit(9)", ProgramError, "took more than it may"),
        ("import sys; sys.exit(11)", ProgramError, "took more than it may"),
        ("import os; os.kill(os.getpid(), 11)", CrashError, "this machine"),
    ],
)
def test_what_a_program_does_while_it_is_described(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, kind: type[SlipwayError], says: str
) -> None:
    """What takes too much is the program's fault, and a crash is not."""
    monkeypatch.setattr(needs, "limits_for", lambda _: {"timeout": 5, "memory": 1 << 30, "most": 1000})
    monkeypatch.setattr(needs, "runner_here", lambda _: [sys.executable, "-c", code])
    with pytest.raises(kind) as caught:
        needs.describe(bundle(), tmp_path / "a.pte", "0" * 64)
    assert type(caught.value) is kind and says in caught.value.what
    assert ("an exporter wrote takes a fraction" in caught.value.cause) is (kind is ProgramError)


LONG = "4242"


def soon() -> Deadline:
    return Deadline.after(20)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -ILL $$", 132), ("kill -KILL $$", 137)]
)
def test_exit_status(script: str, code: int) -> None:
    done = run(LocalTransport(), ["sh", "-c", script], deadline=soon(), check=False)
    assert done.code == code


def test_a_command_has_its_words_its_folder_and_its_streams(tmp_path: Path) -> None:
    done = run(LocalTransport(), ["sh", "-c", "head -c 300000 /dev/zero; echo oops >&2"], deadline=soon())
    assert (len(done.stdout), done.stderr) == (300000, b"oops\n")
    words = ["a b", "$HOME", "'", '"', "*", "a;b", "\\", "-n", "ü", "a\nb"]
    done = run(LocalTransport(), ["printf", "%s|", *words], deadline=soon())
    assert done.text == "|".join(words) + "|"
    line = shlex.join(["printf", "%s|", *words])
    by_a_shell = subprocess.run(["sh", "-c", line], capture_output=True, check=True)
    assert by_a_shell.stdout.decode() == done.text
    folder = tmp_path / "a b"
    folder.mkdir()
    done = run(LocalTransport(), ["sh", "-c", 'pwd; echo "$WORD"'], deadline=soon(), cwd=str(folder),
               env={"WORD": "x y"})  # fmt: skip
    assert done.text.splitlines() == [str(folder), "x y"]


def test_a_missing_program_and_a_failure() -> None:
    assert run(LocalTransport(), ["/nowhere/at-all"], deadline=soon(), check=False).code == 127
    with pytest.raises(RunError, match="while testing") as caught:
        run(LocalTransport(), ["sh", "-c", "echo why >&2; exit 1"], deadline=soon(), doing="testing")
    assert caught.value.cause == 'local says: "why"'


def test_losing_the_lifeline_or_the_time_ends_the_group(tmp_path: Path) -> None:
    mark = str(tmp_path)
    child = subprocess.Popen(supervised(["sh", "-c", f"sleep {LONG} & sleep {LONG}"], seconds=99, cwd=mark),
                             stdin=subprocess.PIPE, start_new_session=True)  # fmt: skip
    while len(marked(mark)) < 3:
        time.sleep(0.02)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(60) == 143
    assert gone(mark)
    argv = supervised(["sleep", LONG], seconds=-4, cwd=mark)  # five more are granted by the device
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
    assert child.wait(60) == 143
    assert child.stdin is not None
    child.stdin.close()
    assert gone(mark)


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    mark = str(tmp_path)
    run(LocalTransport(), ["sh", "-c", f"sleep {LONG} >/dev/null 2>&1 & exit 0"], deadline=soon(), cwd=mark)
    assert gone(mark)
    for _ in range(10):
        run(LocalTransport(), ["true"], deadline=soon(), cwd=mark)
    assert gone(mark)


def test_output_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.transport.base.MAX_OUTPUT", 1 << 20)
    with pytest.raises(TransferError, match="printed more than 1 MiB"):
        run(LocalTransport(), ["yes"], deadline=soon(), cwd=str(tmp_path))
    assert gone(str(tmp_path))
