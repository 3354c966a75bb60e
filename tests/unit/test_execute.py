"""Running any executable: what is refused before anything is pushed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from core.errors import PreflightError, UsageError
from core.formats.bundle import Needs
from deploy.devices.facts import DeviceFacts
from deploy.run.execute import Executed, _blobs, check, needs_of, split
from deploy.upkeep import report_devices

ZERO = DeviceFacts(
    system="Linux", machine="armv6l", kernel="6.1", root="/home/pi/.slipway", libc="glibc", glibc="2.36",
    loaders=("/lib/ld-linux.so.3",), libraries=("libc.so.6",),
)  # fmt: skip
STATIC = Needs(os="linux", machine="armv6l")
DYNAMIC = STATIC.model_copy(update={"loader": "/lib/ld-linux.so.3", "libraries": ("libc.so.6",), "glibc": "2.36"})


@pytest.mark.parametrize("needs", [None, STATIC, DYNAMIC], ids=["script", "static", "dynamic"])
def test_what_can_run(needs: Needs | None) -> None:
    check(Path("tool"), needs, ZERO, "zero")


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"machine": "aarch64"}, "it is for aarch64, the device is armv6l"),
        ({"machine": "armv7l"}, "it is for armv7l"),
        ({"loader": "/lib/ld-linux-armhf.so.3"}, "it needs the loader /lib/ld-linux-armhf.so.3"),
        ({"libraries": ("libc.so.6", "libgomp.so.1")}, "it needs libgomp.so.1, which"),
        ({"glibc": "2.38"}, "it needs GLIBC 2.38, the device has 2.36"),
    ],
)
def test_what_cannot(change: dict[str, object], cause: str) -> None:
    with pytest.raises(PreflightError, match="nothing was uploaded") as caught:
        check(Path("tool"), DYNAMIC.model_copy(update=change), ZERO, "zero")
    assert cause in caught.value.cause


def test_a_script_needs_a_disk_that_runs_programs_alone(tmp_path: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        check(Path("tool"), None, ZERO.model_copy(update={"noexec": True}), "zero")
    assert "noexec" in caught.value.cause
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert needs_of(tmp_path / "script") is None


def test_a_library_that_goes_along_is_not_asked_of_the_device() -> None:
    import sys

    program = Path(sys.executable).resolve()
    needs = needs_of(program)
    assert needs is not None
    assert needs.loader
    library = next(name for name in needs.libraries if name.startswith("libc."))
    brought = needs_of(program, [Path("somewhere") / library])
    assert brought is not None
    assert library not in brought.libraries


def test_files_and_words_that_cannot_be_taken(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").write_bytes(b"x")
    with pytest.raises(UsageError, match="one name"):
        _blobs(tmp_path / "a/tool", [tmp_path / "b/tool"])
    with pytest.raises(UsageError, match="There is no file"):
        _blobs(tmp_path / "a/tool", [tmp_path / "c"])
    assert [blob.executable for blob in _blobs(tmp_path / "a/tool", []).values()] == [True]
    assert split("one 'two words' \\$x") == ["one", "two words", "$x"]
    with pytest.raises(UsageError, match="cannot be split"):
        split("'open")


SAID = b"\x1b[1mbold\x1b[0m\r\n::error::x\xff\n"


def executed() -> Executed:
    return Executed("pi", ("tool",), 0, SAID, SAID, 0.1, 0)


def test_a_pipe_gets_a_programs_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    report_devices.executed(executed())
    out, err = capfdbinary.readouterr()
    assert out == SAID
    assert err.startswith(SAID)


def test_a_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real pseudo-terminal in place of the streams."""
    ours, theirs = os.openpty()
    with os.fdopen(os.dup(theirs), "w") as out, os.fdopen(theirs, "w") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        report_devices.executed(executed())
        out.flush()
        shown = b""
        while shown.count(b"bold") < 2:
            shown += os.read(ours, 65536)
    os.close(ours)
    assert b"\x1b" not in shown
    assert shown.count(rb"\x1b[1mbold\x1b[0m") == 2
    assert b"::error" not in shown
