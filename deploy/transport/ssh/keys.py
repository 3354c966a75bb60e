"""Private keys in files: which are there, which need a passphrase, and which others may read.

OpenSSH does not use a key of the user's own that anybody else may read or write (sshkey_perm_ok in its authfile.c);
neither is one used here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import paramiko

from core.errors import ConfigError

_DEFAULTS = ("rsa", "ecdsa", "ed25519")
"""``~/.ssh/id_…`` in the order in which paramiko offers them."""


def exposed(file: Path) -> str:
    """Why a private key must not be used; empty when it may be.

    As OpenSSH has it, only files of the user's own count: whose another's are, the system decides.
    """
    try:
        info = file.stat()
    except OSError:
        return ""
    if info.st_uid != os.getuid() or not info.st_mode & 0o077:
        return ""
    return f"its mode is {info.st_mode & 0o7777:04o}: others than its owner may read or write it"


def defaults() -> list[Path]:
    """The user's own key files that are offered where nothing else is said."""
    return [file for file in (Path(f"~/.ssh/id_{kind}").expanduser() for kind in _DEFAULTS) if file.is_file()]


def load(file: Path, device: str) -> paramiko.PKey | None:
    """The private key that ``device`` names; ``None`` when it needs a passphrase.

    Raises:
        ConfigError: not there, no private key, or open to others.
    """
    if why := exposed(file):
        raise ConfigError(f"{device}: the private key {file} is not used.", why, f"chmod 600 {file}")
    try:
        return paramiko.PKey.from_path(file)
    except FileNotFoundError as error:
        raise ConfigError(f"{device}: there is no key file {file}.", "", "correct key = in devices.toml") from error
    except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
        if _means_locked(error):
            return None  # the agent may hold it open; if not, its passphrase is asked for
        raise ConfigError(
            f"{device}: {file} is not a private key.", str(error), "correct key = in devices.toml"
        ) from error


def is_locked(file: Path) -> bool:
    """Whether the private key needs a passphrase."""
    try:
        paramiko.PKey.from_path(file)
    except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
        return _means_locked(error)
    return False


def unlocked(file: Path, phrase: str) -> paramiko.PKey:
    """The private key, opened.

    Raises:
        paramiko.SSHException, ValueError, TypeError, OSError: that is not its passphrase.
    """
    secret: Any = phrase.encode()  # what paramiko hands on must be bytes, whatever its annotation says
    return paramiko.PKey.from_path(file, secret)


def _means_locked(error: Exception) -> bool:
    return isinstance(error, (TypeError, paramiko.PasswordRequiredException)) or "password" in str(error).lower()
