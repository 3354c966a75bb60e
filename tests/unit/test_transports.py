"""adb without a phone, and SSH without a device: servers, packets, known hosts, and what ends paramiko's thread."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
from cryptography.exceptions import InvalidTag

from core import environment
from core.errors import AuthenticationError, HostError, SlipwayError, UnreachableError
from core.files import write_atomic
from deploy.transport.adb import server as adb_server
from deploy.transport.adb.port import PORT_VARIABLE
from deploy.transport.adb.server import Seen, Server, attach, parse_devices, pick, running_server, users_server
from deploy.transport.adb.transport import AdbChannel
from deploy.transport.deadline import Deadline
from deploy.transport.local import LocalChannel, LocalTransport
from deploy.transport.ssh import keys as ssh_known
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.connect import LOST
from deploy.transport.ssh.keys import Line
from tests.support.adb import AdbServer, adb, okay, packet
from tests.support.processes import ran

__all__ = ["adb"]

LISTING = """\
R5CT200ABCD            device usb:1-2 product:o1s model:SM_G991B device:o1s transport_id:3
emulator-5554          offline transport_id:1
192.168.1.7:41235      unauthorized transport_id:4
0123456789             no permissions (missing udev rules? user is in plugdev); see [page] usb:1-1 transport_id:5
[fe80::1%eth0]:5555    recovery product:x model:y device:z transport_id:6

"""


def test_the_listing_is_read() -> None:
    assert parse_devices(LISTING) == [
        Seen("R5CT200ABCD", "device", "SM G991B"),
        Seen("emulator-5554", "offline"),
        Seen("192.168.1.7:41235", "unauthorized"),
        Seen("0123456789", "no permissions"),
        Seen("[fe80::1%eth0]:5555", "recovery", "y"),
    ]
    assert parse_devices("") == []


@pytest.mark.parametrize(
    ("serial", "error", "what", "hint"),
    [
        ("emulator-5554", UnreachableError, "adb says offline", "reconnect"),
        ("192.168.1.7:41235", AuthenticationError, "has not allowed this computer", "tap Allow"),
        ("0123456789", UnreachableError, "adb says no permissions", "android-sdk-platform-tools-common"),
        ("[fe80::1%eth0]:5555", UnreachableError, "adb says recovery", "reboot"),
        ("nobody", UnreachableError, "adb sees no device nobody", "adb devices -l"),
        ("10.0.0.9:5555", UnreachableError, "adb sees no device", "adb connect 10.0.0.9:5555"),
    ],
)
def test_a_device_that_is_not_ready(serial: str, error: type[SlipwayError], what: str, hint: str) -> None:
    with pytest.raises(error, match=what) as caught:
        pick(parse_devices(LISTING), serial)
    assert hint in caught.value.hint and caught.value.cause


def test_the_only_device_that_is_ready_is_taken_and_none_is_said() -> None:
    assert pick(parse_devices(LISTING), "") == "R5CT200ABCD"
    with pytest.raises(UnreachableError, match=r"adb sees no device\."):
        pick([], "")


def test_a_server_that_answers_is_used_whatever_its_version(
    adb: Callable[..., AdbServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = adb({"host:version": [okay("0028")]})
    monkeypatch.setenv(PORT_VARIABLE, str(server.port))
    why = "adb itself would end a server of another version"
    monkeypatch.setattr(adb_server, "adb_program", lambda: pytest.fail(why))
    found = users_server()
    assert found and found.port == server.port
    assert server.asked == ["host:version"]
    with socket.socket() as taken:  # it does not listen, and nobody else can
        taken.bind(("127.0.0.1", 0))
        assert running_server(taken.getsockname()[1]) is None


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (okay("001f"), "version 1.0.31"),
        (b"HTTP/1.1 400", "does not answer as an adb server"),
        (b"OKAY0004zzzz", "does not answer as an adb server"),
    ],
    ids=["old", "another protocol", "nonsense"],
)
def test_a_server_that_will_not_do(adb: Callable[..., AdbServer], answer: bytes, what: str) -> None:
    with pytest.raises(HostError, match=what) as caught:
        running_server(adb({"host:version": [answer]}).port)
    assert PORT_VARIABLE in caught.value.hint


def test_a_device_that_is_appearing_is_waited_for_and_no_other(adb: Callable[..., AdbServer]) -> None:
    states = [okay("abc  offline\n"), okay("abc  authorizing\n"), okay("abc  device\n")]
    server = adb({"host:devices-l": states})
    assert attach(Server("127.0.0.1", server.port), "abc", Deadline.after(20)) == "abc"
    assert server.asked.count("host:devices-l") == 3
    server = adb({"host:devices-l": [okay("abc  offline\n")]})
    with pytest.raises(UnreachableError, match="adb says offline"):
        attach(Server("127.0.0.1", server.port), "abc", Deadline.after(1))
    assert len(server.asked) > 1
    server = adb({"host:devices-l": [okay("")]})
    with pytest.raises(UnreachableError, match="adb sees no device abc"):
        attach(Server("127.0.0.1", server.port), "abc", Deadline.after(20))
    assert server.asked == ["host:devices-l"]


def test_an_address_is_connected_first(adb: Callable[..., AdbServer]) -> None:
    where = "192.168.1.7:5555"
    lists, connected = [okay(""), okay(f"{where}  device\n")], [okay(f"connected to {where}")]
    server = adb({"host:devices-l": lists, f"host:connect:{where}": connected})
    assert attach(Server("127.0.0.1", server.port), where, Deadline.after(20)) == where
    assert server.asked == ["host:devices-l", f"host:connect:{where}", "host:devices-l"]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("failed to authenticate to 192.168.1.7:5555", AuthenticationError),
        ("failed to connect to '192.168.1.7:5555': Connection refused", UnreachableError),
    ],
)
def test_an_address_that_refuses(adb: Callable[..., AdbServer], said: str, error: type[Exception]) -> None:
    where = "192.168.1.7:5555"
    server = adb({"host:devices-l": [okay("")], f"host:connect:{where}": [okay(said)]})
    with pytest.raises(error):
        attach(Server("127.0.0.1", server.port), where, Deadline.after(1))


def test_the_shell_protocol_cut_anywhere() -> None:
    """Every way in which the stream may be torn apart gives the same output and status."""
    raw = packet(1, b"out") + packet(2, b"") + packet(2, b"err\n") + packet(1, b"put\n") + packet(3, bytes([7]))
    for cut in range(len(raw) + 1):
        here, there = socket.socketpair()
        with here, there:
            channel = AdbChannel(here, "phone", lambda: None)
            code = None
            for part in (raw[:cut], raw[cut:]):
                there.sendall(part)
                code = channel.pump(0.05) if part and code is None else code
            assert (code, bytes(channel.heard.stdout), bytes(channel.heard.stderr)) == (7, b"output\n", b"err\n"), cut


def test_input_has_an_end_and_a_stream_without_a_status_is_a_broken_connection() -> None:
    here, there = socket.socketpair()
    with here, there:
        channel = AdbChannel(here, "phone", lambda: None)
        channel.send(b"beat\n", 1)
        channel.end_input()
        assert there.recv(100) == packet(0, b"beat\n") + packet(4, b"")
    here, there = socket.socketpair()
    with here:
        channel = AdbChannel(here, "phone", lambda: None)
        there.sendall(packet(1, b"half"))
        assert channel.pump(1) is None
        there.close()
        with pytest.raises(UnreachableError, match="The connection to phone broke"):
            channel.pump(1)
        with pytest.raises(BrokenPipeError):
            channel.send(b"nobody hears it", 1)
        channel.end_input()


class Stalling(LocalChannel):
    """A command that takes half of a file, and after that its end."""

    def send(self, data: bytes, seconds: float) -> None:
        super().send(data[: len(data) // 2], seconds)
        raise TimeoutError


def test_a_file_that_was_not_taken_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    with LocalTransport() as local:
        local.put(tmp_path / "file", str(tmp_path / "whole"), lambda _: None, Deadline.after(20))
        assert (tmp_path / "whole").stat().st_size == 1000
        monkeypatch.setattr("deploy.transport.local.LocalChannel", Stalling)
        with pytest.raises(UnreachableError, match="broke"):
            local.put(tmp_path / "file", str(tmp_path / "half"), lambda _: None, Deadline.after(20))


def test_adbutils_comes_from_a_folder_of_its_own_where_it_has_no_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on 64-bit Arm."""
    names = "AdbClient = AdbConnection = object\nclass AdbError(Exception): pass\n"
    write_atomic(tmp_path / "adbutils/__init__.py", names)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(environment, "apart", lambda name: {"adb": tmp_path}[name])
    monkeypatch.setattr(sys, "path", [name for name in sys.path if "site-packages" not in name])
    monkeypatch.delitem(sys.modules, "adbutils")
    monkeypatch.delitem(sys.modules, "deploy.transport.adb.library")
    library = importlib.import_module("deploy.transport.adb.library")
    assert sys.modules["adbutils"].__file__ == str(tmp_path / "adbutils/__init__.py")
    assert library.AdbClient is object


def key_of(seed: int) -> paramiko.PKey:
    """An Ed25519 public key; any 32 bytes are one to those who only compare."""
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", bytes([seed]) * 32))
    return paramiko.PKey.from_type_string("ssh-ed25519", blob)


A, B, C = (key_of(seed) for seed in (1, 2, 3))


def line(names: str, key: paramiko.PKey = A, marker: str = "") -> str:
    return f"{marker} {names} ssh-ed25519 {key.get_base64()}".strip()


def hashed(host: str) -> str:
    salt = b"0123456789abcdefghij"
    parts = (base64.b64encode(each).decode() for each in (salt, hmac.new(salt, host.encode(), hashlib.sha1).digest()))
    return "|1|" + "|".join(parts)


CASES = [
    ("pi", "pi", True), ("pi", "pi2", False), ("pi", "PI", True), ("Pi", "pi", True), ("a,pi,b", "pi", True),
    ("*", "pi", True), ("p?", "pi", True), ("p?", "p", False), ("*.lab", "pi.lab", True), ("*.lab", "pi.lab.x", False),
    ("*,!pi", "pi", False), ("*,!pi", "po", True), ("!pi,*", "pi", False), ("!pi", "po", False),
    ("!p*,pi", "pi", False),
    ("[pi]:2222", "[pi]:2222", True), ("pi", "[pi]:2222", False), ("[pi]:2222", "pi", False),
    ("[*]:2222", "[pi]:2222", True),
    ("[pi]:*", "[pi]:2222", True), ("p[ij]", "pi", False), ("p[ij]", "p[ij]", True), ("10.0.0.*", "10.0.0.7", True),
    ("10.0.0.*,!10.0.0.7", "10.0.0.7", False), ("fe80::1", "fe80::1", True), ("p.", "pi", False), ("", "pi", False),
    (hashed("pi"), "pi", True), (hashed("pi"), "PI", True), (hashed("pi"), "po", False), (hashed("[pi]:22"),
    "pi", False),
    (hashed("[pi]:2222"), "[pi]:2222", True), ("|1|x|y", "pi", False), ("|2|a|b", "pi", False), ("|1|", "pi", False),
]  # fmt: skip


@pytest.mark.parametrize(("names", "record", "fits"), CASES)
def test_whom_a_line_is_for(names: str, record: str, fits: bool, tmp_path: Path) -> None:
    """By the table; and, where OpenSSH is installed, by its own word."""
    file = tmp_path / "known_hosts"
    file.write_text(line(names) + "\n")
    assert bool(ssh_known.read([file], record).keys) is fits
    if names and shutil.which("ssh-keygen"):
        assert openssh(file, record) is fits


def openssh(file: Path, record: str) -> bool:
    # ssh makes the name small before it looks; ssh-keygen leaves that to its caller.
    said = ran(["ssh-keygen", "-F", record.lower(), "-f", file]).stdout
    return any(text and not text.startswith("#") for text in said.splitlines())


def test_marks(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(
        "\n".join(
            [
                "# pi ssh-ed25519 " + C.get_base64(), line("pi"), line("pi", B), line("pi", C, "@cert-authority"),
                line("*", B, "@revoked"), line("other", A, "@revoked"), line("pi", C, "@unknown"),
                "pi", "@revoked", "@", "",
                "pi ssh-ed25519 AAAA", f"pi ssh-rsa {C.get_base64()}", f"pi ssh-ed25519 {C.get_base64()}!", "\x00\xff",
            ]
        ),
        encoding="latin-1",
    )  # fmt: skip
    known = ssh_known.read([file, tmp_path / "none"], "pi")
    assert known.keys == (A,)
    assert known.revoked == frozenset([B.get_base64()])
    assert (known.trusts(A), known.trusts(B), known.trusts(C)) == (True, False, False)
    assert (known.revokes(A), known.revokes(B), known.kinds) == (False, True, ("ssh-ed25519",))
    assert ssh_known.read([file], "other").revokes(A)
    file.write_text(line("pi") + "\n" + line("pi", B) + "\n")
    assert ssh_known.read([file], "pi").keys == (A, B)


def test_what_replacing_leaves() -> None:
    """Other hosts keep what they had, whatever stood for both; marks stay."""
    before = [
        "# mine", line("pi"), line("pi,po", B), line("*.lab,pi", B), line("*", B), line(hashed("pi"), B), line("po"),
        line("pi", C, "@revoked"), line("*", C, "@cert-authority"), "a damaged line", "",
    ]  # fmt: skip
    new = line("pi", C)
    after = ssh_known.replaced(before, "pi", new)
    assert after == [
        "# mine", line("pi,po,!pi", B), line("*.lab,pi,!pi", B), line("*,!pi", B), line("po"),
        line("pi", C, "@revoked"), line("*", C, "@cert-authority"), "a damaged line", "", new,
    ]  # fmt: skip

    def those(lines: list[str], host: str) -> list[str]:
        return [text for text in lines if (one := Line.parse(text)) and one.fits(host)]

    for host in ("po", "x.lab", "y"):
        assert len(those(before, host)) == len(those(after, host)), host
    assert [text for text in those(after, "pi") if not text.startswith("@")] == [new]


@pytest.fixture
def transport() -> Iterator[AuthTransport]:
    ours, theirs = socket.socketpair()
    made = AuthTransport(ours)
    yield made
    made.close()
    ours.close()
    theirs.close()


@pytest.mark.parametrize("error", [InvalidTag(), struct.error("unpack"), IndexError("no byte"), ValueError("b")])
def test_an_error_of_another_class_is_a_lost_connection(transport: AuthTransport, error: Exception) -> None:
    transport.saved_exception = error  # as its reading thread does
    found = transport.get_exception()
    assert isinstance(found, LOST)
    assert type(error).__name__ in str(found)
    assert transport.get_exception() is None
