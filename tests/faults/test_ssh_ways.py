"""Ways to a device over SSH: jump hosts, the user's own configuration, few sessions, passwords, keys learnt once."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from asyncssh.connection import SSHServerConnection
from asyncssh.constants import MSG_GLOBAL_REQUEST

from core.errors import AuthenticationError, ConfigError, HostKeyError, UnreachableError, UsageError
from deploy.devices.inventory import Device
from deploy.run.connect import open_device, ssh_address
from deploy.store.store import Store
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.transport.ssh import connect as ssh_connect
from deploy.transport.ssh import transport as ssh_transport
from deploy.transport.ssh.config import user_config
from deploy.transport.ssh.transport import SshTransport
from deploy.upkeep import enrol as ssh_trust
from tests.faults import server
from tests.faults.server import SHELF, hello
from tests.support.processes import executable

SECRET = "a word that nobody must see"


def test_the_cipher_that_is_cheapest_for_a_device_is_asked_for_first(device: Device) -> None:
    connection = ssh_connect.connect(ssh_address(device), Deadline.after(20))
    assert connection.transport.local_cipher == ssh_connect.CIPHER
    connection.close()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[server.Device]:
    """A second device, to jump through."""
    with server.serve(tmp_path / "gate") as running:
        yield running


def configure(home: Path, board: server.Device, gate: server.Device, jump: str = "gate") -> None:
    (home / ".ssh/config").write_text(f"{gate.entry('gate')}{board.entry('shelf')} ProxyJump {jump}\n")
    (home / ".ssh/known_hosts").write_text(board.known_hosts.read_text() + gate.known_hosts.read_text())


def test_through_a_jump_host(home: Path, board: server.Device, gate: server.Device) -> None:
    configure(home, board, gate)
    assert hello(SHELF) == "hello"
    assert gate.forwarded == [board.port]
    configure(home, board, gate, f"pi@127.0.0.1:{gate.port}")
    assert ssh_address(SHELF).command().startswith(f"ssh -p {board.port} -J pi@127.0.0.1:{gate.port} ")


def test_a_jump_hosts_key_is_verified_too(home: Path, board: server.Device, gate: server.Device) -> None:
    configure(home, board, gate)
    (home / ".ssh/known_hosts").write_text(board.known_hosts.read_text())
    with pytest.raises(HostKeyError, match=rf"shelf \(\[127.0.0.1\]:{gate.port}\) is not on record"):
        hello(SHELF)
    assert board.connections == []


def test_a_jump_host_that_reaches_nothing(home: Path, board: server.Device, gate: server.Device) -> None:
    configure(home, board, gate)
    config = home / ".ssh/config"
    config.write_text(config.read_text().replace(f"Port {board.port}", "Port 1"))
    with pytest.raises(UnreachableError, match=r"port 1 through pi@127\.0\.0\.1"):
        hello(SHELF)


def test_jumps_in_circles(home: Path) -> None:
    (home / ".ssh/config").write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    with pytest.raises(ConfigError, match="circles"):
        ssh_address(Device(name="a", transport="ssh", host="a"))


def test_included_files_and_further_names(home: Path, board: server.Device) -> None:
    (home / ".ssh/conf.d").mkdir()
    (home / ".ssh/config").write_text("Include conf.d/*.conf nowhere\nHost *\n User nobody\n")
    (home / ".ssh/conf.d/a.conf").write_text(
        f"Host shelf\n HostName 127.0.0.1\n Port {board.port}\n User pi\n IdentityFile {home}/none\n"
        f" IdentityFile {board.client_key}\n HostKeyAlias the-shelf\n Compression yes\n"
        f" UserKnownHostsFile {home}/mine\n"
    )
    (home / "mine").write_text(board.known_hosts.read_text().replace(f"[127.0.0.1]:{board.port}", "the-shelf"))
    where = ssh_address(SHELF)
    assert (where.user, where.record, where.compress, where.key) == ("pi", "the-shelf", True, board.client_key)
    assert hello(SHELF) == "hello"
    assert user_config().lookup("other")["user"] == "nobody"


def test_a_proxy_command(home: Path, board: server.Device) -> None:
    relay = (
        "import socket,sys,os,threading;s=socket.create_connection(('127.0.0.1',int(sys.argv[1])));t=threading.Thread"
    )
    relay += "(target=lambda:[s.sendall(d) for d in iter(lambda:os.read(0,9999),b'')],daemon=True);t.start();"
    relay += "[os.write(1,d) for d in iter(lambda:s.recv(9999),b'')]"
    (home / "relay.py").write_text(relay)
    (home / ".ssh/config").write_text(
        f"Host shelf\n User pi\n HostKeyAlias x\n IdentityFile {board.client_key}\n"
        f" ProxyCommand {sys.executable} {home}/relay.py {board.port}\n"
    )
    (home / ".ssh/known_hosts").write_text(board.known_hosts.read_text().replace(f"[127.0.0.1]:{board.port}", "x"))
    assert hello(SHELF) == "hello"


def test_a_server_with_few_sessions(
    device: Device, board: server.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SSHServerConnection._process_session_open

    def limited(self: Any, packet: Any) -> Any:
        if self._channels:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "no more sessions")
        return real(self, packet)

    monkeypatch.setattr(SSHServerConnection, "_process_session_open", limited)
    payload = tmp_path / "payload"
    payload.write_bytes(os.urandom(200_000))
    with open_device(device) as transport, Store(transport, str(board.home / ".slipway")) as store:
        assert isinstance(transport, SshTransport)
        assert store.open([], Deadline.after(30), make=True) is not None
        transport.put(payload, str(board.home / "arrived"), lambda _: None, Deadline.after(30))
        assert run(transport, ["echo", "hello"], deadline=Deadline.after(20)).text == "hello\n"
        assert len(transport._sessions._all) > 1
    assert (board.home / "arrived").read_bytes() == payload.read_bytes()


def test_a_server_that_grants_none(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: Any, packet: Any) -> Any:
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "no")

    monkeypatch.setattr(SSHServerConnection, "_process_session_open", none)
    with pytest.raises(UnreachableError, match="broke"):
        hello(device)


def test_a_silent_device_is_given_up(device: Device, board: server.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection stands and nothing answers: a device behind a jump host lost its power."""
    monkeypatch.setattr(ssh_transport, "PULSE", 0.3)
    monkeypatch.setattr(ssh_transport, "SILENCE", 1.0)
    with open_device(device) as transport:
        assert run(transport, ["sleep", "3"], deadline=Deadline.after(20)).code == 0
        monkeypatch.setitem(SSHServerConnection._packet_handlers, MSG_GLOBAL_REQUEST, lambda *_: None)
        with pytest.raises(UnreachableError, match="broke"):
            run(transport, ["sleep", "30"], deadline=Deadline.after(20))
    assert board.connections


def test_compressed(device: Device, board: server.Device, tmp_path: Path) -> None:
    payload = tmp_path / "payload"
    payload.write_bytes(b"again and again " * 100_000)
    with open_device(device.model_copy(update={"compress": True})) as transport:
        transport.put(payload, str(board.home / "arrived"), lambda _: None, Deadline.after(30))
    assert board.connections[-1].get_extra_info("recv_compression") == "zlib@openssh.com"
    assert (board.home / "arrived").read_bytes() == payload.read_bytes()


@pytest.fixture
def locked_out(board: server.Device, device: Device, tmp_path: Path, home: Path) -> Device:
    """The key is not let in; the password is."""
    board.password = SECRET
    other = tmp_path / "other"
    other.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key("openssh"))
    other.chmod(0o600)
    assert home.is_dir()
    return device.model_copy(update={"key": other})


@pytest.fixture
def askpass(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers; what it was asked is in the file beside it."""
    program = executable(tmp_path / "askpass", f"#!/bin/sh\necho \"$1\" >>{tmp_path}/asked\necho '{SECRET}'\n")
    monkeypatch.setenv("SSH_ASKPASS", str(program))
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
    monkeypatch.setattr(ssh_connect, "_given", {})
    return tmp_path / "asked"


def test_a_password_from_a_prompt(
    locked_out: Device, board: server.Device, askpass: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert hello(locked_out) == "hello"
        assert hello(locked_out) == "hello"
    assert askpass.read_text() == f"Password of pi@127.0.0.1:{board.port}:\n", "asked once in a process"
    assert SECRET not in caplog.text


def test_a_wrong_password(locked_out: Device, board: server.Device, askpass: Path) -> None:
    board.password = "another"
    with pytest.raises(AuthenticationError, match="refused to log in pi") as caught:
        hello(locked_out)
    assert SECRET not in str(caught.value)
    assert ssh_connect._given == {}
    assert askpass.exists()


def test_nobody_to_ask(locked_out: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_ASKPASS", raising=False)
    monkeypatch.setattr(ssh_connect, "_given", {})
    with pytest.raises(AuthenticationError):
        hello(locked_out)


def test_a_key_with_a_passphrase(device: Device, board: server.Device, askpass: Path, home: Path) -> None:
    key = asyncssh.read_private_key(board.client_key)
    board.client_key.write_bytes(key.export_private_key("openssh", passphrase=SECRET))
    assert hello(device) == "hello"
    assert askpass.read_text() == f"Passphrase of {board.client_key}:\n"
    assert home.is_dir()


def test_a_key_is_learnt_once(device: Device, board: server.Device) -> None:
    board.known_hosts.unlink()
    print_ = board.host_key.get_fingerprint("sha256")
    with pytest.raises(UsageError, match="nothing was stored") as caught:
        ssh_trust.trust(device)
    assert f"--fingerprint {print_}" in caught.value.hint
    with pytest.raises(HostKeyError, match="not SHA256:wrong"):
        ssh_trust.trust(device, "SHA256:wrong")
    assert not board.known_hosts.exists()
    (stored,) = ssh_trust.trust(device, print_)
    assert (stored.outcome, stored.fingerprint, stored.file) == ("stored", print_, str(board.known_hosts))
    assert stat.S_IMODE(board.known_hosts.stat().st_mode) == 0o600
    assert hello(device) == "hello"
    assert ssh_trust.trust(device)[0].outcome == "was known"


def test_a_changed_key_is_replaced_only_when_asked(device: Device, board: server.Device) -> None:
    keep = "# mine\nother.example ssh-ed25519 " + board.known_hosts.read_text().split()[2] + "\n"
    board.record(asyncssh.generate_private_key("ssh-ed25519"))
    old = board.known_hosts.read_text()
    board.known_hosts.write_text(keep + old)
    print_ = board.host_key.get_fingerprint("sha256")
    with pytest.raises(HostKeyError, match="has changed") as caught:
        ssh_trust.trust(device, print_)
    assert "--replace" in caught.value.hint
    assert board.known_hosts.read_text() == keep + old
    assert ssh_trust.trust(device, print_, replace=True)[0].outcome == "replaced"
    assert board.known_hosts.read_text().startswith(keep)
    assert old not in board.known_hosts.read_text()
    assert hello(device) == "hello"


def test_a_terminal_is_asked(device: Device, board: server.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real pseudo-terminal in place of this process's streams."""
    board.known_hosts.unlink()
    for answer, good in (("no\n", False), ("yes\n", True)):
        ours, theirs = os.openpty()
        with os.fdopen(theirs, "r+b", buffering=0) as raw, contextlib.ExitStack() as stack:
            os.write(ours, answer.encode())
            stream = os.fdopen(os.dup(raw.fileno()), "r")
            said = os.fdopen(os.dup(raw.fileno()), "w")
            stack.callback(stream.close)
            stack.callback(said.close)
            monkeypatch.setattr(sys, "stdin", stream)
            monkeypatch.setattr(sys, "stderr", said)
            if good:
                assert ssh_trust.trust(device)[0].outcome == "stored"
            else:
                with pytest.raises(HostKeyError, match="was not accepted"):
                    ssh_trust.trust(device)
            shown = ""
            while "(yes/no)" not in shown:
                shown += os.read(ours, 4096).decode()
        os.close(ours)
        assert board.host_key.get_fingerprint("sha256") in shown
        assert board.known_hosts.exists() is good


def test_what_has_no_key_to_learn() -> None:
    with pytest.raises(ConfigError, match="no host key to learn"):
        ssh_trust.trust(Device(name="local", transport="local"))
