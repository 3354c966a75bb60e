"""Fixtures for faults: a misbehaving device over SSH, and the real bundle and program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.devices.inventory import Device
from tests.faults import server
from tests.faults.tiny import small
from tests.support.deploying import bundle, other_program, program
from toolchains.targets import host_target

__all__ = ["bundle", "other_program", "program", "small"]


@pytest.fixture
def board(tmp_path: Path) -> Iterator[server.Device]:
    with server.serve(tmp_path / "board") as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with an empty ``.ssh``."""
    folder = tmp_path / "user"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("SSH_AUTH_SOCK", "SSH_ASKPASS"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def device(board: server.Device) -> Device:
    return Device(
        name="board", transport="ssh", host="127.0.0.1", port=board.port, user=server.USER, key=board.client_key,
        known_hosts=board.known_hosts, target=host_target().name, timeout=120,
    )  # fmt: skip
