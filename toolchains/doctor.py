"""The state of this machine: what works, what is missing, and the command that fixes it."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from core import console
from core.errors import HostError
from core.paths import cache_dir

_LEAST_FREE = 4e9
"""Bytes: compilers 0.5, Debian's libraries and emulators 0.4, the exporter 1.5, Conan's home and programs 0.5."""

MACHINE, COMPILERS, RUNNING = "This machine", "Compilers", "Running programs"
GROUPS = (MACHINE, COMPILERS, RUNNING)
_AGAIN = "./inv clean --cache; what needs it fetches it again"
_SECONDS = 600.0
"""After so long a program that only says its version counts as hung."""
_EXPORTER = """
import torch, torchao, executorch.exir, executorch.runtime
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
import importlib.metadata
print("torch", torch.__version__ + ", executorch", importlib.metadata.version("executorch"))
"""
"""What exporting and its reference outputs import."""


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    ok: bool
    """Nothing is to be done. Of a program: it ran just now, unless it is fetched `later`."""
    detail: str
    fix: str = ""
    """The command that fixes it; empty if it works."""
    optional: bool = False
    group: str = MACHINE
    """One of `GROUPS`."""
    family: str = ""
    """Of compilers: their family. Of what runs programs: ``natively``, ``QEMU``, ``Wine`` or ``elsewhere``."""
    target: str = ""
    later: bool = False
    """It is fetched when it is first needed."""


def _said(argv: Sequence[str | Path]) -> tuple[bool, str]:
    """Whether a program runs here, and the first line that it says; of a failure the last."""
    words = [os.fspath(word) for word in argv]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        return False, f"{words[0]}: {error.strerror}"
    except subprocess.TimeoutExpired:
        return False, f"{words[0]} says nothing for {_SECONDS:.0f} s: it hangs, or this machine is very busy"
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        return False, f"{Path(words[0]).name} ends with {done.returncode}: {lines[-1] if lines else 'it says nothing'}"
    return True, lines[0] if lines else ""


def _library(said: str) -> str:
    """What to install if a program lacks a library of the system's, which a wheel does not bring."""
    if not (found := re.search(r"(\S+): cannot open shared object file", said)):
        return ""
    package = " (Debian: libstdc++6)" if found[1] == "libstdc++.so.6" else ""
    return f"install {found[1]} with your distribution's packages{package}; then ./inv doctor"


def _disk() -> Check:
    folder = cache_dir()
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1e9:.0f} GB free for the cache in {console.shown(folder)}"
    if free >= _LEAST_FREE:
        return Check("disk", True, detail)
    fix = "free some space, or set SLIPWAY_CACHE to a folder on a larger disk"
    return Check("disk", False, f"{detail}; a first run takes {_LEAST_FREE / 1e9:.0f} GB", fix)


def _exporter() -> Check:
    """Whether what exports can be imported, in a process of its own; if it is not installed, why."""
    from core import environment
    from core.environment import bootstrap

    if bootstrap.is_installed(Path(sys.prefix), "export"):
        ok, said = _said([sys.executable, "-I", "-c", _EXPORTER])
        detail = f"{said}: they load" if ok else f"it is installed and does not load: {said}"
        return Check("exporter", ok, detail, "" if ok else _library(said) or environment.renew("export"))
    if error := environment.why("export"):
        return Check("exporter", False, f"{error.what} {error.cause}", error.hint)
    size = bootstrap.LABELS["export"]
    detail = f"the first export fetches it: {size.download:.0f} MB, {size.disk:.0f} MB unpacked"
    return Check("exporter", True, detail, later=True)


def _debian() -> Check:
    from toolchains.debian import packages as debian

    if reason := debian.available():
        return Check("Debian packages", False, reason, debian.fix())
    return Check("Debian packages", True, "from its archive, without root, signatures checked")


def _zig() -> Check:
    from toolchains.compilers import zig

    try:
        found = zig.program_path()
    except HostError as error:
        return Check("zig", False, error.what, error.hint)
    if not found.is_file():
        return Check("zig", True, f"the first build fetches {zig.pinned_version()}", later=True)
    ok, said = _said([found, "version"])
    return Check("zig", ok, said, "" if ok else _AGAIN)


def _conan() -> Check:
    from core import environment
    from toolchains import tools

    name = "Conan, CMake, Ninja"
    try:
        cmake, ninja = tools.program("cmake"), tools.program("ninja")
    except HostError as error:
        return Check(name, False, error.what, environment.renew("core"))
    found = {
        "conan": _said([sys.executable, "-I", "-m", "conans.conan", "--version"]),
        "cmake": _said([cmake, "--version"]),
        "ninja": _said([ninja, "--version"]),
    }
    if bad := [said for ok, said in found.values() if not ok]:
        return Check(name, False, "; ".join(bad), _library(bad[0]) or environment.renew("core"))
    return Check(name, True, ", ".join(f"{program} {said.split()[-1]}" for program, (_, said) in found.items()))


def _toolchains() -> list[Check]:
    """Every compiler family that can build each target. Only the default of what has a working engine must be there."""
    from toolchains.compilers.families import family
    from toolchains.targets import load_targets

    found = []
    for target in load_targets().values():
        for name in target.toolchains:
            reason, _, fix = family(name).usable(target).partition(": ")
            optional = name != target.default_toolchain or not target.working_engines
            what = f"{target.name} with {name}"
            found.append(Check(what, not reason, reason or "usable", fix, optional, COMPILERS, name, target.name))
    return found


def _running() -> Iterator[Check]:
    """How each target of today is run here."""
    from toolchains.debian import packages as debian
    from toolchains.emulation import emulators, wine
    from toolchains.targets import load_targets

    said = functools.cache(lambda program: _said([program, "--version"]))
    reason = debian.runnable()
    for target in load_targets().values():
        check = functools.partial(Check, f"running {target.name}", group=RUNNING, target=target.name)
        if not target.working_engines:
            continue
        if emulators.is_native(target):
            yield check(True, "this machine", family="natively")
        elif wine.runs(target):
            detail = reason or "Wine, from Debian's packages, in namespaces of this user's own"
            yield check(not reason, detail, debian.fix(), optional=True, family="Wine")
        elif not target.qemu:
            # Nothing waits for it: what is built is checked by its headers.
            fix = "a machine of that kind as a device (docs/devices.md)"
            yield check(False, f"not run here: {target.proof}", fix, optional=True, family="elsewhere")
        elif not reason:
            program = emulators.unpacked(target)
            ok, detail = said(program) if program else (True, f"{target.qemu}, from Debian's packages")
            yield check(ok, detail, "" if ok else _AGAIN, family="QEMU", later=program is None)
        else:
            yield check(False, f"no {target.qemu}", debian.fix(), optional=platform.system() != "Linux", family="QEMU")


def checks() -> list[Check]:
    """All findings, the most important first: what is here is run. Uses no network."""
    python = Check("Python", True, f"{platform.python_version()} in {console.shown(sys.prefix)}")
    with ThreadPoolExecutor() as pool:  # the exporter takes seconds to load
        alone = [pool.submit(check) for check in (_disk, _exporter, _debian, _zig, _conan)]
        several = [*_toolchains(), *_running()]
        return [python, *(each.result() for each in alone), *several]


def _tables(found: Sequence[Check]) -> None:
    """Trouble first, then each group: its targets share a line wherever one sentence is true of them."""
    missing = [check for check in found if not check.ok and not check.optional]
    groups = {"Missing": missing}
    for group in GROUPS:
        mine = [check for check in found if check.group == group and check not in missing]
        groups[group] = mine if group == MACHINE else _together(mine)
    console.grouped(
        {heading: [[one.name, _state(one), _finding(one)] for one in some] for heading, some in groups.items() if some},
        ["what", "state", "finding"],
        "./inv doctor --json has a row for each target, with what adds the optional ones",
    )


def _finding(check: Check) -> str:
    """What was found; the command that fixes it on a line of its own only where something is missing."""
    return check.detail if not check.fix or (check.optional and check.family) else f"{check.detail}\n→ {check.fix}"


def _state(check: Check) -> str:
    return ("later" if check.later else "ok") if check.ok else "optional" if check.optional else "MISSING"


def _together(checks: Sequence[Check]) -> list[Check]:
    """One check for each family and state, which names the targets."""
    names = {"natively": "run natively", "elsewhere": "do not run here", "QEMU": "run by QEMU", "Wine": "run by Wine"}
    groups: dict[tuple[bool, str, bool], list[Check]] = {}
    for check in checks:
        groups.setdefault((not check.ok, names.get(check.family, check.family), check.later), []).append(check)
    return [
        dataclasses.replace(some[0], name=name, detail=_targets([check.target for check in some]))
        for (_, name, _), some in sorted(groups.items(), key=lambda item: item[0][0])
    ]


def _targets(names: Sequence[str]) -> str:
    """``linux-arm64, armv7; windows-arm64``: the system is named once."""
    systems: dict[str, list[str]] = {}
    for name in names:
        system, _, arch = name.partition("-")
        systems.setdefault(system, []).append(arch)
    return "; ".join(f"{system}-{', '.join(archs)}" for system, archs in systems.items())


def report(as_json: bool) -> None:
    """Print the findings.

    Raises:
        HostError: this machine lacks something that Slipway needs.
    """
    found = checks()
    if as_json:
        console.print_json([dataclasses.asdict(check) for check in found])
    else:
        _tables(found)
    if bad := [check for check in found if not check.ok and not check.optional]:
        raise HostError(
            f"This machine lacks {', '.join(check.name for check in bad)}.",
            "; ".join(dict.fromkeys(check.detail for check in bad)),
            bad[0].fix,
            [check.name for check in bad],
        )
