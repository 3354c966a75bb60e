"""Private keys in files: which are there, which need a passphrase, and which others may read.

OpenSSH refuses a user's key that others may read or write (sshkey_perm_ok in its authfile.c); so does this module.
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

    As in OpenSSH, only the user's own files are checked: for files of others the system decides.
    """
    try:
        info = file.stat()
    except OSError:
        return ""
    if info.st_uid != os.getuid() or not info.st_mode & 0o077:
        return ""
    return f"its mode is {info.st_mode & 0o7777:04o}: others than its owner may read or write it"


def defaults() -> list[Path]:
    """The user's own key files, which are offered by default."""
    return [file for file in (Path(f"~/.ssh/id_{kind}").expanduser() for kind in _DEFAULTS) if file.is_file()]


def load(file: Path, device: str) -> paramiko.PKey | None:
    """The private key that ``device`` names; ``None`` when it needs a passphrase.

    Raises:
        ConfigError: missing, not a private key, or readable by others.
    """
    if why := exposed(file):
        raise ConfigError(f"{device}: the private key {file} is not used.", why, f"chmod 600 {file}")
    try:
        return paramiko.PKey.from_path(file)
    except FileNotFoundError as error:
        raise ConfigError(f"{device}: there is no key file {file}.", "", "correct key = in devices.toml") from error
    except (OSError, ValueError, TypeError, paramiko.SSHException) as error:
        if _means_locked(error):
            return None  # the agent may hold it unlocked; if not, the user is prompted for its passphrase
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
    secret: Any = phrase.encode()  # paramiko passes it on and needs bytes, although its annotation says otherwise
    return paramiko.PKey.from_path(file, secret)


def _means_locked(error: Exception) -> bool:
    return isinstance(error, (TypeError, paramiko.PasswordRequiredException)) or "password" in str(error).lower()
