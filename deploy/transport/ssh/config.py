"""A host's address, as the user's own ``~/.ssh/config`` has it; `deploy.run.connect` adds the inventory's values.

OpenSSH's names are followed: HostName, Port, User, IdentityFile, IdentitiesOnly, HostKeyAlias, UserKnownHostsFile,
ProxyJump, ProxyCommand, Compression, ConnectTimeout, Include.
"""

from __future__ import annotations

import getpass
import glob
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paramiko

from core.errors import ConfigError
from deploy.transport.hearing import natural
from deploy.transport.ssh.spelled import FORM, Spelled, spelled

_DEEP = 8
"""Files within files, and jumps behind jumps, that are followed."""
SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")


@dataclass(frozen=True)
class Address:
    """Everything needed to log in."""

    device: str
    host: str
    port: int
    user: str
    key: Path | None
    known_hosts: tuple[Path, ...]
    """Files of known hosts, never empty; new keys go into the first."""
    listed: bool = True
    """Whether the inventory has the device, so that its name may be typed."""
    virtual: str = ""
    key_given: bool = False
    """Whether the inventory names ``key``: then it must be usable."""
    keys: tuple[Path, ...] = ()
    """Further private keys to offer."""
    only_these: bool = False
    """Offer only ``key`` and ``keys`` (of the agent's keys only these)."""
    alias: str = ""
    """Name under which known_hosts keeps the host key, instead of host and port."""
    jump: Address | None = None
    proxy_command: str = ""
    compress: bool = False
    connect_seconds: float = 15.0

    def __str__(self) -> str:
        return str(Spelled(self.host, self.user, self.port if self.port != 22 else 0))

    @property
    def record(self) -> str:
        """The name under which known_hosts files keep the key."""
        return self.alias or (self.host if self.port == 22 else f"[{self.host}]:{self.port}")

    def command(self) -> str:
        """The ssh command that connects in the same way."""
        port = f" -p {self.port}" if self.port != 22 else ""
        jump = f" -J {self.jump}" if self.jump else ""
        return f"ssh{port}{jump} {self.user}@{self.host}"


def configured(
    device: str, host: str, user: str = "", port: int = 0, jump: str = "", *, listed: bool = True
) -> Address:
    """The address of ``host``, at which the device called ``device`` is reached; what is given wins.

    The hosts to go through are spelled as in ProxyJump.

    Raises:
        ConfigError: the file cannot be read, or its jumps go in circles.
    """
    config = user_config()
    found = _look_up(config, device, host, user, port, 0, listed)
    return replace(found, jump=_jumps(config, device, jump, 0, listed), proxy_command="") if jump else found


def _look_up(
    config: paramiko.SSHConfig, device: str, name: str, user: str, port: int, depth: int, listed: bool
) -> Address:
    if depth > _DEEP:
        raise ConfigError(
            f"{device}: ProxyJump goes through more than {_DEEP} hosts.",
            "the jumps of ~/.ssh/config go in circles",
            "correct ProxyJump there",
        )
    try:
        words: dict[str, Any] = dict(config.lookup(name))
        known = _split("UserKnownHostsFile", words.get("userknownhostsfile", ""))
        port = port or _number("Port", words.get("port"), 22, 65535)
        seconds = _number("ConnectTimeout", words.get("connecttimeout"), 15, 86400)
    except Exception as error:  # of paramiko, socket, shlex or int, depending on the file
        raise ConfigError(f"~/.ssh/config cannot be applied to {name}.", str(error), _HINT) from error
    keys = [file for file in map(Path, words.get("identityfile", [])) if file.is_file()]
    jump, command = str(words.get("proxyjump", "")), str(words.get("proxycommand", ""))
    via = _jumps(config, device, jump, depth, listed) if jump and jump.lower() != "none" else None
    return Address(
        device,
        str(words.get("hostname", name)),
        port,
        user or str(words.get("user", "")) or getpass.getuser(),
        keys[0] if keys else None,
        (*(Path(file).expanduser() for file in known or ["~/.ssh/known_hosts"]), SYSTEM_KNOWN_HOSTS),
        listed=listed,
        keys=tuple(keys[1:]),
        only_these=str(words.get("identitiesonly", "no")).lower() == "yes",
        alias=str(words.get("hostkeyalias", "")),
        jump=via,
        proxy_command="" if via or command.lower() == "none" else command,
        compress=str(words.get("compression", "no")).lower() == "yes",
        connect_seconds=float(seconds),
    )


def _jumps(config: paramiko.SSHConfig, device: str, text: str, depth: int, listed: bool) -> Address:
    """``[user@]host[:port]`` once or more, separated by commas; the last is the nearest to the device."""
    via: Address | None = None
    for part in text.split(","):
        try:
            at = spelled(part.strip())
        except ValueError as error:
            raise ConfigError(
                f"{device}: {text!r} is not a host to go through (ProxyJump, jump or LG_PROXY).", str(error), FORM
            ) from None
        found = _look_up(config, device, at.host, at.user, at.port, depth + 1, listed)
        via = replace(found, jump=via) if via else found
    assert via is not None  # noqa: S101 - split gives one part at least
    return via


_HINT = "correct ~/.ssh/config, or give host and user in devices.toml"


def _split(key: str, value: object) -> list[str]:
    """Words as a shell has them.

    Raises:
        ValueError: a quote is not closed.
    """
    try:
        return shlex.split(str(value))
    except ValueError as error:
        raise ValueError(f"{key}: {error}: {value}") from error


def _number(key: str, value: object, default: int, most: int) -> int:
    """A number from 1 to ``most``; ``default`` when there is none.

    Raises:
        ValueError: it is something else; ssh refuses it, too.
    """
    text = str(value or "")
    if not text or (key == "ConnectTimeout" and text.lower() == "none"):
        return default
    number = natural(text, most)
    if not number:
        raise ValueError(f"{key} is {text!r}, not a whole number from 1 to {most}")
    return number


def user_config() -> paramiko.SSHConfig:
    """The user's ``~/.ssh/config`` with the files that it includes; empty when there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    file = Path("~/.ssh/config").expanduser()
    config = paramiko.SSHConfig()
    if not file.is_file():
        return config
    try:
        config.parse(io.StringIO("\n".join(_lines(file, file.parent, 0)) + "\n"))
    except (OSError, paramiko.ConfigParseError, ValueError) as error:  # shlex and decoding raise the last
        raise ConfigError(f"{file} cannot be read.", str(error), _HINT) from error
    return config


def _lines(file: Path, base: Path, depth: int) -> Iterator[str]:
    """The lines of ``file``, those of included files in place of their Include, as ssh_config(5) has it."""
    for line in file.read_text(encoding="utf-8").splitlines():
        match = re.match(r"\s*include(?:\s+|\s*=\s*)(.+)", line, re.IGNORECASE)
        if match is None:
            yield line
            continue
        for pattern in _split("Include", match[1]) if depth < _DEEP else []:
            for name in sorted(glob.glob(str(base / Path(pattern).expanduser()))):  # noqa: PTH207 - may be absolute
                if Path(name).is_file():
                    yield from _lines(Path(name), base, depth + 1)
