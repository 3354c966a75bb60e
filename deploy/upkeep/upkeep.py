"""Management of a device's store: roll back to the previous bundle, verify, and remove old files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from core import console
from core.errors import BundleError, ConfigError, TransferError
from deploy.devices.inventory import Device
from deploy.devices.probe import device_root, probe
from deploy.lab.labgrid import borrowed
from deploy.run.connect import open_device, ready
from deploy.store import gc
from deploy.store.gc import Collected
from deploy.store.store import Look, Store, Survey
from deploy.store.vouch import Records
from deploy.transport.deadline import Deadline

_WAIT = 60.0
"""Seconds to wait for a device that others use."""


@dataclass(frozen=True)
class Rolled:
    """A completed rollback: digests of bundles."""

    now: str
    before: str


@dataclass(frozen=True)
class Checked:
    """A full look at a device's store."""

    files: int
    bytes: int
    """Bytes of the files whose digest was computed; several links to one file count once."""
    damaged: tuple[str, ...]
    """Paths below the root of damaged or missing files."""
    caches: int = 0
    """Removed files of packed weights: nobody knows their digests, and the next run makes them again."""

    def check(self, device: str) -> None:
        """Raise `TransferError` when something is damaged."""
        if self.damaged:
            shown = ", ".join(self.damaged[:5]) + (f" and {len(self.damaged) - 5} more" if self.damaged[5:] else "")
            raise TransferError(
                f"{len(self.damaged)} of {self.files} files in the store of {device} are damaged.",
                f"their SHA-256 is not the one they are named after: {shown}",
                f"./inv deploy --device {device} uploads again what it needs of them, "
                f"./inv clean --device {device} --days 0 removes what no current bundle needs",
                self.damaged,
            )


def rollback_bundle(store: Store, key: str, deadline: Deadline) -> Rolled:
    """Let ``current/<key>`` be what ``previous/<key>`` is, after the device verified every file of it.

    Raises:
        ConfigError: there is no previous bundle. BundleError: it is damaged.
    """
    listing, device = gc.listed(store, deadline), store.transport.name
    now, before = (listing.links.get(f"{link}/{key}", "") for link in ("current", "previous"))
    again = f"./inv deploy --device {device}"
    if before in ("", now):
        raise ConfigError(
            f"{device} keeps no bundle before the current one of {key}.",
            "only one was ever deployed there, or the one before was removed",
            again,
        )
    files = {path: sha256 for path, sha256 in listing.files.items() if path.startswith(f"bundles/{before}/")}
    found = store.verify(files, deadline)
    damaged = [path for path, sha256 in files.items() if path not in found or found[path][0] != sha256]
    if damaged or not files:
        raise BundleError(
            f"The bundle before the current one of {key} is damaged on {device}; nothing was changed.",
            ", ".join(damaged) or "it has no manifest",
            again,
        )
    store.flip(key, before, deadline)
    return Rolled(before, now)


@contextmanager
def _opened(device: Device) -> Iterator[tuple[Store, Survey, Deadline]]:
    """The device's store, locked.

    Raises:
        ConfigError: the device has no store. DeviceBusyError: others use it.
    """
    ready(device)
    with borrowed(device, _WAIT, console.note) as held, open_device(held, Deadline.after(device.timeout)) as transport:
        facts = probe(transport, device_root(device), None, Deadline.after(device.timeout))
        with Store(transport, facts.root) as store:
            # The lock holds for what follows, too.
            survey = store.open([], Deadline.after(2 * device.timeout + _WAIT), wait=_WAIT)
            if survey is None:
                raise ConfigError(
                    f"{device.name} has no store in {facts.root}.",
                    "nothing was deployed there yet",
                    f"./inv deploy --device {device.name}",
                )
            yield store, survey, Deadline.after(device.timeout)


def rollback(device: Device, bundle: str = "") -> Rolled:
    """Roll back to the previous bundle. If several are current, ``bundle`` says which one: ``linux-arm64-lean``.

    Raises:
        ConfigError: nothing to go back to, or several that could be meant. BundleError: it is damaged.
    """
    with _opened(device) as (store, survey, deadline):
        keys = [key for key in survey.current if bundle in ("", key)]
        if len(keys) != 1:
            raise ConfigError(
                f"{device.name} has {'several current bundles' if keys else 'no current bundle of that name'}.",
                f"there are {', '.join(sorted(survey.current)) or 'none'}",
                f"./inv devices.rollback {device.name} --bundle {min(survey.current, default='NAME')}",
                sorted(survey.current),
            )
        return rollback_bundle(store, keys[0], deadline)


def verify(device: Device) -> Checked:
    """Compute the digest of every file in the device's store, and record the good ones for later deploys.

    Only packed weights are removed: a deploy verifies the other files itself and uploads damaged ones again.

    Raises:
        ConfigError: there is no store. DeviceBusyError: others use it. SlipwayError: what connecting raises.
    """
    with _opened(device) as (store, _, deadline):
        listing = gc.listed(store, deadline)
        blobs = {f"store/{name}": name for name in listing.blobs if re.fullmatch(r"[0-9a-f]{64}", name)}
        expected = {**blobs, **listing.files}
        looks = store.survey(expected, deadline).looks
        once: dict[Look, str] = {}
        for path, look in looks.items():
            once.setdefault(look, path)
        records = Records.of(store.lock.id)
        found = store.verify(once.values(), deadline)
        damaged = []
        for path, sha256 in expected.items():
            answer = found.get(once[looks[path]]) if path in looks else None
            if answer is not None and answer[0] == sha256:
                records.note(sha256, answer[1], time.time())
            else:
                damaged.append(path)
        for path in damaged:
            records.forget(expected[path])
        records.save()
        caches = [entry.name for entry in listing.weights.values()]
        store.discard(caches, deadline)
        return Checked(len(expected), sum(look.size for look in once), tuple(damaged), len(caches))


def collect(device: Device, days: float | None = None) -> Collected:
    """Remove files unused for ``days`` days (by default the device's own limit) and those above its size."""
    with _opened(device) as (store, survey, deadline):
        store.discard(survey.stale, deadline)
        max_days = device.store_days if days is None else days
        return gc.collect(store, deadline, max_bytes=device.store_gib * (1 << 30), max_days=max_days)
