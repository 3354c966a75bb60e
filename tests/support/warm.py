"""Commands that export as a user's do: by an exporter that waits in memory. It ends when the tests that use it have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from models.warm import client


@contextmanager
def warm() -> Iterator[dict[str, str]]:
    """Variables for the commands of the block; each would take seconds to load the exporter by itself."""
    try:
        yield {"SLIPWAY_WARM": "yes"}
    finally:
        for socket in client.home().glob(f"*/{client.SOCKET}"):
            socket.unlink(missing_ok=True)  # without it an exporter ends, see test_warm.py
