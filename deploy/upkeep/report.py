"""Tables and JSON about devices: the inventory, what adb sees beside it, and the outcomes of managing a device."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core import console
from core.console.units import amount, counted
from core.errors import SlipwayError
from core.plain import plain

if TYPE_CHECKING:
    from deploy.devices.inventory import Device
    from deploy.run.execute import Executed
    from deploy.store.gc import Collected
    from deploy.transport.adb.server import Seen
    from deploy.upkeep.enrol import Added, Trusted
    from deploy.upkeep.upkeep import Checked, Rolled


def devices(as_json: bool = False, name: str = "") -> None:
    """Print the inventory (or the one device ``name``), with the state of virtual and adb devices.

    What adb sees and the inventory lacks is listed too. Nothing is started for it.
    """
    from deploy.devices.inventory import get_device, load_devices

    chosen = {name: get_device(name)} if name else load_devices()
    attached, complaint = _attached() if not name or chosen[name].transport == "adb" else ([], "")
    rows = [(device, *_state(device, attached)) for device in chosen.values()]
    known = {device.serial for device in chosen.values()}
    strangers = [] if name else [seen for seen in attached if seen.serial not in known]
    if as_json:
        found = [{**device.model_dump(mode="json"), "state": state, "address": at} for device, state, at in rows]
        found += [
            {"name": "", "transport": "adb", "serial": seen.serial, "state": seen.state, "title": seen.model}
            for seen in strangers
        ]
        console.print_json(found)
        return
    models = [] if name else [device for device, _, _ in rows if device.cpu]
    cells = [
        [device.name, state, device.target, at or _address_of(device), device.title, device.transport,
         " ".join(device.tags)]
        for device, state, at in rows if device not in models
    ]  # fmt: skip
    cells += [["–", seen.state, "?", seen.serial, seen.model, "adb", ""] for seen in strangers]
    console.table(
        "Devices",
        ["device", "state", "target", "where", "what", "transport", "tags"],
        cells,
        complaint,
        optional=("tags", "transport", "where"),
    )
    for seen in strangers:
        console.say(f"To add {seen.model or seen.serial}: ./inv devices.add --adb {seen.serial}")
    if models:
        console.say(f"CPU models of QEMU, which need no boot: {', '.join(device.name for device in models)}")


def added(value: Added, as_json: bool = False) -> None:
    """Print a device that was added."""
    device, facts = value.device, value.facts
    if as_json:
        console.print_json(
            {"device": device.model_dump(mode="json"), "facts": facts.model_dump(mode="json"), "file": str(value.file)}
        )
        return
    rows = [
        ["name", device.name],
        ["what", device.title],
        ["where", f"{device.transport}: {_address_of(device)}"],
        ["system", f"{facts.system} {facts.kernel}" + (f", API level {facts.api_level}" if facts.api_level else "")],
        ["machine", " · ".join(part for part in (facts.machine, facts.cpu, f"{facts.cores} cores") if part)],
        ["ABIs", " ".join(facts.abis) or facts.libc or "unknown"],
        ["target", device.target],
        ["root", facts.root],
    ]
    console.table("Added", ["device", ""], rows, f"Written to {value.file}. Next: ./inv deploy --device {device.name}")


def executed(value: Executed, as_json: bool = False) -> None:
    """Pass on what an executable wrote, stream by stream, or all of it as JSON.

    A file or a pipe gets the exact bytes; a terminal gets `plain` text, since a device must not control it.
    """
    if as_json:
        console.print_json(value.to_json())
        return
    for stream, data in ((sys.stderr, value.stderr), (sys.stdout, value.stdout)):
        stream.flush()
        if stream.isatty():
            stream.write(plain(data.decode(errors="replace")))
        else:
            stream.buffer.write(data)
        stream.flush()
    sent = f"{value.uploaded:,} bytes uploaded" if value.uploaded else "nothing to upload"
    console.note(f"{value.argv[0]} on {value.device}: exit {value.code} after {value.seconds:.1f} s; {sent}")


def _address_of(device: Device) -> str:
    if device.transport == "local":
        return "here"
    if device.virtual:
        return f"virtual {device.virtual}"
    if device.source:
        tags = f"with {', '.join(device.place_tags)}" if device.place_tags else ""
        return f"{device.source} place {device.place or tags or '$LG_PLACE'}"
    if device.transport == "adb":
        return device.serial or "the only one attached"
    user = f"{device.user}@" if device.user else ""
    return f"{user}{device.host}" + (f":{device.port}" if device.port else "")


def _attached() -> tuple[list[Seen], str]:
    """The devices that adb's server sees, if one is up, and a complaint if it cannot be read."""
    from deploy.transport.adb.port import default_port, listens

    try:
        if not listens(default_port()):
            return [], ""
        from deploy.transport.adb.server import listed, users_server

        server = users_server(start=False)
        return (listed(server) if server is not None else []), ""
    except SlipwayError as error:
        return [], str(error)


def _state(device: Device, attached: list[Seen]) -> tuple[str, str]:
    """State and, if known from elsewhere than the inventory, address.

    ``up``, ``booting`` or ``down`` for a virtual device; ``not asked`` for a real one over SSH or of a lab.
    """
    if device.virtual:
        from deploy.virtual.machines import HOST, status

        now = status(device.virtual)
        return str(now), f"{HOST}:{now.port}" if now.port else ""
    if device.transport == "adb" and not device.source:
        if not device.serial:
            return ", ".join(sorted({seen.state for seen in attached})) or "not asked", ""
        return next((seen.state for seen in attached if seen.serial == device.serial), "not attached"), ""
    return "up" if device.transport == "local" else "not asked", ""


def trusted(hosts: Sequence[Trusted]) -> None:
    """Print the hosts whose keys are on record now."""
    rows = [[host.host, host.kind, host.fingerprint, host.outcome, console.shown(host.file)] for host in hosts]
    # A fingerprint in pieces can be neither compared nor copied.
    console.table("Host keys", ["host", "kind", "fingerprint", "key", "file"], rows, optional=("file", "kind"))


def rolled(device: str, value: Rolled) -> None:
    """Print the bundle that is current now."""
    rows = [["current", value.now], ["the one before", value.before or "none"]]
    console.table(f"Bundles of {device}", ["", "bundle"], rows)


def collected(device: str, value: Collected, as_json: bool = False) -> None:
    """Print what was removed."""
    rows = [
        ["removed", f"{len(value.removed)} entries, {amount(value.bytes)}"],
        ["left", f"{counted(value.left_files, 'file')}, {amount(value.left_bytes)}"],
    ]
    _of_device(device, value, as_json, rows)


def checked(device: str, value: Checked, as_json: bool = False) -> None:
    """Print what a full look found; then raise `TransferError` when something is damaged."""
    rows = [["verified", f"{counted(value.files, 'file')}, {amount(value.bytes)} read"]]
    rows += [["damaged", path] for path in value.damaged]
    if value.caches:
        packed = counted(value.caches, "file")
        rows.append(["removed", f"{packed} of packed weights, which the next runs make again"])
    _of_device(device, value, as_json, rows)
    value.check(device)


def _of_device(device: str, value: Collected | Checked, as_json: bool, rows: list[list[str]]) -> None:
    if as_json:
        console.print_json({"device": device, **dataclasses.asdict(value)})
    else:
        console.table(f"Store of {device}", ["", ""], rows)
