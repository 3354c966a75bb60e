"""Who may log in where: refused keys, unknown and changed host keys, devices that are not there."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import asyncssh
import pytest

from core.errors import AnswerError, AuthenticationError, ConfigError, HostKeyError, TransferError, UnreachableError
from deploy.devices.inventory import Device
from deploy.run.connect import open_device
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import GREETING
from deploy.upkeep import upkeep
from tests.faults import server, tiny
from tests.support.userlands import login_shell


def fingerprint(key: asyncssh.SSHKey) -> str:
    return key.get_fingerprint("sha256")


def test_key_refused(tmp_path: Path) -> None:
    with server.serve(tmp_path / "x", authorized=False) as board:
        device = Device(name="board", transport="ssh", host="127.0.0.1", port=board.port, user="pi",
                        key=board.client_key, known_hosts=board.known_hosts)  # fmt: skip
        with pytest.raises(AuthenticationError, match="refused to log in pi") as caught:
            open_device(device)
    assert caught.value.exit_code == 21
    assert f"ssh-copy-id -i {board.client_key}" in caught.value.hint


@pytest.mark.parametrize("there", [True, False], ids=["empty file", "no file"])
def test_unknown_host_key(board: server.Device, device: Device, there: bool) -> None:
    board.known_hosts.unlink()
    if there:
        board.known_hosts.touch()
    with pytest.raises(HostKeyError, match="not on record") as caught:
        open_device(device)
    assert caught.value.exit_code == 22
    assert caught.value.names == (fingerprint(board.host_key),)
    assert caught.value.hint.startswith("./inv devices.trust board")
    assert board.known_hosts.exists() is there
    assert not there or board.known_hosts.read_text() == "", "the key was accepted by itself"


@pytest.mark.parametrize("kind", ["ssh-ed25519", "ecdsa-sha2-nistp256"])
def test_changed_host_key(board: server.Device, device: Device, kind: str) -> None:
    old = asyncssh.generate_private_key(kind)
    board.record(old)
    before = board.known_hosts.read_text()
    with pytest.raises(HostKeyError, match="has changed") as caught:
        open_device(device)
    assert caught.value.exit_code == 22
    assert caught.value.names == (fingerprint(old), fingerprint(board.host_key))
    for print_ in caught.value.names:
        assert print_ in str(caught.value)
    assert "./inv devices.trust board --replace" in caught.value.hint
    assert board.known_hosts.read_text() == before


def test_nobody_there(device: Device) -> None:
    with socket.socket() as taken:  # it does not listen, and nobody else can
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match=f"cannot be reached at 127.0.0.1 port {port}") as caught:
            open_device(device.model_copy(update={"port": port}))
    assert caught.value.exit_code == 20
    assert 1.0 < time.monotonic() - begun < 10, "tried again with pauses, and not for ever"


def test_key_file_missing_or_no_key(device: Device, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no key file"):
        open_device(device.model_copy(update={"key": tmp_path / "none"}))
    (tmp_path / "junk").write_text("not a key\n")
    (tmp_path / "junk").chmod(0o600)
    with pytest.raises(ConfigError, match="not a private key"):
        open_device(device.model_copy(update={"key": tmp_path / "junk"}))


GREETS = 'echo "Welcome to $HOME!"; printf half'
AWKWARD = ["it's", "a\nb\n", 'c!d $HOME `id` "e" \\\\n \\', "é ~ * ^ %s", ""]
FILES = {"bash": ".bashrc", "zsh": ".zshenv", "tcsh": ".cshrc", "fish": ".config/fish/config.fish"}


@pytest.fixture
def greets(board: server.Device) -> server.Device:
    """``board``, whose login's files print, on both streams, whatever its shell."""
    for name in FILES.values():
        (board.home / name).parent.mkdir(parents=True, exist_ok=True)
        aloud = "" if "csh" in name else "; echo stty: not a terminal >&2"  # csh has no such redirection
        (board.home / name).write_text(f"{GREETS}{aloud}\n")
    board.greeting = b"Welcome!\nhalf"
    board.environment = {"HOME": str(board.home), "PATH": os.environ["PATH"], "SSH_CLIENT": "127.0.0.1 1 22"}
    return board


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", pytest.param("fish", marks=pytest.mark.long)])
def test_a_login_that_greets(
    greets: server.Device, device: Device, tmp_path: Path, dist: Path, shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    login = login_shell(shell)
    said: list[str] = []

    def start(command: str) -> list[str]:
        said.append(command)
        return [*login, "-c", command]

    greets.shell = start
    with open_device(device) as transport:
        done = run(transport, ["printf", "%s|", *AWKWARD], deadline=Deadline.after(20))
        assert (done.stdout.decode(), done.stderr) == ("|".join([*AWKWARD, ""]), b"")
        begun = len(said)
        assert run(transport, ["sh", "-c", "exit 7"], deadline=Deadline.after(20), check=False).code == 7
        assert len(said) == begun + 1, "asked once what shell it is"
    small = tiny.make(tmp_path / "tiny", elements=tiny.LARGE)  # its output comes as a file of its own
    small.deploy(device)
    assert upkeep.verify(device).damaged == ()
    assert upkeep.collect(device).left_files > 0
    assert "no SFTP" not in capsys.readouterr().err
    made = {path.name for path in greets.home.iterdir()} - {name.partition("/")[0] for name in FILES.values()}
    assert made - {".local"} == {".slipway"}, "a shell ran lines of a script as commands of its own"  # fish's own


def test_files_go_through_cat_where_a_login_greets(greets: server.Device, device: Device, tmp_path: Path) -> None:
    with open_device(device) as transport:
        greets.shell = lambda command: ["bash", "-c", command]
        transport._files._no_sftp = True  # type: ignore[attr-defined]
        (tmp_path / "a").write_bytes(os.urandom(300_000))
        there = str(greets.home / "it's b")
        transport.put(tmp_path / "a", there, lambda _: None, Deadline.after(20))
        transport.get(there, tmp_path / "back", 1 << 20, Deadline.after(20))
        assert (tmp_path / "back").read_bytes() == (tmp_path / "a").read_bytes()
        with pytest.raises(TransferError, match="no ordinary file") as caught:
            transport.get(str(greets.home), tmp_path / "back", 1 << 20, Deadline.after(20))
        assert "stty" not in str(caught.value)


def test_a_login_shell_that_runs_nothing(board: server.Device, device: Device) -> None:
    board.shell = lambda _: ["sh", "-c", "echo This account is not available.; exit 1"]
    with open_device(device) as transport, pytest.raises(AnswerError, match="ran no command") as caught:
        run(transport, ["true"], deadline=Deadline.after(20))
    assert "This account is not available." in caught.value.cause
    board.shell = lambda command: ["sh", "-c", f"yes | head -c {GREETING + 10}; {command}"]
    with open_device(device) as transport, pytest.raises(AnswerError, match="while logging in"):
        run(transport, ["true"], deadline=Deadline.after(20))
