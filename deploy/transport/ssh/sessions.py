"""Several sessions to one device: over one connection as long as its server allows, then over further ones.

A server may limit the sessions of a connection (OpenSSH's ``MaxSessions``, 10 unless changed, 1 on hardened devices).
A deploy needs up to four at once: the lock's holder, a command, a file transfer, and one to end what hangs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import paramiko

CONNECTIONS = 5
"""Maximum number of connections to one device; servers limit new ones too (``MaxStartups``)."""

PULSE = 10.0
"""Seconds between two keep-alive requests."""
SILENCE = 60.0
"""Seconds without an answer after which a connection is given up: an answer may have to wait behind an upload in the
buffers of a slow link."""

LOST = (paramiko.SSHException, OSError, EOFError)
"""What paramiko raises when a connection is gone, or refuses."""


class Sessions:
    """The connections to one device."""

    def __init__(self, first: paramiko.SSHClient, again: Callable[[], paramiko.SSHClient]) -> None:
        self._clients = [first]
        self._again = again
        self._pulses = [Pulse(first)]
        self.not_posix = False
        """Whether the login's shell left without running a command (`deploy.transport.ssh.channel`)."""

    @property
    def active(self) -> bool:
        """Whether the first connection, which proves the device reachable, still stands."""
        transport = self._clients[0].get_transport()
        return transport is not None and transport.is_active()

    @property
    def patient(self) -> bool:
        """Whether the server is one that is known to take long commands."""
        return any(name in self.version for name in ("openssh", "asyncssh"))

    @property
    def version(self) -> str:
        """What the server says of itself, in small letters: ``ssh-2.0-openssh_9.2p1 debian-2``."""
        transport = self._clients[0].get_transport()
        return transport.remote_version.lower() if transport is not None else ""

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._clients)

    def open(self, seconds: float = 30.0) -> paramiko.Channel:
        """A new session; on a further connection if the server refuses it on the existing ones.

        Raises:
            paramiko.SSHException, OSError, EOFError: the connection broke, or the server grants no more sessions.
        """
        refused: paramiko.ChannelException | None = None
        for client in self._clients:
            transport = client.get_transport()
            if transport is None or (client is not self._clients[0] and not transport.is_active()):
                continue
            try:
                return transport.open_session(timeout=seconds)
            except paramiko.ChannelException as error:
                refused = error
        if len(self._clients) >= CONNECTIONS:
            raise refused or EOFError("no session is granted")
        client = self._again()
        self._clients.append(client)
        self._pulses.append(Pulse(client))
        transport = client.get_transport()
        if transport is None:
            raise EOFError("the further connection broke at once")
        return transport.open_session(timeout=seconds)

    def close(self) -> None:
        """Close all connections; commands still running lose their lifeline and end."""
        for pulse in self._pulses:
            pulse.stop()
        for client in reversed(self._clients):
            with contextlib.suppress(*LOST):
                client.close()


class Pulse:
    """Sends keep-alive requests; closes a connection that does not answer them.

    TCP alone does not notice a device behind a jump host that lost its power.
    """

    def __init__(self, client: paramiko.SSHClient) -> None:
        self._client = client
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="ssh-pulse", daemon=True).start()

    def stop(self) -> None:
        """Stop."""
        self._stop.set()

    def _watch(self) -> None:
        transport = self._client.get_transport()
        while transport is not None and not self._stop.wait(PULSE) and transport.is_active():
            patience = threading.Timer(SILENCE, transport.close)
            patience.daemon = True
            patience.start()
            with contextlib.suppress(*LOST):
                # A refusal is an answer too; paramiko returns when the connection ends.
                transport.global_request("keepalive@openssh.com", wait=True)
            patience.cancel()
