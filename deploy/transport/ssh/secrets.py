"""Passwords and passphrases: from the user's keyring or a prompt, never from a command line, a file or a variable.

They are handed to the SSH library and forgotten; no message, log or result ever holds one.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys

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
