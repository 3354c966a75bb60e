"""Conan, run as a program with a home of its own in the cache.

Recipes come from the checkout's ``recipes/`` through a local-recipes-index remote. Several checkouts may share the
cache, so a remote's name contains the checkout, and a lockfile pins the revisions of this checkout's recipes (which
follow from their contents): a build never uses a recipe that another checkout put into the cache.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core.errors import BuildError, HostError
from core.files import keep_text, sha256_bytes, sha256_file, write_atomic, write_json
from core.paths import ROOT, cache_dir, portable
from core.processes.commands import lines, process, quote
from toolchains.compilers import ccache, families
from toolchains.compilers.families import Compilers, family
from toolchains.debian import fetch_source
from toolchains.targets import Target, host_target

LOCK = "conan-builders"
"""Name of the lock to hold around what reads or writes in Conan's home, which is not made for two writers at once."""

_SHARED = "slipway_sources/"
"""The recipe that others of this checkout import, and nothing links."""
_OURS = "slipway/"
"""The recipe whose sources are the checkout's own. No lockfile of the checkout pins it: every change of runtime/ is
another revision."""

_TEMPLATE = """\
[settings]
{% for name, value in settings.items() %}
{{ name }}={{ value }}
{% endfor %}

[conf]
tools.build:compiler_executables={{ executables }}
tools.build:cflags={{ flags }}
tools.build:cxxflags={{ flags }}
tools.build:sharedlinkflags={{ library }}
tools.build:jobs={{ jobs }}
tools.cmake.cmaketoolchain:generator=Ninja
tools.cmake.cmaketoolchain:system_processor={{ target.cmake_processor }}
tools.cmake.cmaketoolchain:extra_variables={{ variables }}
{% for name, value in compilers.conf.items() %}
{{ name }}={{ value }}
{% endfor %}
tools.build:exelinkflags+={{ program }}
slipway-runtime/*:tools.build:exelinkflags+=["-Wl,-S"]
tools.info.package_id:confs=["user.slipway:toolchain"]
user.slipway:toolchain={{ key }}
user.slipway:wheel_cache={{ wheels }}
user.slipway:fetch={{ fetch }}

[buildenv]
CC={{ compilers.cc }}
CXX={{ compilers.cxx }}
AR={{ compilers.ar }}
RANLIB={{ compilers.ranlib }}
"""


def home() -> Path:
    """Conan's home folder."""
    return cache_dir("conan")


def remote() -> str:
    """Name of this checkout's recipes among the remotes."""
    return f"slipway-{sha256_bytes(os.fspath(ROOT).encode())[:8]}"


def _environment() -> dict[str, str]:
    """The user's environment without Conan settings of other projects; with our own CMake and Ninja first."""
    theirs = ("CONAN_", "CMAKE_", "CCACHE_")
    drop = ("CC", "CXX", "AR", "RANLIB", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(theirs) and name not in drop}
    folders = [os.fspath(Path(sys.executable).parent), kept.get("PATH", os.defpath)]
    path = os.pathsep.join([*folders, *(os.fspath(folder) for folder in [fetch_source.stand_in()] if folder)])
    return {**kept, "PATH": path, "CONAN_HOME": os.fspath(home()), "CONAN_LOG_LEVEL": "verbose", "NO_COLOR": "1"}


def conan(
    args: Sequence[str | os.PathLike[str]], *, log: Path, what: str = "", heard: Callable[[str], None] | None = None
) -> str:
    """Run ``conan ARGS...`` and return its result (``--format=json``); its messages go to ``log``.

    Hold the lock `LOCK` around it.

    Args:
        what: what it is for, in the error's first line.
        heard: called with every line of its messages.

    Raises:
        BuildError: it failed; the message has the lines that matter.
        HostError: it failed for want of disk space or network.
    """
    argv = [sys.executable, "-m", "conans.conan", *args]
    with (
        tempfile.TemporaryFile() as result,
        tempfile.TemporaryDirectory(prefix="slipway-ccache-") as folder,
        log.open("a", encoding="utf-8") as kept,
    ):

        def hear(line: str) -> None:
            kept.write(f"{line}\n")
            if heard:
                heard(line)

        kept.write(f"$ {quote(argv)}\n")
        kept.flush()
        begun = log.stat().st_size
        counted = Path(folder, "counted")
        env = {**_environment(), **ccache.environment(counted)}
        with process(argv, cwd=ROOT, env=env, stdout=result.fileno()) as child:
            for raw in lines(child.stderr) if child.stderr else ():
                hear(raw.decode(errors="replace").rstrip())
            code = child.wait()
        hits, compiled = ccache.hits(counted)
        if compiled:
            hear(f"ccache: {hits} of {compiled} compilations had been done before")
        kept.write(f"[exit {code}]\n")
        kept.flush()
        if code:
            raise failure(what or f"conan {args[0]}", log, begun)
        result.seek(0)
        return result.read().decode(errors="replace")


_HOST_FAULTS = {
    "No space left on device": "free some space (./inv clean --cache removes Slipway's own cache), then again",
    "Disk quota exceeded": "free some space (./inv clean --cache removes Slipway's own cache), then again",
    "could not be fetched": "check the network and the proxy (https_proxy), then again",
    "pip could not fetch": "check the network and pip's index (pip config list), then again",
    "npm could not fetch": "check the network and npm's registry (npm config get registry), then again",
    "npm names a command": "install npm, which fetches Microsoft's library, then again",
}
"""Messages of a failed build that this machine caused, not the sources, each with a hint."""


_MARKS = ("FAILED:", "CMake Error", "error:", "ERROR:")


def failure(what: str, log: Path, begun: int) -> BuildError | HostError:
    """The error for a build that failed, by what it wrote to its log from byte ``begun`` on."""
    with log.open("rb") as file:
        file.seek(begun)
        text = file.read().decode(errors="replace")
    why = "\n".join(reasons(text.splitlines()))
    hint = next((hint for words, hint in _HOST_FAULTS.items() if words in text), "")
    return (
        HostError(f"{what} failed.", why, hint) if hint else BuildError(f"{what} failed.", why, f"less {quote([log])}")
    )


def reasons(said: Sequence[str], most: int = 20) -> list[str]:
    """The lines of a failed build that say why: from the first failed step or error on, else the last ones."""
    first = next((index for index, line in enumerate(said) if any(mark in line for mark in _MARKS)), len(said))
    chosen = [line for line in said[first:] if line.strip()] or [line for line in said if line.strip()][-most:]
    return [line if len(line) <= 300 else line[:300] + " ..." for line in chosen[:most]]


def _remotes(log: Path) -> None:
    """Make this checkout's recipes a Conan remote, and remove ConanCenter."""
    file = home() / "remotes.json"
    try:
        known = {item["name"]: item["url"] for item in json.loads(file.read_text(encoding="utf-8"))["remotes"]}
    except (FileNotFoundError, ValueError, KeyError):
        known = None
    if known is None or "conancenter" in known:
        conan(["remote", "remove", "conancenter"], log=log)
    if known is None or known.get(remote()) != os.fspath(ROOT):
        conan(["remote", "add", remote(), ROOT, "--type=local-recipes-index", "--force"], log=log)


def lockfile(log: Path) -> Path:
    """Pin every recipe of the checkout to the revision that its files have now; path of Conan's lockfile.

    Conan takes seconds to read all recipes, so the lockfile is kept until one of their files changes.
    """
    _remotes(log)
    file = cache_dir("conan-profiles") / f"{remote()}.lock"
    made_from, now = file.with_suffix(".made-from"), _recipes()
    if file.is_file() and made_from.is_file() and made_from.read_text(encoding="utf-8") == now:
        return file
    text = conan(["list", "*#*", f"--remote={remote()}", "--format=json"], log=log, what="Reading recipes/")
    listed: Mapping[str, Any] = json.loads(text).get(remote(), {})
    if not listed or "error" in listed:
        raise BuildError(
            "Conan cannot read recipes/.", str(listed.get("error", "it found no recipe there")), f"less {quote([log])}"
        )
    others = {name: item for name, item in listed.items() if not name.startswith(_OURS)}
    pins = sorted(f"{name}#{revision}" for name, item in others.items() for revision in item["revisions"])
    shared = [pin for pin in pins if pin.startswith(_SHARED)]
    recipes = [pin for pin in pins if pin not in shared]
    kinds = {"requires": recipes, "build_requires": recipes, "python_requires": shared, "config_requires": []}
    write_json(file, {"version": "0.5", **kinds})
    write_atomic(made_from, now)
    return file


def _recipes() -> str:
    """Digest of all files of ``recipes/`` and of Conan's version."""
    folder = ROOT / "recipes"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    parts = [version("conan"), *([path.relative_to(folder).as_posix(), sha256_file(path)] for path in files)]
    return sha256_bytes(json.dumps(parts).encode())


def _settings(target: Target, compilers: Compilers, build_type: str) -> dict[str, str]:
    """Conan's settings of a profile: the table's, over which the compilers have the last word."""
    settings = {"os": target.conan_os, "arch": target.conan_arch, **compilers.conan}
    if settings["os"] == "Android":
        settings.setdefault("os.api_level", target.android_api)
    if target.os_version:
        settings.setdefault("os.version", target.os_version)
    if target.apple_sdk:
        settings.setdefault("os.sdk", target.apple_sdk)
    order = sorted(settings, key=lambda name: (not name.startswith("os"), name != "arch", name))
    return {**{name: settings[name] for name in order}, "compiler.cppstd": "17", "build_type": build_type}


def sources(choice: str, log: Path) -> list[str]:
    """The words that make recipes take their sources from ``debian`` or ``git``.

    Conan keeps one folder of sources for each recipe, of either origin: it is emptied when the choice changes.
    """
    chosen = cache_dir("conan-profiles") / "sources"
    if not chosen.is_file() or chosen.read_text(encoding="utf-8") != choice:
        conan(["cache", "clean", "*", "--source"], log=log)
        write_atomic(chosen, choice)
    return [f"--conf:all=user.slipway:sources={choice}"]


def render(
    target: Target, compilers: Compilers, build_type: str = "Release", launchers: Mapping[str, str] | None = None
) -> str:
    """A Conan profile's text, from the table of targets and nothing else.

    Args:
        launchers: CMake's variables that name what stands before the compilers; the result does not depend on it.
    """
    from jinja2 import Environment, StrictUndefined

    # The text is a configuration file of ours, not a page: there is nothing to escape.
    engine = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701
    template = engine.from_string(_TEMPLATE)
    hard = families.hardening(target)
    optimized = () if build_type == "Debug" else hard.optimized
    # __FILE__ in the SDK's and in the C++ library's headers would carry this machine's paths, and the user's name, to
    # every device. The last map that fits is taken.
    mapped = [quote([f"-ffile-prefix-map={folder}=."]) for folder in (cache_dir(), home())]
    tools = {"CMAKE_AR": compilers.ar, "CMAKE_RANLIB": compilers.ranlib, **compilers.variables}
    facts = {
        "target": target,
        "compilers": compilers,
        "settings": _settings(target, compilers, build_type),
        "jobs": os.cpu_count() or 1,
        "wheels": cache_dir("wheels"),
        "executables": json.dumps({"c": compilers.cc, "cpp": compilers.cxx}),
        "variables": json.dumps({**tools, **(launchers or {})}),
        "flags": json.dumps([*compilers.flags, *hard.compile, *optimized, *mapped]),
        "library": json.dumps(["-s", *hard.link]),
        "program": json.dumps([*hard.link, *hard.program]),
        "fetch": json.dumps(fetch_source.command()),
    }
    # What is built depends on all of the profile, the flags included, so all of it counts in a package's identity;
    # but neither on where a user's cache is, so that packages can be shared, nor on what only makes it faster.
    same = {**facts, "key": "", "jobs": 0, "fetch": "", "variables": json.dumps(tools)}
    flags = sha256_bytes(portable(template.render(same)).encode())[:8]
    return template.render(**facts, key=f"{compilers.key}-{flags}")


def profile_text(target: Target, toolchain: str = "", build_type: str = "Release") -> str:
    """The profile of ``target``; compilers are fetched where needed."""
    compilers = family(target.toolchain(toolchain)).ensure(target)
    return render(target, compilers, build_type, ccache.variables(home(), compilers.key)) + "\n"


def build_profile_text() -> str:
    """The profile of this machine, for tools that run during a build.

    They run for milliseconds and compile three times as fast without optimization.

    Raises:
        HostError: Slipway does not build on such a machine.
    """
    target = host_target()
    if target.os != "linux":
        raise HostError(
            f"Slipway cannot build on this machine ({platform.system()} on {platform.machine()}).",
            "it builds on Linux on x86_64 and on arm64",
            "such a machine, a container or a virtual machine with Debian 12 or newer",
        )
    usable = (name for name in target.toolchains if not family(name).usable(target))
    return profile_text(target, next(usable, target.default_toolchain), "Debug")


def profile(target: Target, toolchain: str = "") -> Path:
    """Write the profile of ``target`` into the cache and return its path; compilers are fetched where needed."""
    return _written(f"{target.name}-{target.toolchain(toolchain)}", profile_text(target, toolchain))


def build_profile() -> Path:
    """Write `build_profile_text` into the cache and return its path."""
    return _written("tools", build_profile_text())


def _written(name: str, text: str) -> Path:
    # Another checkout may have other profiles, and may read this one while it is written.
    file = cache_dir("conan-profiles") / f"{name}-{sha256_bytes(text.encode())[:8]}"
    keep_text(file, text)
    return file
