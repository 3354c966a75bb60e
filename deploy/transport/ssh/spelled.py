"""How an address over SSH is spelled, in every command and file: ``[user@]host[:port]``, as OpenSSH has it.

The host is a name, an alias of ``~/.ssh/config`` or a number; with a port, an IPv6 address stands in brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\\@-]*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

FORM = "USER@HOST, USER@HOST:PORT or USER@[IPV6]:PORT"


@dataclass(frozen=True)
class Spelled:
    """What was understood."""

    host: str
    """Without brackets."""
    user: str = ""
    port: int = 0
    """0: none was given."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (f"{self.user}@" if self.user else "") + host + (f":{self.port}" if self.port else "")

    @property
    def bare(self) -> bool:
        """Whether it may as well be some other name: of a device of the inventory."""
        return not (self.user or self.port or "." in self.host or ":" in self.host)


def spelled(text: str) -> Spelled:
    """Read an address.

    Raises:
        ValueError: it is none; says what was understood.
    """
    user, at, rest = text.removeprefix("ssh://").rpartition("@")
    if at and not _USER.fullmatch(user):
        raise ValueError(f"{user!r} before the @ is no user")
    if rest.count(":") > 1 and not rest.startswith("["):
        return Spelled(_alone(rest), user)
    match = re.fullmatch(r"(\[(?P<inside>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(:(?P<port>.*))?", rest)
    host = (match["inside"] or match["name"] or "") if match else rest
    if match is None or not (_NAME.fullmatch(host) or (match["inside"] and _is_ipv6(host))):
        raise ValueError(f"{host!r} is no host")
    port = match["port"]
    if port is None:
        return Spelled(host, user)
    if not _is_port(port):
        raise ValueError(f"the host would be {host}, and {port!r} is no port")
    return Spelled(host, user, int(port))


def _alone(text: str) -> str:
    """An IPv6 address without brackets, which then has no port."""
    head, _, tail = text.rpartition(":")
    if _is_port(tail) and _is_ipv6(head):
        other = f", and [{text}] for that address" if _is_ipv6(text) else ""
        raise ValueError(f"{text} needs brackets: [{head}]:{tail} for port {tail}{other}")
    if not _is_ipv6(text):
        raise ValueError(f"{text!r} is no IPv6 address")
    return text


def _is_port(text: str) -> bool:
    return re.fullmatch("[0-9]{1,5}", text) is not None and 0 < int(text) < 65536


def _is_ipv6(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return re.fullmatch("[0-9A-Za-z:.%_-]+", text) is not None
