"""Whom SSH trusts and who may log in: keys, records, configuration; refused keys, changed hosts, nobody there."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import asyncssh
import pytest

from core.errors import AnswerError, AuthenticationError, ConfigError, HostKeyError, SlipwayError, UnreachableError
from deploy.devices.inventory import Device
from deploy.run.connect import open_device, ssh_address
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import GREETING
from deploy.upkeep import enrol as ssh_trust
from deploy.upkeep import upkeep
from tests.faults import server, tiny
from tests.faults.server import SHELF, hello
from tests.support.processes import for_ever, listening, peak
from tests.support.userlands import login_shell


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602, 0o601, 0o777])
def test_a_key_that_others_may_read(device: Device, board: server.Device, mode: int) -> None:
    board.client_key.chmod(mode)
    with pytest.raises(ConfigError, match="is not used") as caught:
        hello(device)
    assert f"{mode:04o}" in caught.value.cause
    assert caught.value.hint == f"chmod 600 {board.client_key}"
    assert board.connections == []
    board.client_key.chmod(0o400)
    assert hello(device) == "hello"


def test_keys_of_the_configuration_too(home: Path, board: server.Device, capfd: pytest.CaptureFixture[str]) -> None:
    """As ssh does it: such a key is left out with a warning, others are offered."""
    (home / ".ssh/config").write_text(board.entry("shelf"))
    (home / ".ssh/known_hosts").write_text(board.known_hosts.read_text())
    board.client_key.chmod(0o644)
    with pytest.raises(AuthenticationError):
        hello(SHELF)
    assert f"the private key {board.client_key} is not used" in " ".join(capfd.readouterr().err.split())
    (home / ".ssh/id_ed25519").write_bytes(board.client_key.read_bytes())
    (home / ".ssh/id_ed25519").chmod(0o600)
    assert hello(SHELF) == "hello"
    (home / ".ssh/id_ed25519").chmod(0o604)
    with pytest.raises(AuthenticationError):
        hello(SHELF)


def test_a_revoked_key_stays_revoked(device: Device, board: server.Device) -> None:
    """It is refused, not learnt, and neither mark is lost when another key takes the place of the old one."""
    good = board.known_hosts.read_text()
    key = " ".join(good.split()[1:3])
    marks = f"@revoked * {key}\n@cert-authority *.lab {key}\n"
    board.known_hosts.write_text(marks + good)
    print_ = board.host_key.get_fingerprint("sha256")
    for attempt in (lambda: hello(device), lambda: ssh_trust.trust(device, print_, replace=True)):
        with pytest.raises(HostKeyError, match="revoked"):
            attempt()
    assert board.known_hosts.read_text() == marks + good
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()
    marks = f"@revoked * {other[0]} {other[1]}\n@cert-authority * {key}\n"
    board.known_hosts.write_text(f"{marks}[127.0.0.1]:{board.port} {other[0]} {other[1]}\n")
    assert ssh_trust.trust(device, print_, replace=True)[0].outcome == "stored", "a revoked key was never on record"
    assert board.known_hosts.read_text().startswith(marks)
    assert hello(device) == "hello"


@pytest.mark.parametrize(("lines", "words"), [
    ("ProxyCommand nc 'x %p", "ProxyCommand"), ('Include "a', "Include"),
    ('UserKnownHostsFile "a b', "UserKnownHostsFile"),
    ("Port abc", "Port"), ("Port 0", "Port"), ("Port 70000", "Port"), ("ConnectTimeout soon", "ConnectTimeout"),
    ("Match exec \"x", ".ssh/config"), ("CanonicalizeHostname yes\n CanonicalizeMaxDots x", ".ssh/config"),
    ("ProxyJump a:b:c", "ProxyJump"), ("ProxyJump a:123456", "ProxyJump"),
])  # fmt: skip
def test_configuration_that_cannot_be_read(home: Path, lines: str, words: str) -> None:
    """An error with words, as ssh has one; never a traceback, never a guess."""
    (home / ".ssh/config").write_text(f"Host shelf\n HostName 127.0.0.1\n {lines}\n")
    with pytest.raises(ConfigError) as caught:
        open_device(SHELF, Deadline.after(10))
    assert words in str(caught.value)


def test_no_timeout_is_one(home: Path) -> None:
    (home / ".ssh/config").write_text("Host shelf\n ConnectTimeout none\n")
    assert ssh_address(SHELF).connect_seconds == 15.0


def drip(peer: socket.socket) -> None:
    while True:
        peer.sendall(b"x")
        time.sleep(0.1)


SPEECHES = {
    "a greeting without end": (for_ever(b"x" * 65536), "its greeting has more than 65,536 bytes"),
    "lines without end": (for_ever(b"hello\r\n" * 9000), "does not speak SSH with us"),
    "a greeting that drips": (drip, "The 4 s allowed were over"),
    # It is said to have 4 GiB, before any key was agreed upon.
    "a giant packet": (
        for_ever(bytes(1 << 20), b"SSH-2.0-x\r\n\xff\xff\xff\xf4\x04\x14"),
        "a packet is said to have 4,294,9",
    ),
}


@pytest.mark.parametrize("name", SPEECHES)
def test_what_talks_instead_of_a_server(name: str, device: Device) -> None:
    """Nobody is verified yet: it may take neither memory nor time beyond the deadline."""
    speak, words = SPEECHES[name]
    seconds = 4 if speak is drip else 60
    begun, before = time.monotonic(), peak()
    with listening(speak) as port, pytest.raises(SlipwayError) as caught:
        open_device(device.model_copy(update={"port": port}), Deadline.after(seconds))
    assert words in str(caught.value)
    assert caught.value.exit_code in {20, 31}
    assert time.monotonic() - begun < 10
    assert peak() - before < 64 << 20


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
FILES = {"bash": ".bashrc", "zsh": ".zshenv", "fish": ".config/fish/config.fish"}


@pytest.fixture
def greets(board: server.Device) -> server.Device:
    """``board``, whose login's files print, on both streams, whatever its shell."""
    for name in FILES.values():
        (board.home / name).parent.mkdir(parents=True, exist_ok=True)
        (board.home / name).write_text(f"{GREETS}; echo stty: not a terminal >&2\n")
    board.environment = {"HOME": str(board.home), "PATH": os.environ["PATH"], "SSH_CLIENT": "127.0.0.1 1 22"}
    return board


@pytest.mark.parametrize("shell", ["bash", "zsh", pytest.param("fish", marks=pytest.mark.long)])
def test_a_login_that_greets(greets: server.Device, device: Device, tmp_path: Path, dist: Path, shell: str) -> None:
    login = login_shell(shell)
    greets.shell = lambda command: [*login, "-c", command]
    with open_device(device) as transport:
        # fish takes a backslash before a quote as its own
        words = [word.replace("\\", "") if shell == "fish" else word for word in AWKWARD]
        done = run(transport, ["printf", "%s|", *words], deadline=Deadline.after(20))
        assert (done.stdout.decode(), done.stderr) == ("|".join([*words, ""]), b"")
        assert run(transport, ["sh", "-c", "exit 7"], deadline=Deadline.after(20), check=False).code == 7
    small = tiny.make(tmp_path / "tiny", elements=tiny.LARGE)  # its output comes as a file of its own
    small.deploy(device)
    assert upkeep.verify(device).damaged == ()
    assert upkeep.collect(device).left_files > 0
    made = {path.name for path in greets.home.iterdir()} - {name.partition("/")[0] for name in FILES.values()}
    assert made - {".local"} == {".slipway"}, "a shell ran lines of a script as commands of its own"  # fish's own


def test_a_csh_runs_nothing_of_it(board: server.Device, device: Device, tmp_path: Path) -> None:
    login = login_shell("tcsh")
    board.shell = lambda command: [*login, "-c", command]
    with open_device(device) as transport, pytest.raises(AnswerError, match="ran no command"):
        run(transport, ["sh", "-c", f"true\ntouch {tmp_path}/made"], deadline=Deadline.after(20))
    assert not (tmp_path / "made").exists()


def test_a_login_shell_that_runs_nothing(board: server.Device, device: Device) -> None:
    board.shell = lambda _: ["sh", "-c", "echo This account is not available.; exit 1"]
    with open_device(device) as transport, pytest.raises(AnswerError, match="ran no command") as caught:
        run(transport, ["true"], deadline=Deadline.after(20))
    assert "This account is not available." in caught.value.cause
    board.shell = lambda command: ["sh", "-c", f"yes | head -c {GREETING + 10}; {command}"]
    with open_device(device) as transport, pytest.raises(AnswerError, match="while logging in"):
        run(transport, ["true"], deadline=Deadline.after(20))
