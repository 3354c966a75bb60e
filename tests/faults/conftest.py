"""Fixtures for faults: a misbehaving device over SSH, and the real bundle and program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.devices.inventory import Device
from tests.faults import server
from tests.support.deploying import bundle, other_program, program

__all__ = ["bundle", "other_program", "program"]


@pytest.fixture
def with_sftp() -> bool:
    """Whether ``board`` serves SFTP; tests parametrize it."""
    return True


@pytest.fixture
def board(tmp_path: Path, with_sftp: bool) -> Iterator[server.Device]:
    with server.serve(tmp_path / "board", with_sftp=with_sftp) as running:
        yield running


@pytest.fixture
def inventory(board: server.Device, tmp_path: Path) -> Path:
    file = tmp_path / "devices.toml"
    file.write_text(
        f'[board]\ntransport = "ssh"\ntarget = "host"\nhost = "127.0.0.1"\nport = {board.port}\n'
        f'user = "{server.USER}"\nkey = "{board.client_key}"\nknown_hosts = "{board.known_hosts}"\ntimeout = 120\n',
        encoding="utf-8",
    )
    return file


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
def device(inventory: Path) -> Device:
    from deploy.devices.inventory import get_device

    return get_device("board", inventory)
