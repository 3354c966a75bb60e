"""Places of a labgrid coordinator as devices: acquired for a deploy, reached over SSH, and always released.

The coordinator's own protocol is spoken (``labgrid-coordinator.proto`` of labgrid 24 and newer, gRPC): a session
names itself ``host/user``, so that labgrid's client and this project are the same user to the lab. A place that
this user has acquired already, or that allows it, is used and left as it is.
"""

from __future__ import annotations

import atexit
import contextlib
import getpass
import os
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.environment import ensure
from core.errors import ConfigError, DeviceBusyError, NotSupportedError, UnreachableError
from core.plain import one_line
from deploy.transport.base import Channel, Progress, Transport, uninterrupted
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import natural

if TYPE_CHECKING:
    from typing_extensions import Self

    from deploy.devices.inventory import Device

VARIABLE = "LG_COORDINATOR"
"""labgrid's own environment variable for its coordinator."""
DEFAULT = "127.0.0.1:20408"
SERVICE = "NetworkService"
"""The class of the resource with the login's data."""

_SECONDS = 15.0
"""Seconds within which the coordinator must answer."""


@dataclass(frozen=True)
class Service:
    """How to log in to a place."""

    host: str
    port: int
    user: str


def own_name() -> str:
    """``host/user``, as labgrid's client calls itself; its variables ``LG_HOSTNAME`` and ``LG_USERNAME`` count here."""
    host = os.environ.get("LG_HOSTNAME") or socket.gethostname()
    return f"{host}/{os.environ.get('LG_USERNAME') or getpass.getuser()}"


class Coordinator:
    """A session with a coordinator. Use it in a ``with`` block."""

    def __init__(self, device: Device, deadline: Deadline) -> None:
        ensure("labgrid")
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own messages would go to the terminal
        import grpc
        from labgrid.remote.generated import labgrid_coordinator_pb2, labgrid_coordinator_pb2_grpc

        self.address = device.coordinator or os.environ.get(VARIABLE) or DEFAULT
        self.name = own_name()
        self._device, self._deadline = device, deadline
        self._grpc, self._messages = grpc, labgrid_coordinator_pb2
        self._channel = grpc.insecure_channel(self.address)
        self._stub = labgrid_coordinator_pb2_grpc.CoordinatorStub(self._channel)
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._places: dict[str, Any] = {}
        self._resources: dict[tuple[str, str, str], Any] = {}
        self._synced, self._syncs, self._why = 0, 0, ""
        self._held = ""
        self._stream = self._stub.ClientStream(iter(self._out.get, None))
        threading.Thread(target=self._listen, name="labgrid", daemon=True).start()
        try:
            self._say(startup=self._messages.StartupDone(version="24.0", name=self.name))
            self._say(subscribe=self._messages.Subscribe(all_places=True))
            self._say(subscribe=self._messages.Subscribe(all_resources=True))
            self.sync()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sync(self) -> None:
        """Wait until the coordinator has sent its whole state.

        Raises:
            UnreachableError: it does not answer.
        """
        self._syncs += 1
        self._say(sync=self._messages.Sync(id=self._syncs))
        patience = Deadline.after(self._deadline.left(_SECONDS))
        with self._changed:
            while self._synced < self._syncs:
                if self._why or patience.over:
                    raise self._silent(self._why or "no answer")
                self._changed.wait(patience.left(0.5))

    def acquire(self, place: str) -> bool:
        """Acquire ``place`` for this user; false if this user had it already: then it is not released.

        Raises:
            ConfigError: unknown place. DeviceBusyError: another user has it. UnreachableError.
        """
        found = self._place(place)
        if found.acquired == self.name or self.name in found.allowed:
            return False
        if found.acquired:
            raise self._busy(found.acquired)
        self._held = found.name  # first: a Ctrl-C may come before the answer
        atexit.register(self.release)
        try:
            self._call(self._stub.AcquirePlace, self._messages.AcquirePlaceRequest(placename=found.name))
        except self._grpc.RpcError as error:
            self._forget()
            self.sync()
            if (holder := self._place(place).acquired) and holder != self.name:
                raise self._busy(holder) from error
            raise self._refused(error) from error
        return True

    def release(self) -> None:
        """Release what was acquired here; after a failure, ``labgrid-client release`` does it."""
        if not self._held:
            return
        request = self._messages.ReleasePlaceRequest(placename=self._held, fromuser=self.name)
        with uninterrupted(), contextlib.suppress(self._grpc.RpcError):
            self._stub.ReleasePlace(request, timeout=_SECONDS)
        self._forget()

    def service(self, place: str) -> Service:
        """How to log in to ``place``.

        Raises:
            ConfigError: unknown place, or not exactly one service. NotSupportedError: only through a proxy of the lab.
        """
        from labgrid.remote.common import Place

        found = self._place(place)
        matching = Place.from_pb2(found)
        rows = [
            resource for (exporter, group, name), resource in sorted(self._resources.items())
            if resource.cls == SERVICE and matching.hasmatch((exporter, group, resource.cls, name))
        ]  # fmt: skip
        if len(rows) != 1:
            raise ConfigError(
                f"The place {place} of {self.address} has {'several' if rows else 'no'} {SERVICE}.",
                "its exporter is down, or no match of the place takes one in" if not rows else "one must be the device",
                f"labgrid-client -p {place} show",
                [f"{row.path.exporter_name}/{row.path.group_name}/{row.path.resource_name}" for row in rows],
            )
        params = {key: getattr(value, value.WhichOneof("kind")) for key, value in rows[0].params.items()}
        extra = {key: getattr(value, value.WhichOneof("kind")) for key, value in rows[0].extra.items()}
        if extra.get("proxy_required"):
            raise NotSupportedError(
                f"The place {place} can only be reached through the exporter {extra.get('proxy', '')}.",
                "it is exported with --isolated",
                f"give the device host = {str(params.get('address', ''))!r} and a ProxyJump in ~/.ssh/config",
            )
        port = natural(str(params.get("port") or 22), 65535) or -1  # `located` refuses an invalid port
        return Service(str(params.get("address", "")), port, str(params.get("username", "")))

    def close(self) -> None:
        """Release the places, and end the session."""
        self.release()
        self._out.put(None)
        self._stream.cancel()
        self._channel.close()

    def _forget(self) -> None:
        self._held = ""
        atexit.unregister(self.release)

    def _say(self, **what: Any) -> None:
        self._out.put(self._messages.ClientInMessage(**what))

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        return method(request, timeout=self._deadline.left(_SECONDS))

    def _listen(self) -> None:
        """Keep the coordinator's messages; runs in a thread of its own."""
        try:
            for message in self._stream:
                with self._changed:
                    for update in message.updates:
                        self._keep(update)
                    if message.HasField("sync"):
                        self._synced = message.sync.id
                    self._changed.notify_all()
            why = "it ended the session"
        except self._grpc.RpcError as error:
            why = str(error.details() or error.code())
        with self._changed:
            self._why = why
            self._changed.notify_all()

    def _keep(self, update: Any) -> None:
        kind = update.WhichOneof("kind")
        if kind == "place":
            self._places[update.place.name] = update.place
        elif kind == "del_place":
            self._places.pop(update.del_place, None)
        elif kind in {"resource", "del_resource"}:
            path = update.resource.path if kind == "resource" else update.del_resource
            key = (path.exporter_name, path.group_name, path.resource_name)
            if kind == "resource":
                self._resources[key] = update.resource
            else:
                self._resources.pop(key, None)

    def _place(self, name: str) -> Any:
        with self._changed:
            places = dict(self._places)
        for place in places.values():
            if name == place.name or name in place.aliases:
                return place
        raise ConfigError(
            f"The labgrid coordinator {self.address} has no place {name!r}.",
            f"there are {', '.join(sorted(places)) or 'none'}",
            f"correct place = of [{self._device.name}] in devices.toml",
            sorted(places),
        )

    def _busy(self, holder: str) -> DeviceBusyError:
        return DeviceBusyError(
            f"{self._device.name} is in use by {holder}: the place {self._device.place} is acquired.",
            f"the lab's coordinator at {self.address} gives a place to one at a time",
            f"wait for its release: labgrid-client -x {self.address} -p {self._device.place} show",
            (holder,),
        )

    def _refused(self, error: Any) -> DeviceBusyError | UnreachableError:
        if error.code() == self._grpc.StatusCode.UNAVAILABLE:
            return self._silent(str(error.details()))
        return DeviceBusyError(
            f"The labgrid coordinator {self.address} does not grant {self._device.place}.",
            str(error.details()),
            f"labgrid-client -x {self.address} reservations",
        )

    def _silent(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"The labgrid coordinator {self.address} cannot be reached.",
            why,
            f"see that it runs; it is coordinator = of [{self._device.name}], or {VARIABLE}",
        )


class PlaceTransport:
    """A device's own transport, which releases the place when it is closed."""

    def __init__(self, inner: Transport, coordinator: Coordinator) -> None:
        self.name = inner.name
        self._inner, self._coordinator = inner, coordinator

    @property
    def longest(self) -> int:
        """See `deploy.transport.base.Transport`."""
        return self._inner.longest

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> Channel:
        """See `deploy.transport.base.Transport`."""
        return self._inner.start(argv, deadline)

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        """See `deploy.transport.base.Transport`."""
        self._inner.put(local, remote, progress, deadline, offset)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        """See `deploy.transport.base.Transport`."""
        self._inner.get(remote, local, limit, deadline)

    def close(self) -> None:
        """Close the connection, then release the place."""
        try:
            self._inner.close()
        finally:
            self._coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def located(device: Device, service: Service) -> Device:
    """``device`` as an ordinary one over SSH; a user of the inventory's own comes before the lab's.

    Raises:
        ConfigError: the lab's answer is not an address.
    """
    changes = {"host": service.host, "port": service.port, "user": device.user or service.user, "source": ""}
    try:
        return type(device).model_validate({**device.model_dump(), **changes})
    except ValueError as error:
        raise ConfigError(
            f"The place {device.place} is not at an address that Slipway takes.",
            one_line(f"the lab says {service.user}@{service.host}:{service.port}", 300),
            f"labgrid-client -p {device.place} show",
        ) from error


def locate(device: Device, deadline: Deadline) -> Device:
    """The place's address, without acquiring it; for reading host keys.

    Raises:
        ConfigError, UnreachableError, NotSupportedError
    """
    with Coordinator(device, deadline) as coordinator:
        return located(device, coordinator.service(device.place))


def open_place(device: Device, deadline: Deadline, connect: Callable[[Device, Deadline], Transport]) -> Transport:
    """Acquire the place and ``connect`` to its address.

    Raises:
        ConfigError, DeviceBusyError, UnreachableError, NotSupportedError; and what ``connect`` raises.
    """
    coordinator = Coordinator(device, deadline)
    try:
        coordinator.acquire(device.place)
        coordinator.sync()
        return PlaceTransport(connect(located(device, coordinator.service(device.place)), deadline), coordinator)
    except BaseException:
        coordinator.close()
        raise
