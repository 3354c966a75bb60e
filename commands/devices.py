"""The options of ``devices.*``: the inventory, virtual devices, and the upkeep of real ones."""

from __future__ import annotations

from commands.shared import TIMEOUT, device_names
from core.cli.request import Reported, Request, option


class List(Reported):
    """List the devices of the inventory, whether the virtual ones are up, and what adb sees beside them."""


class Add(Reported):
    """Look at a device, choose its target, and write it into your own inventory.

    The inventory is devices.toml in your configuration folder, or the file that SLIPWAY_DEVICES_FILE names.

    Example: ./inv devices.add --adb R5CT200ABCD --name phone
    """

    letters = False

    adb: str = option("a phone's serial as adb devices shows it, address:port, or 'any' for the only one attached")
    ssh: str = option("USER@HOST, USER@HOST:PORT, USER@[IPV6]:PORT, or a Host of your ~/.ssh/config")
    name: str = option("its name (default: its model's or its host's name)")


class Run(Reported):
    """Push any executable to a device, run it there, pass on its streams and its exit status.

    Example: ./inv devices.run phone ./hello --args "one 'two words'"
    """

    letters = False

    device: str = option("a device of the inventory", positional=True, names=device_names)
    executable: str = option(
        "the file to run there, statically linked or for the device's own libraries", positional=True
    )
    args: str = option("its arguments, quoted as for a shell")
    files: str = option("comma-separated files to put beside it; it runs in their folder")
    timeout: str = TIMEOUT
    json: bool = option("print streams and exit status as JSON instead of passing them on", False)


class Start(Reported):
    """Boot a virtual device and wait until it answers.

    It ends by itself after a time of disuse; ./inv devices.stop ends it now.

    Example: ./inv devices.start pi
    """

    resumes = "the same command again; the image is kept"

    name: str = option(
        "the virtual device to boot: pi, pi-zero, phone, ... (./inv devices.list)", positional=True, names=device_names
    )


class Stop(Request):
    """Stop a virtual device; only its cached image stays.

    Example: ./inv devices.stop pi
    """

    name: str = option("the virtual device to stop", positional=True, names=device_names)


class Trust(Request):
    """Learn a device's host key once: shows its fingerprint, prompts, and stores it in the file of known hosts.

    No other command accepts a key. It also prompts for jump hosts on the way.

    Example: ./inv devices.trust shelf-pi
    """

    name: str = option(
        "a device of the inventory, a Host of your ~/.ssh/config, or an address as for devices.add",
        positional=True, names=device_names,
    )  # fmt: skip
    fingerprint: str = option("SHA256:... as the device itself shows it, instead of a prompt")
    replace: bool = option("replace the key that is known now", False)


class Rollback(Request):
    """Roll back to the previous bundle, after the device verified its files.

    Example: ./inv devices.rollback local
    """

    name: str = option("the device", positional=True, names=device_names)
    bundle: str = option("which one, when the device has several, as linux-arm64-lean")


class Verify(Reported):
    """Have a device compute the digest of every file that it keeps, and name damaged files.

    A deploy does so by itself for files that changed since their verification, and after verify_days.

    Example: ./inv devices.verify local
    """

    name: str = option("the device", positional=True, names=device_names)
