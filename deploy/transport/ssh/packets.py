"""Limits on paramiko's packets, which bound the memory that the other side can make this machine use.

paramiko reads a packet of any announced length (up to 4 GiB), an endless greeting and data beyond the window that it
granted, and it lets a small packet unpack to a large one. Until the host key is verified, the other side may be anyone
on the network.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.channel import Channel
from paramiko.common import MSG_CHANNEL_DATA, MSG_CHANNEL_EXTENDED_DATA
from paramiko.packet import Packetizer

PACKET = 1 << 20
"""Bytes of a packet, packed or not. RFC 4253 (6.1) asks for 35,000; OpenSSH stops at 256 KiB."""
GREETING = 64 << 10
"""Bytes of all lines before the first packet. RFC 4253 (4.2) has 255 in a line, and some lines."""


class LimitedPacketizer(Packetizer):
    """See this module's head."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self._greeting = 0

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Called by paramiko with the length that the packet's head gives."""
        if not 0 <= n <= PACKET:
            raise paramiko.SSHException(f"a packet is said to have {n:,} bytes; {PACKET:,} are read")
        found: bytes = super().read_all(n, check_rekey)
        return found

    def _read_timeout(self, timeout: float) -> bytes:
        """Called by paramiko for the greeting's lines."""
        found: bytes = super()._read_timeout(timeout)  # type: ignore[misc]
        self._greeting += len(found)
        if self._greeting > GREETING:
            raise paramiko.SSHException(f"its greeting has more than {GREETING:,} bytes")
        return found

    def set_inbound_compressor(self, compressor: Any) -> None:  # noqa: ARG002 - ours replaces it
        """Called by paramiko when compression was agreed upon."""
        super().set_inbound_compressor(_Inflate())  # type: ignore[arg-type] # called as paramiko's is


class _Inflate:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj()

    def __call__(self, data: bytes) -> bytes:
        try:
            found = self._stream.decompress(data, PACKET)
        except zlib.error as error:
            raise paramiko.SSHException(f"a packet cannot be unpacked: {error}") from error
        if self._stream.unconsumed_tail:
            raise paramiko.SSHException(f"a packet unpacks to more than {PACKET:,} bytes")
        return found


def _within_window(handler: Callable[[Channel, paramiko.Message], None]) -> Callable[[Channel, Any], None]:
    """``handler`` for data that the window allows; RFC 4254 (5.2) lets the rest be ignored, here it ends all."""

    def take(channel: Channel, message: paramiko.Message) -> None:
        waiting = len(channel.in_buffer) + len(channel.in_stderr_buffer)
        if waiting + len(message.asbytes()) > channel.in_window_size + PACKET:
            raise paramiko.SSHException("it sends more than the window that it was given")
        handler(channel, message)

    return take


CHANNEL_HANDLERS: dict[int, Callable[[Channel, Any], None]] = {
    MSG_CHANNEL_DATA: _within_window(Channel._feed),  # type: ignore[attr-defined]
    MSG_CHANNEL_EXTENDED_DATA: _within_window(Channel._feed_extended),  # type: ignore[attr-defined]
}
"""Replaces paramiko's own."""
