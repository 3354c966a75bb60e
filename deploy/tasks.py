"""The tasks ``devices.*``: the inventory, virtual devices, and the upkeep of real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import invoke

from core import console
from core.cli.task import JSON, number, setting, task


@task(help={"json": JSON}, name="list")
def devices_list(c: Any, json: bool = False) -> None:
    """List the devices of the inventory, whether the virtual ones are up, and what adb sees beside them."""
    from deploy.upkeep import report_devices

    report_devices.devices(json)


@task(
    auto_shortflags=False,
    help={
        "adb": "a phone's serial as adb devices shows it, address:port, or 'any' for the only one attached",
        "ssh": "USER@HOST, USER@HOST:PORT, USER@[IPV6]:PORT, or a Host of your ~/.ssh/config",
        "name": "its name (default: its model's or its host's name)",
        "json": JSON,
    },
    name="add",
)
def devices_add(c: Any, adb: str = "", ssh: str = "", name: str = "", json: bool = False) -> None:
    """Look at a device, choose its target, and write it into your own inventory.

    The inventory is devices.toml in your configuration folder, or the file that SLIPWAY_DEVICES_FILE names.

    Example: ./inv devices.add --adb R5CT200ABCD --name phone
    """
    from deploy.upkeep import enrol, report_devices

    report_devices.added(enrol.add(adb, ssh, name), json)


@task(
    auto_shortflags=False,
    positional=["device", "executable"],
    help={
        "device": "a device of the inventory",
        "executable": "the file to run there, statically linked or for the device's own libraries",
        "args": "its arguments, quoted as for a shell",
        "files": "comma-separated files to put beside it; it runs in their folder",
        "timeout": "seconds from connecting to the end (default: the device's own, else 600)",
        "json": "print streams and exit status as JSON instead of passing them on",
    },
    name="run",
)
def devices_run(
    c: Any, device: str, executable: str, args: str = "", files: str = "", timeout: str = "", json: bool = False
) -> None:
    """Push any executable to a device, run it there, pass on its streams and its exit status.

    Example: ./inv devices.run phone ./hello --args "one 'two words'"
    """
    from deploy.devices.inventory import get_device
    from deploy.run import execute
    from deploy.upkeep import report_devices

    done = execute.execute(
        get_device(device),
        Path(executable),
        execute.split(args),
        [Path(name.strip()) for name in files.split(",") if name.strip()],
        number("timeout", setting(c, "timeout", timeout), 1, 0, whole=False),
        say=console.note,
    )
    report_devices.executed(done, json)
    if done.code:
        raise invoke.exceptions.Exit(None, done.code)


@task(
    resumes="the same command again; the image is kept",
    help={"name": "the virtual device to boot: pi, pi-zero, phone, ... (./inv devices.list)", "json": JSON},
    name="start",
)
def devices_start(c: Any, name: str, json: bool = False) -> None:
    """Boot a virtual device and wait until it answers.

    It ends by itself after a time of disuse; ./inv devices.stop ends it now.

    Example: ./inv devices.start pi
    """
    from deploy.upkeep import report_devices
    from deploy.virtual.machines import start

    start(name)
    report_devices.devices(json, name)


@task(help={"name": "the virtual device to stop", "json": JSON}, name="stop")
def devices_stop(c: Any, name: str, json: bool = False) -> None:
    """Stop a virtual device; only its cached image stays.

    Example: ./inv devices.stop pi
    """
    from deploy.upkeep import report_devices
    from deploy.virtual.machines import stop

    stop(name)
    report_devices.devices(json, name)


@task(
    help={
        "name": "a device of the inventory, a Host of your ~/.ssh/config, or an address as for devices.add",
        "fingerprint": "SHA256:... as the device itself shows it, instead of a prompt",
        "replace": "replace the key that is known now",
        "json": JSON,
    },
    name="trust",
)
def devices_trust(c: Any, name: str, fingerprint: str = "", replace: bool = False, json: bool = False) -> None:
    """Learn a device's host key once: shows its fingerprint, prompts, and stores it in the file of known hosts.

    No other command accepts a key. It also prompts for jump hosts on the way.

    Example: ./inv devices.trust shelf-pi
    """
    from deploy.upkeep import report as report_upkeep
    from deploy.upkeep.trust import device_of, trust

    report_upkeep.trusted(trust(device_of(name), fingerprint, replace), json)


@task(
    help={
        "name": "the device",
        "target": "which target's bundle, when the device has several",
        "engine": "which engine's bundle, when the device has several",
        "json": JSON,
    },
    name="rollback",
)
def devices_rollback(c: Any, name: str, target: str = "", engine: str = "", json: bool = False) -> None:
    """Roll back to the previous bundle, after the device verified its files.

    Example: ./inv devices.rollback local
    """
    from deploy.devices.inventory import get_device
    from deploy.upkeep import report as report_upkeep
    from deploy.upkeep.upkeep import rollback

    report_upkeep.rolled(name, rollback(get_device(name), target, engine), json)


@task(
    help={
        "name": "the device",
        "days": "remove files that were not used for this number of days (default: the device's store_days, else 30)",
        "gib": "remove the least recently used beyond so much (default: the device's store_gib, else 4)",
        "json": JSON,
    },
    name="gc",
)
def devices_gc(c: Any, name: str, days: str = "", gib: str = "", json: bool = False) -> None:
    """Remove old programs and bundles from a device; current bundles and the ones before them stay.

    A deploy does the same by itself, within the limits of the inventory.

    Example: ./inv devices.gc local --days 7
    """
    from deploy.devices.inventory import get_device
    from deploy.upkeep import report as report_upkeep
    from deploy.upkeep.upkeep import collect

    days_kept = number("days", days, 0, -1, whole=False)
    gib_kept = number("gib", gib, 0, -1, whole=False)
    device = get_device(name)
    done = collect(device, None if days_kept < 0 else days_kept, None if gib_kept < 0 else gib_kept)
    report_upkeep.collected(name, done, json)


@task(help={"name": "the device", "json": JSON}, name="verify")
def devices_verify(c: Any, name: str, json: bool = False) -> None:
    """Have a device compute the digest of every file that it keeps, and name damaged files.

    A deploy does so by itself for files that changed since their verification, and after verify_days.

    Example: ./inv devices.verify local
    """
    from deploy.devices.inventory import get_device
    from deploy.upkeep import report as report_upkeep
    from deploy.upkeep.upkeep import verify

    report_upkeep.checked(name, verify(get_device(name)), json)


devices = invoke.Collection(
    "devices",
    devices_list,
    devices_add,
    devices_run,
    devices_start,
    devices_stop,
    devices_trust,
    devices_rollback,
    devices_gc,
    devices_verify,
)
