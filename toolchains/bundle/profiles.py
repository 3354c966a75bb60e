"""``./inv build --profiles``: Conan's profiles in a folder of the user's, for projects that Slipway does not build.

They are those of Slipway's own builds, so Conan computes the same package ids: packages that were built here, or come
from a remote, fit them. They name compilers and caches of this machine, as every Conan profile does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core import console
from core.errors import ConfigError
from core.files import write_atomic
from toolchains.bundle import conan
from toolchains.compilers.families import family
from toolchains.targets import Target, get_target, load_targets

BUILD = "build"
"""Name of the profile of this machine, for ``--profile:build``."""
_MARK = "# Written by ./inv build --profiles"
"""How such a file begins: others are not replaced."""


@dataclass(frozen=True)
class Profile:
    """A profile to write."""

    name: str
    """Of the file: the target's, or `BUILD`."""
    toolchain: str
    text: str

    @property
    def option(self) -> str:
        """Conan's option that takes it."""
        return "--profile:build" if self.name == BUILD else "--profile:host"


def usable(toolchain: str = "") -> tuple[list[Target], dict[str, str]]:
    """The targets that this machine compiles for, and why not for the others, by name."""
    targets = load_targets()
    reasons = {name: family(toolchain or target.default_toolchain).usable(target) for name, target in targets.items()}
    found = [target for name, target in targets.items() if not reasons[name]]
    return found, {name: reason for name, reason in reasons.items() if reason}


def make(targets: Sequence[Target], toolchain: str = "") -> list[Profile]:
    """The profiles of targets and of this machine; compilers are fetched where needed.

    Raises:
        ConfigError: that family does not build a target.
        HostError: this machine lacks something.
    """
    chosen = [(target, target.toolchain(toolchain)) for target in targets]
    made = [Profile(target.name, name, conan.profile_text(target.built_with(name), name)) for target, name in chosen]
    return [*made, Profile(BUILD, "", conan.build_profile_text())]


def write(folder: Path, profiles: Sequence[Profile]) -> list[Path]:
    """Write the profiles into ``folder``, which is made; their paths.

    Raises:
        ConfigError: a file of that name is not one of these profiles; nothing is written then.
    """
    files = [folder / profile.name for profile in profiles]
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder.", "", "./inv build --profiles OTHER")
    for file in files:
        if file.exists() and not (file.is_file() and file.read_bytes().startswith(_MARK.encode())):
            raise ConfigError(
                f"{file} is there already, and ./inv build --profiles did not write it.",
                "it may be a profile of yours",
                "./inv build --profiles OTHER",
            )
    folder.mkdir(parents=True, exist_ok=True)
    for file, profile in zip(files, profiles, strict=True):
        with_what = f" with {profile.toolchain}" if profile.toolchain else ""
        write_atomic(file, f"{_MARK}: {profile.name}{with_what}, for {profile.option}.\n{profile.text}")
    return files


def report(output: Path, names: Sequence[str], toolchain: str, as_json: bool) -> None:
    """Write the profiles of the named targets, or of all that this machine compiles for, and print them."""
    targets, reasons = ([get_target(name) for name in names], {}) if names else usable(toolchain)
    profiles = make(targets, toolchain)
    written = list(zip(profiles, write(output, profiles), strict=True))
    if as_json:
        rows = {profile.name: str(file.absolute()) for profile, file in written}
        console.print_json({"profiles": rows, "left_out": reasons})
        return
    console.table(
        f"Conan profiles in {console.shown(output)}",
        ["profile", "compilers", "use"],
        [[profile.name, profile.toolchain, f"{profile.option}={file}"] for profile, file in written],
    )
    for name, reason in reasons.items():
        console.note(f"left out: {name}: {reason}")
