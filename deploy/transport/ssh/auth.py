"""paramiko's transport that asks once for the service which checks keys and passwords, as RFC 4252 has it.

The classic one asks before each attempt, and strict servers hang up then. The newer one of paramiko 5.1 loses answers
that come early, waits for ever if the connection ends, and has a broken `auth_none`; this module corrects these three.
An error of any class in its reading thread, such as cryptography's ``InvalidTag`` after a changed byte, reaches the
caller as paramiko's own.

Its packets have limits, which bound the memory that the other side can make this machine use: paramiko reads a packet
of any announced length (up to 4 GiB) and an endless greeting. Until the host key is verified, the other side may be
anyone on the network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.common import cMSG_SERVICE_REQUEST, cMSG_USERAUTH_REQUEST
from paramiko.packet import Packetizer
from paramiko.transport import ServiceRequestingTransport

from deploy.transport.base import interrupted_after

PACKET = 1 << 20
"""Bytes of a packet. RFC 4253 (6.1) asks for 35,000; OpenSSH stops at 256 KiB."""
GREETING = 64 << 10
"""Bytes of all lines before the first packet. RFC 4253 (4.2) has 255 in a line, and some lines."""


class _LimitedPacketizer(Packetizer):
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


class _Handler(AuthOnlyHandler):
    def send_auth_request(
        self, username: str, method: str, finish_message: Callable[[paramiko.Message], object] | None = None
    ) -> Any:
        self.auth_method = method
        self.username = username
        message = paramiko.Message()
        message.add_byte(cMSG_USERAUTH_REQUEST)
        for word in (username, "ssh-connection", method):
            message.add_string(word)
        if finish_message is not None:
            finish_message(message)
        self.auth_event = threading.Event()  # before sending: the answer may be here at once
        with self.transport.lock:
            self.transport._send_message(message)  # type: ignore[attr-defined]
        return self.wait_for_response(self.auth_event)


class AuthTransport(ServiceRequestingTransport):
    """See this module's head; `_LimitedPacketizer` has the limits."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._accepted = threading.Event()
        super().__init__(*args, **{**options, "packetizer_class": _LimitedPacketizer})

    def _send_message(self, data: paramiko.Message) -> None:
        """Called by paramiko. Ctrl-C waits for the packet's end.

        Between a packet's encryption and its sending it would leave the two sides' ciphers apart, and with them no way
        to clean up over this connection.
        """
        with interrupted_after():
            super()._send_message(data)  # type: ignore[misc] # not in the annotations

    def get_exception(self) -> Exception | None:
        """What ended the connection, in a class that `deploy.transport.ssh.connect.LOST` has."""
        error: Exception | None = super().get_exception()
        if error is None or isinstance(error, (paramiko.SSHException, OSError, EOFError)):
            return error
        found = paramiko.SSHException(f"what it sends cannot be read: {type(error).__name__} {error}".rstrip())
        found.__cause__ = error
        return found

    def get_auth_handler(self) -> AuthOnlyHandler:
        """Called by paramiko."""
        return _Handler(self)

    def _parse_service_accept(self, message: paramiko.Message) -> None:
        super()._parse_service_accept(message)  # type: ignore[misc] # not in the annotations
        self._accepted.set()

    def ensure_session(self) -> None:
        """Ask for the service unless it was granted before.

        Raises:
            paramiko.SSHException: the connection is gone.
        """
        if self._service_userauth_accepted:  # type: ignore[attr-defined]
            return
        message = paramiko.Message()
        message.add_byte(cMSG_SERVICE_REQUEST)
        message.add_string("ssh-userauth")
        self._send_message(message)
        while not self._accepted.wait(0.1):
            if not self.is_active():
                raise self.get_exception() or paramiko.SSHException("the connection ended before the login")
        self.auth_handler = self.get_auth_handler()
