"""Private keys in files: which are there, which need a passphrase, and which others may read.

OpenSSH refuses a user's key that others may read or write (sshkey_perm_ok in its authfile.c); so does this module.

Passwords and passphrases come from the user's keyring or a prompt, never from a command line, a file or a variable.
They are handed to the SSH library and forgotten; no message, log or result ever holds one.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
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


SERVICE = "slipway-ssh"
"""The keyring's service name: ``keyring set slipway-ssh pi@raspberrypi.local``."""


def secret(account: str, prompt: str) -> str | None:
    """The secret of ``account``: from the keyring if the package ``keyring`` is installed, else from a prompt.

    The prompt is the program that ``SSH_ASKPASS`` names, or the terminal. ``None`` if there is neither.
    """
    return from_keyring(account) or _from_askpass(prompt) or _from_terminal(prompt)


def from_keyring(account: str) -> str | None:
    """What the keyring holds for ``account``; ``None`` without keyring, or when it is locked."""
    if importlib.util.find_spec("keyring") is None:
        return None
    try:
        found = importlib.import_module("keyring").get_password(SERVICE, account)
    except Exception:  # noqa: BLE001 - every backend has errors of its own; after any of them the user is prompted
        return None
    return str(found) if found else None


def _from_askpass(prompt: str) -> str | None:
    """Prompt without a terminal as OpenSSH does: a program shows the prompt and prints the answer."""
    program = os.environ.get("SSH_ASKPASS")
    if not program or (sys.stdin.isatty() and os.environ.get("SSH_ASKPASS_REQUIRE") not in {"force", "prefer"}):
        return None
    try:
        done = subprocess.run([program, prompt], stdout=subprocess.PIPE, check=False, timeout=300)
    except (OSError, subprocess.SubprocessError):
        return None
    answer = done.stdout.decode(errors="replace").rstrip("\r\n")
    return answer if done.returncode == 0 and answer else None


def _from_terminal(prompt: str) -> str | None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import getpass

    return getpass.getpass(f"{prompt} ", stream=sys.stderr) or None
