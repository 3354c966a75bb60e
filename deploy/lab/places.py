"""Places of a labgrid coordinator: chosen by name or tags, waited for by a reservation, acquired, and released."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError, DeviceBusyError, SlipwayError, suggestion
from core.files import sha256_bytes
from core.paths import cache_dir
from deploy.lab.session import DEFAULT, VARIABLE, Lab
from deploy.transport.base import interrupted_after, uninterrupted
from deploy.transport.deadline import NEVER, Deadline

if TYPE_CHECKING:
    from deploy.devices.inventory import Device

PLACE = "LG_PLACE"
"""labgrid's own environment variable for the place."""
TOKEN = "LG_TOKEN"  # noqa: S105 - the name of labgrid's own environment variable for a reservation
_FIRST, _LONGEST = 0.1, 1.0
"""Seconds between two questions whether the reservation has a place: at first, and at most, as labgrid's client."""

Say = Callable[[str], None]


def join(device: Device, deadline: Deadline = NEVER) -> Lab:
    """A session with the device's coordinator.

    Raises:
        UnreachableError: it does not answer.
    """
    address = device.coordinator or os.environ.get(VARIABLE) or DEFAULT
    hint = f"see that it runs; it is coordinator = of [{device.name}], or {VARIABLE}"
    return Lab.join(address, hint, deadline)


@dataclass
class Mark:
    """The file of a place, locked as in use; it says when Slipway acquired the place.

    To the coordinator this user's processes on this machine are all one user. So a process that ends must not release
    a place that another one uses, and the last one must not release a place that the user acquired by hand.
    """

    file: int
    """Its descriptor."""

    @classmethod
    def of(cls, address: str, user: str, place: str) -> Mark:
        """Lock the file; if the last process is just releasing the place, after it."""
        name = f"lab-{sha256_bytes(chr(0).join((address, user, place)).encode())[:24]}"
        file = os.open(cache_dir("locks") / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_SH)
        return cls(file)

    def acquired(self, changed: float) -> None:
        """Note that Slipway acquired the place; ``changed`` is the coordinator's time of it."""
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, repr(changed).encode(), 0)

    def is_ours(self, changed: float) -> bool:
        """Whether Slipway acquired the place, and nothing has been done to it since."""
        return os.pread(self.file, 100, 0) == repr(changed).encode()

    def last(self) -> bool:
        """Whether no other process uses the place; then none begins to before `close`."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Unlock it."""
        os.close(self.file)


class Held:
    """A place that this process uses, and its part in its release."""

    def __init__(self, lab: Lab, place: str, mark: Mark, token: str) -> None:
        self.lab, self.place = lab, place
        self.users = 1
        self.token = token
        self._mark = mark

    def end(self) -> None:
        """Release the place if Slipway acquired it and no other process uses it; cancel the reservation.

        After a failure `labgrid-client release` does it.
        """
        with uninterrupted(), contextlib.suppress(SlipwayError, self.lab.module.grpc.aio.AioRpcError):
            try:
                self.lab.sync()
                found = self.lab.session.places.get(self.place)
                ours = found is not None and found.acquired == self.lab.name and self._mark.is_ours(found.changed)
                if self._mark.last() and ours:
                    self.lab.ask("ReleasePlace", placename=self.place, fromuser=self.lab.name)
                if self.token:
                    self.lab.ask("CancelReservation", token=self.token)
            finally:
                self._mark.close()


_guard = threading.Lock()
_held: dict[tuple[str, str], Held] = {}


class Lease:
    """The use of a place: of one that this process has acquired, or that this user had. Ends with `close`."""

    def __init__(self, lab: Lab, key: tuple[str, str]) -> None:
        self.lab, self.place = lab, key[1]
        self._key, self._open = key, True
        atexit.register(self.close)

    def close(self) -> None:
        """End the use; the last user of this process releases the place, if it was acquired for this."""
        if not self._open:
            return
        self._open = False
        atexit.unregister(self.close)
        with _guard:
            held = _held[self._key]
            held.users -= 1
            if not held.users:
                del _held[self._key]
                held.end()
        self.lab.leave()


def lease(device: Device, wait: float = 0.0, say: Say = lambda _: None, deadline: Deadline = NEVER) -> Lease:
    """Acquire the device's place for this user, unless this user has it.

    Args:
        wait: seconds to wait for a place that others use, by a reservation in the coordinator's queue. The end of the
            wait, an error or Ctrl-C cancels it.
        say: called with what is waited for.

    Raises:
        ConfigError: no such place. DeviceBusyError: others had it all the time. UnreachableError.
    """
    lab = join(device, deadline)
    try:
        return _lease(lab, device, wait, say)
    except BaseException:
        lab.leave()
        raise


def _lease(lab: Lab, device: Device, wait: float, say: Say) -> Lease:
    wanted = candidates(lab, device)
    if taken := _taken(lab, device, wanted):
        return taken
    if wait <= 0:
        raise _busy(lab, device, wanted, "")
    with _reserved(lab, device, wanted, wait, say) as (name, token):
        lab.sync()
        place = lab.session.places.get(name)
        if place is not None and (taken := _taken(lab, device, [place], token)):
            return taken
        raise _busy(lab, device, wanted, "the coordinator gave it to somebody else")


def _taken(lab: Lab, device: Device, wanted: list[Any], token: str = "") -> Lease | None:
    """The use of one of the places; ``None`` if others have all of them."""
    with _guard:
        for place in wanted:  # what this process has: an attempt after the first, or another thread's
            if held := _held.get((lab.address, place.name)):
                held.users += 1
                held.token = held.token or token
                return Lease(lab, (lab.address, place.name))
        for place in wanted:
            if held := _acquired(lab, device, place, token):
                _held[lab.address, place.name] = held
                return Lease(lab, (lab.address, place.name))
    return None


def _acquired(lab: Lab, device: Device, place: Any, token: str) -> Held | None:
    """The place, acquired for this user; ``None`` if somebody else has acquired or reserved it."""
    mark = Mark.of(lab.address, lab.name, place.name)
    held = Held(lab, place.name, mark, token)
    try:
        if place.acquired != lab.name and lab.name not in place.allowed:
            if place.acquired:
                mark.close()
                return None
            _check_matches(lab, place)
            with interrupted_after():  # a Ctrl-C between the answer and the mark would leave the place acquired
                lab.ask("AcquirePlace", placename=place.name)
                lab.sync()
                mark.acquired(place.changed)
    except lab.module.grpc.aio.AioRpcError as error:
        mark.close()
        lab.sync()
        if error.code() == lab.module.grpc.StatusCode.PERMISSION_DENIED or place.acquired:
            return None
        raise DeviceBusyError(
            f"The labgrid coordinator {lab.address} does not grant {place.name} to {device.name}.",
            str(error.details()),
            f"labgrid-client -x {lab.address} -p {place.name} show",
        ) from error
    except BaseException:
        held.end()
        raise
    return held


def _check_matches(lab: Lab, place: Any) -> None:
    """Refuse a place of which an exporter is down, as labgrid's client does."""
    paths = [
        (exporter, group, entry.cls, name)
        for exporter, groups in list(lab.session.resources.items())
        for group, entries in list(groups.items())
        for name, entry in list(entries.items())
        if "cls" in entry.data  # what is gone stays as an entry without
    ]
    if match := place.unmatched(paths):
        raise ConfigError(
            f"The place {place.name} of {lab.address} is not complete.",
            f"nothing is exported for its match {match}: the exporter is down, or the match is wrong",
            f"labgrid-client -x {lab.address} -p {place.name} show",
            [str(match)],
        )


@contextlib.contextmanager
def _reserved(lab: Lab, device: Device, wanted: list[Any], wait: float, say: Say) -> Iterator[tuple[str, str]]:
    """The name of the place that the coordinator keeps for this user, and the reservation; cancelled after an error."""
    filters = dict(pair.split("=", 1) for pair in device.place_tags) or {"name": wanted[0].name}
    messages = lab.module.labgrid_coordinator_pb2
    patience = Deadline.after(wait)
    token = ""
    try:
        with interrupted_after():
            made = lab.ask("CreateReservation", filters={"main": messages.Reservation.Filter(filter=filters)}, prio=0.0)
            token = made.reservation.token
        said, pause = "", _FIRST
        while True:
            found = lab.module.Reservation.from_pb2(lab.ask("PollReservation", token=token).reservation)
            state = found.state.name
            if state in ("allocated", "acquired"):
                yield found.allocations["main"][0], token
                return
            if mine := [place.name for place in wanted if place.acquired == lab.name]:  # another process of this user
                lab.ask("CancelReservation", token=token)
                token = ""
                yield mine[0], ""
                return
            if state != "waiting":
                raise _busy(lab, device, wanted, f"its reservation {token} is {state}")
            if patience.over:
                raise _busy(lab, device, wanted, f"it was waited for {wait:.0f} s")
            before = _before(lab, token, filters)
            text = f"{device.name} waits up to {wait:.0f} s for {_users(wanted)}{before} (reservation {token})"
            if text != said:
                say(said := text)
            time.sleep(patience.left(pause))
            pause = min(_LONGEST, pause * 2)
    except BaseException:
        if token:
            with uninterrupted(), contextlib.suppress(SlipwayError, lab.module.grpc.aio.AioRpcError):
                lab.ask("CancelReservation", token=token)
        raise


def _before(lab: Lab, token: str, filters: dict[str, str]) -> str:
    """How many reservations for the same come first: ``, after 2 others``."""
    rows = [lab.module.Reservation.from_pb2(row) for row in lab.ask("GetReservations").reservations]
    same = [row for row in rows if row.state.name == "waiting" and row.filters.get("main") == filters]
    order = [row.token for row in sorted(same, key=lambda row: (-row.prio, row.created))]
    ahead = order.index(token) if token in order else 0
    return f", after {ahead} other{'s' if ahead > 1 else ''}" if ahead else ""


def _users(wanted: list[Any]) -> str:
    """Who has which place: ``the place pi4, which alice/laptop has``."""
    names = [f"{place.name} ({place.acquired or 'reserved'})" for place in wanted]
    return f"the place{'s' if len(names) > 1 else ''} {', '.join(names)}"


def candidates(lab: Lab, device: Device) -> list[Any]:
    """The places that may be the device: the one it names, or all with its tags; places of this user first.

    Raises:
        ConfigError: there is none.
    """
    places = dict(lab.session.places)
    pattern = device.place or ("" if device.place_tags else os.environ.get(PLACE, ""))
    if device.place_tags:
        tags = dict(pair.split("=", 1) for pair in device.place_tags)
        found = [
            place for _, place in sorted(places.items()) if tags.items() <= {**place.tags, "name": place.name}.items()
        ]
        what = f"place with the tags {', '.join(device.place_tags)}"
    elif pattern.startswith("+"):
        token = pattern[1:] or os.environ.get(TOKEN, "")
        found = [place for place in places.values() if token and place.reservation == token]
        what = f"place for the reservation {token or f'of {TOKEN}, which is not set'}"
    elif pattern:
        found = [place for place in places.values() if pattern == place.name or pattern in _aliases(lab, place)]
        what = f"place {pattern!r}"
    else:
        raise ConfigError(
            f"{device.name} does not name a labgrid place.",
            f"its table lacks place and place_tags, and {PLACE} is not set",
            f"export {PLACE}=NAME, or place = in the table [{device.name}]",
        )
    if not found:
        names = sorted(places)
        there = f"there are {', '.join(names) or 'none'}"
        if device.place_tags:
            known = dict.fromkeys(f"{key}={value}" for name in names for key, value in places[name].tags.items())
            there = f"{there}, with {', '.join(sorted(known)) or 'no tags'}"
        else:
            there = (
                suggestion(pattern, {*names, *(each for name in names for each in _aliases(lab, places[name]))}) + there
            )
        raise ConfigError(
            f"The labgrid coordinator {lab.address} has no {what}.", there, _correction(lab, device, pattern), names
        )
    return sorted(found, key=lambda place: (place.acquired != lab.name, bool(place.acquired), bool(place.reservation)))


def _correction(lab: Lab, device: Device, pattern: str) -> str:
    """The next step if no place is like ``pattern``, or has the device's tags."""
    client = f"labgrid-client -x {lab.address}"
    if pattern.startswith("+"):
        tokens = f"{client} reservations shows those that there are"
        return tokens if pattern[1:] or os.environ.get(TOKEN) else f"export {TOKEN}=TOKEN; {tokens}"
    if device.place or device.place_tags:
        return f"correct {'place' if device.place else 'place_tags'} = in the table [{device.name}] of devices.toml"
    return f"export {PLACE}=NAME; {client} places shows them"


def _aliases(lab: Lab, place: Any) -> set[str]:
    """Its aliases; those in another user's namespace (``alice:board``) are not for this one."""
    user = lab.session.getuser()
    return {alias.removeprefix(f"{user}:") for alias in place.aliases}


def _busy(lab: Lab, device: Device, wanted: list[Any], why: str) -> DeviceBusyError:
    place = wanted[0]
    holder = place.acquired or ""
    state = "acquired" if holder else "reserved"
    others = f", as {len(wanted) - 1} more are" if len(wanted) > 1 else ""
    return DeviceBusyError(
        f"{device.name} is in use{f' by {holder}' if holder else ''}: the place {place.name} is {state}{others}.",
        why or f"the lab's coordinator at {lab.address} gives a place to one at a time",
        f"a longer INVOKE_SLIPWAY_WAIT, or see labgrid-client -x {lab.address} -p {place.name} show",
        (holder,) if holder else (),
    )
