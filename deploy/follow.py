"""Let the device compute a large file's SHA-256 while the file still arrives, not afterwards.

A command on the device reads the growing file piece by piece, each when this side says that it is there. What it reads
is what was stored, so its digest proves as much as one computed at the end. Should it not be the right one, or should
anything go wrong with it, the digest is computed at the end as for small files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from core.errors import SlipwayError
from deploy.deadline import Deadline
from deploy.transport import Channel, Transport

FROM = 16 << 20
"""Bytes from which on it is worth a command of its own."""
PIECE = 4 << 20
BEHIND = 4 << 20
"""Bytes that were sent and may not be stored yet: OpenSSH's server takes 2 MiB ahead of what it handed on
(CHAN_SES_WINDOW_DEFAULT in its channels.h)."""
_BLOCK = 1 << 20

# $1 the file; each line of the input is a piece: its first block and how many there are.
# Some toyboxes have no dd, but a head that takes no more from its input than it gives.
SCRIPT = f"""\
pieces() {{
  opened=
  while read -r first count; do
    if command -v dd >/dev/null 2>&1; then dd if="$1" bs={_BLOCK} skip="$first" count="$count" 2>/dev/null || return 1
    else
      [ -n "$opened" ] || exec 4<"$1"
      opened=yes
      head -c "$((count * {_BLOCK}))" <&4 || return 1
    fi
  done
}}
if command -v sha256sum >/dev/null 2>&1; then pieces "$1" | sha256sum
elif command -v openssl >/dev/null 2>&1; then pieces "$1" | openssl dgst -sha256
else exit 1; fi
"""


class Follower:
    """Follows one upload; `moved` is told of its progress, `digest` is asked at its end."""

    def __init__(self, channel: Channel | None, sent: int) -> None:
        self._channel = channel
        self._sent, self._told = sent, 0

    def moved(self, count: int) -> None:
        """So many more bytes were sent."""
        self._sent += count
        if self._sent - BEHIND - self._told >= PIECE:
            self._tell((self._sent - BEHIND) // _BLOCK * _BLOCK)

    def digest(self, deadline: Deadline) -> str:
        """SHA-256 of all that was stored, as the device computed it; empty when it did not."""
        channel = self._channel
        if channel is None:
            return ""
        try:
            self._tell(-(-self._sent // _BLOCK) * _BLOCK)
            channel.end_input()
            code = None
            while code is None and not deadline.over:
                code = channel.pump(deadline.left(0.5))
        except SlipwayError:
            return ""
        found = re.search(rb"\b[0-9a-f]{64}\b", channel.stdout)
        return found[0].decode() if found and code == 0 else ""

    def _tell(self, until: int) -> None:
        if self._channel is not None and until > self._told:
            self._channel.send(b"%d %d\n" % (self._told // _BLOCK, (until - self._told) // _BLOCK))
            self._told = until


@contextlib.contextmanager
def following(transport: Transport, remote: str, size: int, offset: int, deadline: Deadline) -> Iterator[Follower]:
    """Follow the upload of ``size`` bytes to ``remote``, of which ``offset`` are there; small ones are not."""
    channel: Channel | None = None
    if size >= FROM:
        with contextlib.suppress(SlipwayError):
            channel = transport.start(["sh", "-c", SCRIPT, "slipway", remote], deadline)
    try:
        yield Follower(channel, offset)
    finally:
        if channel is not None:
            channel.close()
