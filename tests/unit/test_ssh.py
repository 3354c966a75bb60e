"""Known hosts as OpenSSH reads them, what replacing a key leaves, and what ends paramiko's reading thread."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from cryptography.exceptions import InvalidTag

from deploy.transport.ssh import keys as ssh_known
from deploy.transport.ssh.auth import AuthTransport
from deploy.transport.ssh.keys import Line
from deploy.transport.ssh.sessions import LOST


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
    # ssh makes the name small before it looks; ssh-keygen leaves that to whoever calls it.
    done = subprocess.run(
        ["ssh-keygen", "-F", record.lower(), "-f", str(file)], capture_output=True, text=True, check=False
    )
    return any(text and not text.startswith("#") for text in done.stdout.splitlines())


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
    file = tmp_path / "known_hosts"
    file.write_text(line("pi") + "\n" + line("pi", B) + "\n")
    known = ssh_known.read([file], "pi")
    assert known.trusts(A)
    assert known.trusts(B)


def test_what_replacing_leaves() -> None:
    """Other hosts keep what they had, whatever stood for both; marks stay."""
    before = [
        "# mine", line("pi"), line("pi,po", B), line("*.lab,pi", B), line("*", B), line(hashed("pi"), B), line("po"),
        line("pi", C, "@revoked"), line("*", C, "@cert-authority"), "a damaged line", "",
    ]  # fmt: skip
    new = line("pi", C)
    after = ssh_known.replaced(before, "pi", new)
    assert after == [
        "# mine", line("po", B), line("*.lab", B), line("*,!pi", B), line("po"), line("pi", C, "@revoked"),
        line("*", C, "@cert-authority"), "a damaged line", "", new,
    ]  # fmt: skip
    for host in ("po", "x.lab", "y"):
        old, now = (
            [text for text in lines if (found := Line.parse(text)) and found.fits(host)] for lines in (before, after)
        )
        assert len(old) == len(now), host
    lines = [found for text in after if (found := Line.parse(text)) is not None]
    assert [found.text for found in lines if found.fits("pi") and not found.marker] == [new]


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
