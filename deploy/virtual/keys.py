"""Ed25519 keys in OpenSSH's format, made here: no ssh-keygen needed."""

from __future__ import annotations

from pathlib import Path

from deploy.virtual.state import Folder


def ensure_key(folder: Folder, file: Path) -> str:
    """Make the private key ``file`` if it is not there; its public half as ``ssh-ed25519 AAAA...``."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_ssh_private_key,
    )

    try:
        key = load_ssh_private_key(file.read_bytes(), None)
    except (OSError, ValueError):
        key = Ed25519PrivateKey.generate()
        folder.private(file, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode())
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
