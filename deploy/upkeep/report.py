"""The outcomes of managing a device, for people and machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core import console
from core.console.units import counted

if TYPE_CHECKING:
    from deploy.store.gc import Collected
    from deploy.upkeep.trust import Trusted
    from deploy.upkeep.upkeep import Checked, Rolled


def trusted(hosts: Sequence[Trusted], as_json: bool = False) -> None:
    """Print the hosts whose keys are on record now."""
    if as_json:
        console.print_json([dataclasses.asdict(host) for host in hosts])
        return
    rows = [[host.host, host.kind, host.fingerprint, host.outcome, console.shown(host.file)] for host in hosts]
    # A fingerprint in pieces can be neither compared nor copied.
    optional = ("file", "kind")
    console.table("Host keys", ["host", "kind", "fingerprint", "key", "file"], rows, optional=optional)


def rolled(device: str, value: Rolled, as_json: bool = False) -> None:
    """Print the bundle that is current now."""
    if as_json:
        console.print_json({"device": device, **dataclasses.asdict(value)})
        return
    rows = [["current", value.now], ["the one before", value.before or "none"]]
    console.table(f"Bundles of {device}", ["", "bundle"], rows)


def collected(device: str, value: Collected, as_json: bool = False) -> None:
    """Print what was removed."""
    if as_json:
        console.print_json({"device": device, **dataclasses.asdict(value)})
        return
    from deploy.run.preflight import size

    rows = [
        ["removed", f"{len(value.removed)} entries, {size(value.bytes)}"],
        ["left", f"{counted(value.left_files, 'file')}, {size(value.left_bytes)}"],
    ]
    console.table(f"Store of {device}", ["", ""], rows)


def checked(device: str, value: Checked, as_json: bool = False) -> None:
    """Print what a full look found; then raise `TransferError` when something is damaged."""
    if as_json:
        console.print_json({"device": device, **dataclasses.asdict(value)})
    else:
        from deploy.run.preflight import size

        rows = [["verified", f"{counted(value.files, 'file')}, {size(value.bytes)} read"]]
        rows += [["damaged", path] for path in value.damaged]
        if value.caches:
            packed = counted(value.caches, "file")
            rows.append(["removed", f"{packed} of packed weights, which the next runs make again"])
        console.table(f"Store of {device}", ["", ""], rows)
    value.check(device)
