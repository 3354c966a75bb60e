"""A phone that means harm, behind a server that speaks adb's protocol: our own transport against its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core import console
from core.errors import AnswerError, DeviceFullError, SlipwayError, TransferError, UnreachableError
from deploy.transport.adb.server import Server, listed
from deploy.transport.adb.transport import AdbTransport
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import MARK
from tests.support.adb import AdbServer, Speak, adb, okay, packet
from tests.support.processes import for_ever, peak

__all__ = ["adb"]

Phone = Callable[..., tuple[AdbTransport, AdbServer]]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real device may be slow to end what ran; this one never does, and keeps a processor busy meanwhile."""
    monkeypatch.setattr("deploy.transport.base._SLOW", 1.0)


@pytest.fixture
def phone(adb: Callable[..., AdbServer]) -> Phone:
    def start(speak: Speak = lambda _: None, host: bytes = b"") -> tuple[AdbTransport, AdbServer]:
        server = adb(other=host, speak=speak)
        return AdbTransport(Server("127.0.0.1", server.port), "abc", "phone"), server

    return start


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize(("mark", "most"), [(MARK, "64 MiB"), (b"", "64 KiB while logging in")])
def test_output_without_end(phone: Phone, stream: int, mark: bytes, most: str) -> None:
    transport, server = phone(for_ever(packet(stream, bytes(1 << 20)), first=packet(stream, mark)))
    before = peak()
    with pytest.raises(AnswerError, match=f"printed more than {most}"):
        run(transport, ["yes"], deadline=Deadline.after(60))
    assert peak() - before < 200 << 20
    assert server.ended.wait(10), "the stream was left open"


@pytest.mark.parametrize("head", [b"\x01\xff\xff\xff\xff", b"\x02\x00\x00\x00\x40", b"\x7f\x01\x00\x00\x00"])
def test_packets_that_are_none(phone: Phone, head: bytes) -> None:
    transport, _server = phone(for_ever(bytes(1 << 20), first=head))
    before = peak()
    with pytest.raises(AnswerError, match="shell protocol"):
        run(transport, ["yes"], deadline=Deadline.after(30))
    assert peak() - before < 100 << 20


def test_a_refused_file(phone: Phone, tmp_path: Path) -> None:
    """A full disk has its own error; and a stream that ends without a word is a broken connection."""

    def refuse(said: bytes) -> Speak:
        return lambda peer: peer.sendall(packet(1, MARK) + packet(2, MARK + said) + packet(3, b"\x01"))

    (tmp_path / "file").write_bytes(b"x" * 300_000)
    tries: list[tuple[Speak, type[SlipwayError]]] = [
        (refuse(b"can't create /x: Permission denied"), TransferError), (lambda peer: peer.close(), UnreachableError),
        (refuse(b"cat: write: No space left on device"), DeviceFullError),
    ]  # fmt: skip
    for speak, error in tries:
        with pytest.raises(error):
            phone(speak)[0].put(tmp_path / "file", "/x", lambda _: None, Deadline.after(10))


HOSTS = [
    b"OKAYzzzz", b"OKAY-001", b"OKAY0004\xff\xfe\xfd\xfc", b"FAILzzzz", b"FAIL0004\xff\xff\xff\xff", b"WHAT", b"",
    b"OKAYffffx",
]  # fmt: skip


@pytest.mark.parametrize("said", HOSTS)
def test_a_server_that_answers_nonsense(phone: Phone, said: bytes) -> None:
    transport, server = phone(host=said)
    with pytest.raises(SlipwayError):
        assert listed(Server("127.0.0.1", server.port), 2) == [], "a list of nobody"
        raise UnreachableError("an empty list is an answer")
    with pytest.raises(SlipwayError):
        transport.require_shell(Deadline.after(2))


def test_what_a_phone_is_called(phone: Phone, capfd: pytest.CaptureFixture[str]) -> None:
    """A serial and a model with control sequences: listed, and only shown."""
    text = "a\x1b[2J\x9b1m  device model:\x1b]0;x\x07\u202e\n"
    _transport, server = phone(host=okay(text))
    (seen,) = listed(Server("127.0.0.1", server.port))
    console.table("Devices", ["serial", "what"], [[seen.serial, seen.model]])
    console.print_json({"serial": seen.serial, "model": seen.model})
    shown = capfd.readouterr().out
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert r"a\x1b[2J\x9b1m" in shown
