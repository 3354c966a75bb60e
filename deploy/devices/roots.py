"""Ownership of a device's root: Slipway uses only a folder that it made or got empty, and that others cannot change.

A root is ours if it has ``.slipway-root``, the first file that is written into a new or empty folder: the format's
version and an id of its own. It must belong to the login's user, and so must the folders in it; nobody
else may write to them, and they must not be links. Each folder above it belongs to the login's user or to root
(or the owner of ``/``), and others may write to it only if it is sticky, as ``/tmp`` is; a link above it belongs to
one of these two as well. Of Android's ``/data/local/tmp``, what is above it is the system's.
"""

from __future__ import annotations

import secrets

from core.errors import RootError
from core.paths import cache_dir
from deploy.devices.inventory import Device

MARKER = ".slipway-root"

_WHY = {
    "home": ("its login has no HOME, and the root is a folder below it", "set root to an absolute folder"),
    "link": ("{path} is a link; what it points to may be anything", "set root to the folder itself, not to a link"),
    "kind": ("{path} is neither a folder nor a marker of Slipway", "set root to a folder of its own"),
    "owner": ("{path} belongs to another user, who can put anything there", "set root to a folder of the login's own"),
    "open": ("others may write to {path}", "chmod go-w {path} on the device if only you use it, or set another root"),
    "unseen": ("{path} cannot be looked at", "see that the login's user may list the folders above it"),
    "name": ("{path} leads to a folder with a line break in its name", "set root to another folder"),
    "marker": ("{path} is not a marker that this version knows", "update Slipway, or set another root"),
}


def new_id() -> str:
    """An id for a new root."""
    return secrets.token_hex(16)


def refusal(device: str, why: str, path: str) -> RootError:
    """The error for a root that Slipway refuses to use; nothing in it was changed.

    Args:
        why: the reason that ``deploy/scripts/lock.sh`` reports.
        path: the path concerned; of a folder that is not Slipway's, a file in it.
    """
    file = f" for {device} in devices.toml"
    if why == "unmarked":
        root, _, foreign = path.rpartition("/")
        return RootError(
            f"The root {root} on {device} is not Slipway's.",
            f"it has no {MARKER}, and it holds {foreign}; Slipway removes files in its root, so it takes only a new or "
            "empty folder",
            f"set root to a folder of its own{file} (without root it is .slipway in the login's home)",
            (foreign,),
        )
    cause, hint = _WHY.get(why, ("{path}: " + why, "set another root"))
    return RootError(
        f"The root on {device} is not safe.", cause.format(path=path), hint.format(path=path) + file, (path,)
    )


def device_root(device: Device) -> str:
    """The folder of Slipway's files on ``device``: the inventory's ``root``, or its transport's default."""
    if device.root:
        return device.root
    if device.transport == "local":
        return str(cache_dir("devices", device.name.replace(":", "-")))
    if device.transport == "adb":
        from deploy.transport.adb.transport import HOME

        return f"{HOME}/slipway"
    return ".slipway"
