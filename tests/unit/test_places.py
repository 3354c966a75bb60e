"""What is said of places of a lab that are not there, and of coordinators that do not answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConfigError, DeviceBusyError
from deploy.devices.inventory import Device
from deploy.lab.places import PLACE, TOKEN, candidates
from deploy.lab.session import _reason
from deploy.run import execute

REFUSED = (
    "coordinator is unavailable: failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9: Failed to "
    "connect to remote host: Connection refused"
)
UNRESOLVED = (
    "coordinator is unavailable: errors resolving lab.invalid:20408: [field:hostname lookup error:address lookup "
    "failed for lab.invalid:20408: Domain name not found]"
)
BY_SSH = (
    "failed to connect to lab.invalid with args ['ssh', '-x', '-o', 'LogLevel=ERROR', 'lab.invalid'], returncode=255 "
    r"b'',b'ssh: Could not resolve hostname lab.invalid: Name or service not known\r\n'"
)


def _place(name: str, **tags: str) -> Any:
    return SimpleNamespace(name=name, tags=tags, aliases={"me:mine"}, reservation=None, acquired=None, allowed=set())


LAB: Any = SimpleNamespace(
    address="lab:1",
    name="desk/me",
    session=SimpleNamespace(
        places={"board": _place("board", board="pi4"), "spare": _place("spare", board="pi3")}, getuser=lambda: "me"
    ),
)


def _device(**known: Any) -> Device:
    return Device(name="rack", transport="ssh", target="linux-arm64", source="labgrid", **known)


@pytest.mark.parametrize(
    ("known", "place", "token", "cause", "hint"),
    [
        ({"place": "bord"}, "", "", "did you mean board? there are board", "correct place = in the table [rack]"),
        ({"place": "min"}, "", "", "did you mean mine? there are board, spare", "correct place = in the table [rack]"),
        (
            {"place_tags": ("board=pi7",)}, "board", "", "there are board, spare, with board=pi3, board=pi4",
            "correct place_tags = in the table [rack]",
        ),
        ({}, "sparee", "", "did you mean spare?", "export LG_PLACE=NAME; labgrid-client -x lab:1 places"),
        ({}, "+", "", "there are", "export LG_TOKEN=TOKEN; labgrid-client -x lab:1 reservations"),
        ({}, "+", "ABC", "there are", "labgrid-client -x lab:1 reservations"),
        ({}, "+ABC", "", "there are", "labgrid-client -x lab:1 reservations"),
    ],
)  # fmt: skip
def test_a_place_that_is_not_there(
    known: dict[str, Any], place: str, token: str, cause: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, place)
    monkeypatch.setenv(TOKEN, token)
    with pytest.raises(ConfigError) as caught:
        candidates(LAB, _device(**known))
    assert caught.value.cause.startswith(cause)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [
        (REFUSED, "Failed to connect to remote host: Connection refused"),
        (UNRESOLVED, "lab.invalid:20408: Domain name not found"),
        (BY_SSH, "ssh: Could not resolve hostname lab.invalid: Name or service not known"),
        ("some other words", "some other words"),
        ("", ""),
    ],
)
def test_a_coordinator_that_does_not_answer(complaint: str, reason: str) -> None:
    assert _reason(complaint) == reason


def test_what_runs_without_wait_is_not_advised_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any) -> None:
        raise DeviceBusyError("local is in use.", "somebody", "a longer --wait", ("x",))

    script = tmp_path / "a.sh"
    script.write_text("#!/bin/sh\n")
    monkeypatch.setattr(execute, "open_device", busy)
    with pytest.raises(DeviceBusyError) as caught:
        execute.execute(Device(name="local", transport="local", target="host"), script)
    assert (caught.value.hint, caught.value.names) == ("a longer --timeout", ("x",))
