"""paramiko's transport that asks once for the service which checks keys and passwords, as RFC 4252 has it.

The classic one asks before each attempt, and strict servers hang up then. The newer one of paramiko 5.1 loses answers
that come early, waits for ever if the connection ends, and has a broken `auth_none`; this module corrects these three.
An error of any class in its reading thread, such as cryptography's ``InvalidTag`` after a changed byte, reaches the
caller as paramiko's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import paramiko
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.common import cMSG_SERVICE_REQUEST, cMSG_USERAUTH_REQUEST
from paramiko.transport import ServiceRequestingTransport

from deploy.transport.base import interrupted_after
from deploy.transport.ssh.packets import CHANNEL_HANDLERS, LimitedPacketizer


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
    """See this module's head; its packets have limits (`deploy.transport.ssh.packets`)."""

    _channel_handler_table = {  # noqa: RUF012 - paramiko's own, with ours in it
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        **CHANNEL_HANDLERS,
    }

    def __init__(self, *args: Any, **options: Any) -> None:
        self._accepted = threading.Event()
        super().__init__(*args, **{**options, "packetizer_class": LimitedPacketizer})

    def _send_message(self, data: paramiko.Message) -> None:
        """Called by paramiko. Ctrl-C waits for the packet's end.

        Between a packet's encryption and its sending it would leave the two sides' ciphers apart, and with them no way
        to clean up over this connection.
        """
        with interrupted_after():
            super()._send_message(data)  # type: ignore[misc] # not in the annotations

    def get_exception(self) -> Exception | None:
        """What ended the connection, in a class that `deploy.transport.ssh.sessions.LOST` has."""
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
