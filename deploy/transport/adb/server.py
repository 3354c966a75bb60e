"""adb's server: use the running one or start one, and never end a server that others started.

Real devices belong to the server on adb's own port (``ANDROID_ADB_SERVER_PORT``, 5037): one that answers is used
whatever its version, because it is spoken to without the ``adb`` program, which would end a server of another
version. Virtual devices have a private server, supervised like they are: it ends by itself after disuse.

Protocol: SERVICES.TXT of platform/packages/modules/adb.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from tenacity import Retrying, retry_if_exception, wait_random_exponential

from core.errors import AuthenticationError, ConfigError, HostError, SlipwayError, UnreachableError
from core.plain import says
from deploy.transport.adb.library import AdbClient, AdbError
from deploy.transport.adb.port import HOST, PORT_VARIABLE, default_port, listens
from deploy.transport.deadline import Deadline

OLDEST = 39
"""Oldest protocol version of a server: 1.0.39 is the first that lists and routes as this module does."""
PATIENCE = 10.0
"""Seconds for a device that is just appearing (``offline``, ``connecting``) to be there."""

_LEAST = 0.1
"""Seconds that an answer is waited for at least: 0 would mean no limit."""

_PASSING = frozenset({"offline", "connecting", "authorizing", "absent"})
_TAGS = re.compile(r"\s+(?:usb|product|model|device|features|transport_id):")


@dataclass(frozen=True)
class Seen:
    """A device as the server lists it."""

    serial: str
    state: str
    """``device`` when it can be used; ``unauthorized``, ``offline``, ``no permissions`` ... when not."""
    model: str = ""


class Server(AdbClient):  # type: ignore[misc] # adbutils carries no types
    """A server that answered."""

    def ask(self, request: str, seconds: float = 10.0) -> str:
        """The answer to a ``host:`` request.

        Raises:
            AdbError: refused, unreadable, or no answer in time. OSError: the server is not there.
        """
        try:
            with self.make_connection(seconds) as connection:
                connection.send_command(request)
                connection.check_okay()
                return str(connection.read_string_block())
        except ValueError as error:  # the length is not a number
            raise AdbError(f"an unreadable answer: {error}") from error

    def open_service(self, serial: str, service: str, seconds: float) -> socket.socket:
        """A stream to a service of a device; every read and write on it may take ``seconds``.

        ``host:transport`` is what servers of all versions know.

        Raises:
            AdbError: the device is not there or refuses. OSError: the server is not there, or no answer in time.
        """
        connection = self.make_connection(seconds)
        stream: socket.socket = connection.conn
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for request in (f"host:transport:{serial}", service):
                stream.sendall(f"{len(request.encode()):04x}{request}".encode())
                connection.check_okay()
        except BaseException as error:
            stream.close()
            if isinstance(error, ValueError):
                raise AdbError(f"an unreadable answer: {error}") from error
            raise
        return stream


def parse_devices(text: str) -> list[Seen]:
    """The lines of ``host:devices-l``: serial, state (which may hold blanks), and tags."""
    found = []
    for line in text.splitlines():
        serial, _, rest = line.strip().partition(" ")
        if not serial or not rest.strip():
            continue
        state = _TAGS.split(" " + rest.strip(), maxsplit=1)[0].strip()
        model = re.search(r"\smodel:(\S+)", rest)
        state = "no permissions" if state.startswith("no permissions") else state
        found.append(Seen(serial, state, model[1].replace("_", " ") if model else ""))
    return found


def pick(seen: Sequence[Seen], serial: str) -> str:
    """The serial to use: ``serial``, or the only device that is there.

    Raises:
        ConfigError: several, and none chosen.
        AuthenticationError: it has not allowed this computer.
        UnreachableError: none there, or not ready.
    """
    if not serial:
        ready = [each for each in seen if each.state == "device"] or list(seen)
        if len(ready) > 1:
            names = [each.serial for each in ready]
            raise ConfigError(
                f"Several devices are attached to adb and none was chosen: {', '.join(names)}.",
                "",
                f"./inv devices.add --adb {names[0]}",
                names,
            )
        if not ready:
            raise UnreachableError(
                "adb sees no device.",
                "none is plugged in, its USB debugging is off, or the cable only charges",
                "plug it in, switch on USB debugging in its developer options, then adb devices -l",
            )
        serial = ready[0].serial
    state = next((each.state for each in seen if each.serial == serial), "absent")
    if state != "device":
        raise _not_ready(serial, state, seen)
    return serial


def _not_ready(serial: str, state: str, seen: Sequence[Seen]) -> UnreachableError | AuthenticationError:
    others = ", ".join(each.serial for each in seen if each.serial != serial)
    if state in {"unauthorized", "authorizing"}:
        return AuthenticationError(
            f"{serial} has not allowed this computer (adb says {state}).",
            'its screen asks whether to allow USB debugging, or "never" was chosen there',
            "unlock it and tap Allow; if it does not ask: developer options, Revoke USB debugging authorizations",
            (state,),
        )
    causes = {
        "absent": f"it is not plugged in or has another serial; adb sees {others or 'no device'}",
        "offline": "it is starting, asleep, or adb on it is stuck",
        "no permissions": "this user may not open the USB device: udev rules are missing",
    }
    hints = {
        "absent": f"adb connect {serial}" if _is_address(serial) else "adb devices -l",
        "offline": f"adb -s {serial} reconnect, or unplug it and plug it in again",
        "no permissions": "sudo apt-get install android-sdk-platform-tools-common, then plug it in again",
    }
    what = f"adb sees no device {serial}." if state == "absent" else f"{serial} is not ready: adb says {state}."
    cause = causes.get(state, f"it runs its {state}, not Android")
    return UnreachableError(what, cause, hints.get(state, f"adb -s {serial} reboot"), (state,))


def _is_address(serial: str) -> bool:
    return bool(re.fullmatch(r"(\[[0-9A-Fa-f:]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9_.-]+):\d{1,5}", serial))


def running_server(port: int) -> Server | None:
    """The server that answers on ``port``; ``None`` if the port is free.

    Raises:
        HostError: another program listens there, or the adb server is too old.
    """
    if not listens(port):
        return None
    server = Server(host=HOST, port=port)
    try:
        version = int(server.ask("host:version", 5)[:8], 16)
    except (AdbError, OSError, ValueError) as error:
        raise HostError(
            f"The program on port {port} of this machine does not answer as an adb server.",
            str(error) or type(error).__name__,
            f"end it, or give adb another port: export {PORT_VARIABLE}=5038",
        ) from error
    if version < OLDEST:
        raise HostError(
            f"The adb server on port {port} is version 1.0.{version}; 1.0.{OLDEST} is the oldest that works.",
            "an old adb program started it",
            f"adb kill-server with that program, or keep it and export {PORT_VARIABLE}=5038",
        )
    return server


def users_server(start: bool = True) -> Server | None:
    """The server on adb's own port, for real devices; started as ``adb`` itself does when there is none.

    Raises:
        HostError: no adb program to start one with, or it does not start.
    """
    port = default_port()
    server = running_server(port)
    if server is not None or not start:
        return server
    argv = [adb_program(), "-P", str(port), "start-server"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    server = running_server(port)
    if server is None:
        raise HostError(
            f"adb's server does not start on port {port}.",
            says("adb", done.stderr or done.stdout),
            f"end what uses that port, or give adb another one: export {PORT_VARIABLE}=5038",
        )
    return server


def adb_program() -> str:
    """The ``adb`` that starts servers: this machine's own, else the one that came with adbutils, if it runs here.

    Raises:
        HostError: this machine has no adb.
    """
    from adbutils import adb_path

    try:
        return str(adb_path())
    except AdbError as error:
        raise HostError("There is no adb on this machine.", str(error), "sudo apt-get install adb") from error


def listed(server: Server, seconds: float = 10.0) -> list[Seen]:
    """The devices that the server sees now; it has ``seconds`` to answer.

    Raises:
        UnreachableError: it does not answer any more.
    """
    try:
        return parse_devices(server.ask("host:devices-l", seconds))
    except (AdbError, OSError) as error:
        raise UnreachableError(
            "adb's server does not answer.", says("adb", str(error)) or type(error).__name__, "the same command again"
        ) from error


def attach(server: Server, serial: str, deadline: Deadline) -> str:
    """The serial of a device that is ready: ``serial``, ``ANDROID_SERIAL``, or the only one.

    A TCP address is connected first. A device that is just appearing is waited for, with growing and jittered
    pauses, `PATIENCE` seconds at most.

    Raises:
        ConfigError, AuthenticationError, UnreachableError: as `pick` has it. DeadlineError.
    """
    patience = Deadline.after(deadline.left(PATIENCE))
    chosen = serial or os.environ.get("ANDROID_SERIAL", "")
    deadline.check(f"looking for {chosen or 'a device'} through adb")

    def once() -> str:
        seen = listed(server, max(_LEAST, deadline.left(10)))
        if _is_address(chosen) and not any(each.serial == chosen and each.state == "device" for each in seen):
            connect(server, chosen, max(_LEAST, deadline.left(20)))
            seen = listed(server, max(_LEAST, deadline.left(10)))
        return pick(seen, chosen)

    def passes(error: BaseException) -> bool:
        state = error.names[0] if isinstance(error, SlipwayError) and error.names else ""
        # A serial without an address that is absent stays so: waiting does not plug it in.
        return state in _PASSING and (state != "absent" or _is_address(chosen))

    policy = Retrying(
        retry=retry_if_exception(passes),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        stop=lambda _: patience.over,
        reraise=True,
    )
    return policy(once)


def connect(server: Server, address: str, seconds: float = 20.0) -> None:
    """Let the server connect to a device's TCP port, within ``seconds``.

    Raises:
        UnreachableError: refused or no answer. AuthenticationError: it has not allowed this computer.
    """
    try:
        answer = server.ask(f"host:connect:{address}", seconds)
    except (AdbError, OSError) as error:
        answer = str(error) or "no answer"
    if answer.startswith(("connected to", "already connected to")):
        return
    if "authenticate" in answer:
        raise _not_ready(address, "unauthorized", [])
    raise UnreachableError(
        f"{address} cannot be reached by adb.",
        says("adb", answer),
        f"see that it is on the network and listens: adb tcpip {address.rpartition(':')[2]} while it is on USB",
        ("absent",),
    )
