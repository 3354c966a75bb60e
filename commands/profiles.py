"""``./inv profiles``: Conan's profiles in a folder of the user's."""

from __future__ import annotations

from pathlib import Path

from core.cli.task import Words
from core.errors import UsageError


def run(words: Words) -> None:
    """Write the profiles that the arguments of ``./inv profiles`` name, and print them.

    Raises:
        UsageError: no folder was named.
    """
    if not words["output"]:
        raise UsageError("./inv profiles needs a folder.", "", "./inv profiles --output profiles")
    from toolchains.bundle import profiles

    names = [name for name in (part.strip() for part in words["target"].split(",")) if name]
    profiles.report(Path(words["output"]), names, words["toolchain"], words["json"])
