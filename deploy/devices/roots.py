"""Whose a device's root is: only a folder that Slipway made or was given empty, and that nobody else can change.

A root is ours when it holds ``.slipway-root``, which is written into a new or empty folder before anything else:
the format's version and an id of its own. It must belong to the login's user, and so must the folders in it; nobody
else may write to them, and none of them may be a link. Each folder above it belongs to the login's user or to root
(or whoever owns ``/``), and others may write to it only if it is sticky, as ``/tmp`` is; a link above it belongs to
one of these two as well. Of Android's ``/data/local/tmp``, what is above it is the system's.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from core.errors import RootError

MARKER = ".slipway-root"

_SHOWN = 5
_WHY = {
    "home": ("its login has no HOME, and the root is a folder below it", "set root to an absolute folder"),
    "link": ("{path} is a link; what it points to may be anything", "set root to the folder itself, not to a link"),
    "kind": ("{path} is neither a folder nor a mark of Slipway's", "set root to a folder of its own"),
    "owner": ("{path} belongs to another user, who can put anything there", "set root to a folder of the login's own"),
    "open": ("others may write to {path}", "chmod go-w {path} on the device if only you use it, or set another root"),
    "unseen": ("{path} cannot be looked at", "see that the login's user may list the folders above it"),
    "name": ("{path} leads to a folder with a line break in its name", "set root to another folder"),
    "marker": ("{path} is not a mark that this version knows", "update Slipway, or set another root"),
}


def new_id() -> str:
    """An id for a root that is made now."""
    return secrets.token_hex(16)


def refusal(device: str, why: str, path: str, foreign: Sequence[str] = (), lacks: Sequence[str] = ()) -> RootError:
    """The error for a root that the device refused to use: nothing in it was changed.

    Args:
        why: the word of ``deploy/scripts/lib/root.sh``.
        path: what it is about.
        foreign: what lies there that is not Slipway's.
        lacks: what every root of an earlier version had, and this one has not.
    """
    what = (
        f"The root {path} on {device} is not Slipway's." if why == "unmarked" else f"The root on {device} is not safe."
    )
    file = f" for {device} in devices.toml"
    if why == "unmarked":
        shown = ", ".join(foreign[:_SHOWN]) + (f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else "")
        return RootError(
            what,
            f"it has no {MARKER}, and "
            + (f"it holds {shown}" if shown else f"it is not empty and lacks {', '.join(lacks) or 'the layout of one'}")
            + "; Slipway removes files in its root, so it takes only a new or empty folder",
            f"set root to a folder of its own{file} (without root it is .slipway in the login's home)",
            tuple(foreign),
        )
    cause, hint = _WHY.get(why, ("{path}: " + why, "set another root"))
    return RootError(what, cause.format(path=path), hint.format(path=path) + file, (path,))
