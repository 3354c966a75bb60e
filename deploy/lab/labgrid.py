"""Places of a labgrid coordinator as devices: acquired for a deploy, reached over SSH or adb, and always released.

labgrid's own client session is used, which names itself ``host/user``: labgrid's client and this project are the same
user to the lab. A place that this user has acquired already, or that allows it, is used and left as it is. Deploys of
one user on one machine take turns with a place. The session's event loop runs only while something is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, TypeVar

from core.environment import ensure
from core.errors import ConfigError, DeviceBusyError, NotSupportedError, SlipwayError, UnreachableError, suggestion
from core.files import locks, sha256_bytes
from core.paths import cache_dir
from core.plain import one_line
from deploy.devices.inventory import Device
from deploy.transport.base import interrupted_after, uninterrupted
from deploy.transport.deadline import Deadline
from deploy.transport.hearing import natural
from deploy.transport.ssh.spelled import Spelled

# labgrid's own environment variables
COORDINATOR, PROXY, PLACE, TOKEN = "LG_COORDINATOR", "LG_PROXY", "LG_PLACE", "LG_TOKEN"
_DEFAULT = "127.0.0.1:20408"
_SECONDS = 15.0
"""Seconds within which the coordinator must answer."""
_PAUSE = 0.5
"""Seconds between two questions whether the reservation has a place."""

# Classes of resources: the login's data (of an Android device, where its adbd listens), and Android devices on the
# network, whose adbd has a port of its own, and at USB.
_SERVICE, _FASTBOOT, _FASTBOOT_USB = "NetworkService", "RemoteAndroidNetFastboot", "RemoteAndroidUSBFastboot"
_ADB_PORT = 5555

Say = Callable[[str], None]
_Answer = TypeVar("_Answer")


def _client() -> Any:
    """The module `labgrid.remote.client`, installed if need be. Its import takes about a second."""
    ensure("labgrid")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own messages would go to the terminal
    # What gRPC does at a fork, while its threads run, ends one of ten children with SIGABRT before they begin.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    hook = sys.excepthook
    import labgrid.remote.client as module

    sys.excepthook = hook  # labgrid sets one of its own
    if proxy := os.environ.get(PROXY):
        module.proxymanager.force_proxy(proxy)  # it read the variable when it was imported
    return module


class _Complaints(logging.Handler):
    """The last complaint of a session about its coordinator, which labgrid only logs, to the root logger."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        self.last = record.getMessage()


class Lab:
    """A session with a coordinator. A process has one at a time: the coordinator knows it by its connection."""

    def __init__(self, address: str, module: Any, complaints: _Complaints) -> None:
        self.address, self.module = address, module
        self._loop, self._complaints = asyncio.new_event_loop(), complaints
        reached = module.proxymanager.get_grpc_address(address, default_port=20408)  # by ssh, if there is a proxy

        async def begun() -> Any:  # in the loop: gRPC takes the one that runs
            return module.ClientSession(reached, self._loop)

        self.session = self.call(begun())
        self.name = f"{self.session.gethostname()}/{self.session.getuser()}"
        """``host/user``, as labgrid's client calls itself; ``LG_HOSTNAME`` and ``LG_USERNAME`` count here."""

    @classmethod
    @contextlib.contextmanager
    def joined(cls, device: Device) -> Iterator[Lab]:
        """The session with the device's coordinator, for the block.

        Raises:
            UnreachableError: it does not answer.
        """
        module = _client()
        where = device.coordinator or os.environ.get(COORDINATOR) or _DEFAULT
        complaints = _Complaints()
        logging.getLogger().addHandler(complaints)
        lab: Lab | None = None
        try:
            try:
                lab = cls(where, module, complaints)
                lab.call(lab.session.start())
            except (module.Error, module.ExecutionError, OSError, ValueError) as error:
                proxy = os.environ.get(PROXY)
                raise UnreachableError(
                    f"The labgrid coordinator {where} cannot be reached" + (f" through {proxy}." if proxy else "."),
                    one_line(complaints.last or str(error), 400),
                    f"ssh {proxy} true    ({PROXY}); then see that the coordinator runs"
                    if proxy
                    else f"see that it runs; it is coordinator = of [{device.name}], or {COORDINATOR}",
                ) from error
            yield lab
        finally:
            with uninterrupted():
                if lab is not None:
                    for end in (lab.session.stop, lab.session.close):
                        with contextlib.suppress(UnreachableError):
                            lab.call(end())
                    lab._loop.close()
                logging.getLogger().removeHandler(complaints)

    def call(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a coroutine of the session.

        Raises:
            UnreachableError: no answer in time. Errors of labgrid and gRPC are passed on.
        """
        try:
            return self._loop.run_until_complete(asyncio.wait_for(coroutine, _SECONDS))
        except asyncio.TimeoutError as error:
            raise self._silent(f"no answer within {_SECONDS:.0f} s") from error

    def ask(self, method: str, **words: Any) -> Any:
        """A request of the coordinator's protocol: ``ask("AcquirePlace", placename="pi")``.

        Raises:
            UnreachableError: it has gone. grpc's ``AioRpcError``: it refuses.
        """
        request = getattr(self.module.labgrid_coordinator_pb2, f"{method}Request")(**words)

        async def send() -> Any:
            return await getattr(self.session.stub, method)(request, timeout=_SECONDS)

        codes = self.module.grpc.StatusCode
        try:
            return self.call(send())
        except self.module.grpc.aio.AioRpcError as error:
            if error.code() in (codes.UNAVAILABLE, codes.DEADLINE_EXCEEDED):
                raise self._silent(str(error.details())) from error
            raise

    def give_back(self, method: str, **words: Any) -> None:
        """Ask it in the end; after a failure `labgrid-client` does it."""
        with uninterrupted(), contextlib.suppress(SlipwayError, self.module.grpc.aio.AioRpcError):
            self.ask(method, **words)

    def sync(self) -> None:
        """Wait until this side knows what the coordinator knows.

        Raises:
            UnreachableError: the coordinator has gone.
        """
        # labgrid would wait for ever after the session's end
        if self.session.stopping.is_set() or not self.call(self.session.sync_with_coordinator()):
            raise self._silent(self._complaints.last or "it ended the session")

    def resources(self) -> list[tuple[tuple[str, str, str, str], Any]]:
        """What the exporters offer: exporter, group, class and name, with labgrid's entry."""
        return [
            ((exporter, group, str(entry.data.get("cls", "")), name), entry)
            for exporter, groups in sorted(self.session.resources.items())
            for group, entries in sorted(groups.items())
            for name, entry in sorted(entries.items())
        ]

    def _silent(self, why: str) -> UnreachableError:
        hint = f"labgrid-client -x {self.address} places"
        return UnreachableError(f"The labgrid coordinator {self.address} cannot be reached.", why, hint)


@contextlib.contextmanager
def borrowed(device: Device, wait: float, say: Say) -> Iterator[Device]:
    """Hold the device's place for the block, and give it as an ordinary device; others need nothing.

    Args:
        wait: seconds to wait for a place that others use, by a reservation in the coordinator's queue. The end of the
            wait, an error or Ctrl-C cancels it.
        say: called with what is waited for.

    Raises:
        ConfigError: no such place, or no way there. DeviceBusyError: others had it all the time. UnreachableError,
        NotSupportedError
    """
    if device.source != "labgrid":
        yield device
        return
    with Lab.joined(device) as lab, _acquired(lab, device, wait, say) as place:
        yield _at(device, lab, place)


def locate(device: Device) -> Device:
    """The place's address, without acquiring it; for reading host keys.

    Raises:
        ConfigError, UnreachableError, NotSupportedError
    """
    with Lab.joined(device) as lab:
        return _at(device, lab, candidates(lab, device)[0])


@contextlib.contextmanager
def _acquired(lab: Lab, device: Device, wait: float, say: Say) -> Iterator[Any]:
    """One of the places that may be the device, for the block."""
    wanted, token = candidates(lab, device), ""
    with contextlib.ExitStack() as stack:
        taken = _first(lab, device, wanted, stack)
        if taken is None and wait <= 0:
            raise _busy(lab, device, wanted, "")
        if taken is None:
            filters = dict(pair.split("=", 1) for pair in device.place_tags) or {"name": wanted[0].name}
            one = lab.module.labgrid_coordinator_pb2.Reservation.Filter(filter=filters)
            with interrupted_after():
                token = lab.ask("CreateReservation", filters={"main": one}, prio=0.0).reservation.token
                stack.callback(lab.give_back, "CancelReservation", token=token)
            name = _waited(lab, device, wanted, token, wait, say)
            taken = _first(lab, device, [place for place in wanted if place.name == name], stack, _SECONDS)
        if taken is None:
            raise _busy(lab, device, wanted, "the coordinator gave it to somebody else")
        yield taken


def _first(lab: Lab, device: Device, wanted: list[Any], stack: contextlib.ExitStack, patience: float = 0.0) -> Any:
    """The first of the places that this user has or gets; ``None`` if others have all of them.

    Another deploy of this user, which has just released its place, is waited for: ``patience`` seconds.
    """
    end = Deadline.after(patience)
    for place in wanted:
        name = sha256_bytes(f"{lab.address}\0{lab.name}\0{place.name}".encode())[:24]
        with contextlib.ExitStack() as own:
            while (lock := locks.taken(cache_dir("locks") / f"lab-{name}")) is None and not end.over:
                time.sleep(_PAUSE)
            if lock is not None:
                own.callback(os.close, lock)
            lab.sync()
            mine = place.acquired == lab.name or lab.name in place.allowed
            if lock is not None and (mine or (not place.acquired and _acquire(lab, device, place, own))):
                stack.push(own.pop_all())
                return place
    return None


def _acquire(lab: Lab, device: Device, place: Any, stack: contextlib.ExitStack) -> bool:
    """Acquire a free place, until ``stack`` ends; false if others were faster, or have reserved it."""
    client = f"labgrid-client -x {lab.address} -p {place.name} show"
    # What is gone stays as an entry without a class.
    if match := place.unmatched([path for path, entry in lab.resources() if "cls" in entry.data]):
        raise ConfigError(
            f"The place {place.name} of {lab.address} is not complete.",
            f"nothing is exported for its match {match}: the exporter is down, or the match is wrong",
            client,
            [str(match)],
        )
    try:
        with interrupted_after():
            lab.ask("AcquirePlace", placename=place.name)
            stack.callback(lab.give_back, "ReleasePlace", placename=place.name, fromuser=lab.name)
            lab.sync()
    except lab.module.grpc.aio.AioRpcError as error:
        lab.sync()
        if error.code() == lab.module.grpc.StatusCode.PERMISSION_DENIED or place.acquired:
            return False
        raise DeviceBusyError(
            f"The labgrid coordinator {lab.address} does not grant {place.name} to {device.name}.",
            str(error.details()),
            client,
        ) from error
    return True


def _waited(lab: Lab, device: Device, wanted: list[Any], token: str, wait: float, say: Say) -> str:
    """The name of the place that the coordinator keeps for this reservation.

    Raises:
        DeviceBusyError: none, in all the time.
    """
    patience = Deadline.after(wait)
    names = ", ".join(f"{place.name} ({place.acquired or 'reserved'})" for place in wanted)
    places = f"the place{'s' if len(wanted) > 1 else ''} {names}"
    say(f"{device.name} waits up to {wait:.0f} s for {places} (reservation {token})")
    while True:
        found = lab.module.Reservation.from_pb2(lab.ask("PollReservation", token=token).reservation)
        state = found.state.name
        if state in ("allocated", "acquired"):
            return str(found.allocations["main"][0])
        if state != "waiting":
            raise _busy(lab, device, wanted, f"its reservation {token} is {state}")
        if patience.over:
            raise _busy(lab, device, wanted, f"it was waited for {wait:.0f} s")
        time.sleep(patience.left(_PAUSE))


def candidates(lab: Lab, device: Device) -> list[Any]:
    """The places that may be the device: the one it names, or all with its tags; places of this user first.

    Raises:
        ConfigError: there is none.
    """
    places = [place for _, place in sorted(lab.session.places.items())]
    user = lab.session.getuser()
    # An alias in another user's namespace (``alice:board``) is not for this one.
    called = {place.name: {place.name, *(each.removeprefix(f"{user}:") for each in place.aliases)} for place in places}
    pattern = device.place or ("" if device.place_tags else os.environ.get(PLACE, ""))
    token = pattern[1:] or os.environ.get(TOKEN, "")
    if device.place_tags:
        tags = dict(pair.split("=", 1) for pair in device.place_tags)
        found = [place for place in places if tags.items() <= {**place.tags, "name": place.name}.items()]
        what = f"place with the tags {', '.join(device.place_tags)}"
    elif pattern.startswith("+"):
        found = [place for place in places if token and place.reservation == token]
        what = f"place for the reservation {token or f'of {TOKEN}, which is not set'}"
    elif pattern:
        found = [place for place in places if pattern in called[place.name]]
        what = f"place {pattern!r}"
    else:
        raise ConfigError(
            f"{device.name} does not name a labgrid place.",
            f"its table lacks place and place_tags, and {PLACE} is not set",
            f"export {PLACE}=NAME, or place = in the table [{device.name}]",
        )
    if not found:
        names = list(called)
        meant = "" if device.place_tags else suggestion(pattern, sorted(set().union(*called.values())))
        has = sorted({f"{key}={value}" for place in places for key, value in place.tags.items()})
        there = f"there are {', '.join(names) or 'none'}" + (f", with {', '.join(has)}" if has else "")
        raise ConfigError(
            f"The labgrid coordinator {lab.address} has no {what}.",
            meant + there,
            f"correct place or place_tags of [{device.name}], or {PLACE}; labgrid-client -x {lab.address} places",
            names,
        )
    return sorted(found, key=lambda place: (place.acquired != lab.name, bool(place.acquired), bool(place.reservation)))


def _busy(lab: Lab, device: Device, wanted: list[Any], why: str) -> DeviceBusyError:
    place, holder = wanted[0], wanted[0].acquired or ""
    others = f", as {len(wanted) - 1} more are" if len(wanted) > 1 else ""
    state = "acquired" if holder else "reserved"
    return DeviceBusyError(
        f"{device.name} is in use{f' by {holder}' if holder else ''}: the place {place.name} is {state}{others}.",
        why or f"the lab's coordinator at {lab.address} gives a place to one at a time",
        f"a longer INVOKE_SLIPWAY_WAIT (devices.run: _TIMEOUT), or "
        f"labgrid-client -x {lab.address} -p {place.name} show",
        (holder,) if holder else (),
    )


class Service(NamedTuple):
    """How to reach a place."""

    host: str
    port: int
    user: str = ""
    jump: str = ""


def _service(lab: Lab, place: Any, device: Device) -> Service:
    """How to reach ``place``, as its exporters say.

    Raises:
        ConfigError: not exactly one resource says it. NotSupportedError: in a way that Slipway does not go.
    """
    classes = (_SERVICE, _FASTBOOT, _FASTBOOT_USB) if device.transport == "adb" else (_SERVICE,)
    rows = [(path, one) for path, one in lab.resources() if one.data.get("cls") in classes and place.hasmatch(path)]
    if len(rows) != 1:
        raise ConfigError(
            f"The place {place.name} of {lab.address} has {'several' if rows else 'no'} {' or '.join(classes)}.",
            "its exporter is down, or no match of the place takes one in" if not rows else "one must be the device",
            f"labgrid-client -x {lab.address} -p {place.name} show",
            ["/".join(path) for path, _ in rows],
        )
    (_, entry), proxy = rows[0], os.environ.get(PROXY, "")
    words, extra = entry.args, entry.extra
    host = str(words.get("address", ""))
    if entry.cls == _FASTBOOT_USB or "%" in host:
        usb, exporter = entry.cls == _FASTBOOT_USB, words.get("host") or extra.get("proxy", "")
        raise NotSupportedError(
            f"The place {place.name} can only be reached from its exporter {exporter}.",
            "the device hangs at its USB" if usb else f"{host} is behind a network interface of it",
            "run Slipway there" if usb else "export an address that the exporter's sshd reaches",
        )
    if extra.get("proxy_required"):  # exported with --isolated
        proxy = str(extra.get("proxy", ""))
    adb = device.transport == "adb"
    said = natural(str(words.get("port") or (_ADB_PORT if adb else 22)), 65535)
    port = device.port or (_ADB_PORT if entry.cls == _FASTBOOT else said) if adb else said
    return Service(host, port or -1, str(words.get("username", "")), proxy)  # `located` refuses an invalid port


def located(device: Device, found: Service) -> Device:
    """``device`` as an ordinary one over SSH or adb; a user and a jump host of the inventory's own come first.

    Raises:
        ConfigError: the lab's answer is not an address.
    """
    changes: dict[str, object] = {"source": "", "place": "", "place_tags": (), "coordinator": ""}
    if device.transport == "adb":
        changes |= {"port": 0, "serial": str(Spelled(found.host, port=found.port))}
    else:
        user, jump = device.user or found.user, device.jump or found.jump
        changes |= {"host": found.host, "port": found.port, "user": user, "jump": jump}
    try:
        return type(device).model_validate({**device.model_dump(), **changes})
    except ValueError as error:
        raise ConfigError(
            f"Slipway does not accept the address of the place {device.place}.",
            one_line(f"the lab says {found.user}@{found.host}:{found.port}", 300),
            f"labgrid-client -p {device.place} show",
        ) from error


def _at(device: Device, lab: Lab, place: Any) -> Device:
    """The device where ``place`` is; adb's server knows no jump hosts, so labgrid's ssh forwards a port for it.

    Raises:
        ConfigError, NotSupportedError, UnreachableError: no way there.
    """
    found = _service(lab, place, device)
    if device.transport == "adb" and found.jump:
        from labgrid.util.ssh import sshmanager

        try:
            found = Service("127.0.0.1", int(sshmanager.request_forward(found.jump, found.host, found.port)))
        except (lab.module.ExecutionError, OSError) as error:
            raise UnreachableError(
                f"{found.host} port {found.port} cannot be reached through {found.jump}.",
                one_line(str(error), 300),
                f"ssh {found.jump} true",
            ) from error
    return located(device.model_copy(update={"place": place.name}), found)
