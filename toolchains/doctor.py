"""The state of this machine: what works, what is missing, and the command that fixes it."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from core import console
from core.errors import HostError
from core.files import sealed
from core.paths import cache_dir
from toolchains.targets import Target

_LEAST_FREE = 4e9
"""Bytes: compilers 0.5, Debian's libraries and emulators 0.4, the exporter 1.5, Conan's home and programs 0.5."""

MACHINE, COMPILERS, RUNNING = "This machine", "Compilers", "Running programs"
GROUPS = (MACHINE, COMPILERS, RUNNING)
_APT = "sudo apt-get install "
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
    """It is optional."""
    group: str = MACHINE
    """One of `GROUPS`."""
    family: str = ""
    """Of compilers: their family. Of what runs programs: ``natively``, ``QEMU``, ``Wine`` or ``elsewhere``."""
    target: str = ""
    """The target that it is about, if any."""
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
    found = re.search(r"(\S+): cannot open shared object file", said)
    if not found:
        return ""
    package = " (Debian: libstdc++6)" if found[1] == "libstdc++.so.6" else ""
    return f"install {found[1]} with your distribution's packages{package}; then ./inv doctor"


def _python() -> Check:
    found = f"{platform.python_version()} in {console.shown(sys.prefix)}"
    if sys.prefix == sys.base_prefix:
        return Check("Python", False, f"{found}: not a virtual environment", "./inv, which makes .venv")
    return Check(
        "Python", sys.version_info >= (3, 10), found, "" if sys.version_info >= (3, 10) else "Python 3.10 or newer"
    )


def _disk() -> Check:
    folder = cache_dir()
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1e9:.0f} GB free for the cache in {console.shown(folder)}"
    if free < _LEAST_FREE:
        return Check(
            "disk",
            False,
            f"{detail}; a first run takes {_LEAST_FREE / 1e9:.0f} GB",
            "free some space, or set SLIPWAY_CACHE to a folder on a larger disk",
        )
    return Check("disk", True, detail)


def _pip() -> Check:
    import importlib.metadata

    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return Check("pip", False, "not in this environment", f"rm -r {sys.prefix}; then ./inv, which makes it again")
    return Check("pip", True, f"{version}, set up as pip config list says")


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
        found = zig.installed()
    except HostError as error:
        return Check("zig", False, error.what, error.hint)
    if found is None:
        return Check("zig", True, f"the first build fetches {zig.pinned_version()}", later=True)
    ok, said = _said([found, "version"])
    return Check("zig", ok, said, "" if ok else "./inv doctor --cache, which names what was changed")


def _ccache() -> Check:
    from toolchains.compilers import ccache

    used, detail = ccache.describe()
    fix = f"unset {ccache.SWITCH}" if ccache.off() else "install your distribution's ccache"
    return Check("ccache", used, detail, "" if used else fix, optional=True)


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


def _made(target: Target, family: str) -> str:
    """A description of a compiler family's programs for the target."""
    if family == "ndk":
        return f"for Android's own C library, API level {target.android_api} and newer; never run by Slipway's tests"
    if target.os == "android":
        return "static executables with musl: they run on Android's kernel and do without its C library"
    if family == "gnu" and target.libc == "glibc":
        return "for the glibc of the compiler, which a bundle may not need newer than the target promises"
    libraries = {"glibc": f"for glibc {target.max_glibc} and newer", "static": "static executables with musl"}
    return libraries.get(target.libc, "the C library is the system's, the C++ library is linked in")


def _toolchains() -> list[Check]:
    """Every compiler family that can build each target. Only the default of what has a working engine must be there."""
    from toolchains.compilers.families import family
    from toolchains.targets import load_targets

    found = []
    for target in load_targets().values():
        for name in target.toolchains:
            reason, _, fix = family(name).usable(target).partition(": ")
            optional = name != target.default_toolchain or not target.working_engines
            detail = reason or _made(target, name)
            what = f"{target.name} with {name}"
            found.append(Check(what, not reason, detail, fix, optional, COMPILERS, name, target.name))
    return found


def _emulators() -> list[Check]:
    """How each target of today is run here."""
    from toolchains.debian import packages as debian
    from toolchains.emulation import emulators, wine
    from toolchains.targets import load_targets

    found: list[Check] = []
    said = functools.cache(lambda program: _said([program, "--version"]))

    def check(
        family: str, ok: bool, detail: str, fix: str = "", optional: bool = False, *, later: bool = False
    ) -> None:
        of = target.name
        found.append(Check(f"running {of}", ok, detail, fix, optional, RUNNING, family, of, later))

    for target in load_targets().values():
        if not target.working_engines:
            continue
        if emulators.is_native(target):
            check("natively", True, "this machine")
        elif not target.qemu and not wine.runs(target):
            # Nothing waits for it: what is built is checked by its headers.
            fix = "a machine of that kind as a device (docs/devices.md)"
            check("elsewhere", False, f"not run here: {target.proof}", fix, optional=True)
        elif not target.qemu:
            why = debian.runnable()
            detail = why or "Wine, from Debian's packages, in namespaces of this user's own"
            check("Wine", not why, detail, debian.fix(), optional=True)
        elif not debian.runnable():
            program = emulators.unpacked(target)
            ok, what = said(program) if program else (True, f"{target.qemu}, from Debian's packages")
            fix = "" if ok else "./inv doctor --cache, which names what was changed"
            check("QEMU", ok, what, fix, later=program is None)
        elif path := shutil.which(target.qemu) or shutil.which(f"{target.qemu}-static"):
            ok, what = said(path)
            check("QEMU", ok, f"{what}, this system's own", "" if ok else "install your distribution's qemu-user again")
        else:
            fix = debian.fix() if debian.runnable() else "install your distribution's qemu-user, 8 or newer"
            check("QEMU", False, f"no {target.qemu}", fix, optional=platform.system() != "Linux")
    return found


def checks() -> list[Check]:
    """All findings, the most important first: what is here is run. Uses no network."""
    single: list[Callable[[], Check]] = [_python, _disk, _pip, _exporter, _debian, _zig, _ccache, _conan]
    with ThreadPoolExecutor() as pool:  # the exporter takes seconds to load
        alone = [pool.submit(check) for check in single]
        several = [*_toolchains(), *_emulators()]
        return [*(each.result() for each in alone), *several]


def _tables(found: Sequence[Check]) -> None:
    """Trouble first, then each group: its targets share a line wherever one sentence is true of them."""
    missing = [check for check in found if not check.ok and not check.optional]
    groups = {"Missing": missing}
    for group in GROUPS:
        mine = [check for check in found if check.group == group and check not in missing]
        groups[group] = mine if group == MACHINE else _together(mine)
    console.grouped(
        {
            heading: [[each.name, _state(each), _finding(each, each in missing)] for each in some]
            for heading, some in groups.items()
            if some
        },
        ["what", "state", "finding"],
        "./inv doctor --json has a row for each target, with what adds the optional ones",
    )


def _finding(check: Check, loud: bool) -> str:
    """What was found; the command that fixes it on a line of its own only where something is missing."""
    if not check.fix or (check.optional and check.family and not loud):
        return check.detail
    return f"{check.detail}\n→ {check.fix}"


def _state(check: Check) -> str:
    if check.ok:
        return "later" if check.later else "ok"
    return "optional" if check.optional else "MISSING"


def _together(checks: Sequence[Check]) -> list[Check]:
    """One check for each family and state, which names the targets."""
    groups: dict[tuple[str, bool, bool], list[Check]] = {}
    for check in checks:
        groups.setdefault((check.family, check.ok, check.later), []).append(check)
    return [
        dataclasses.replace(
            some[0],
            name=family if some[0].group == COMPILERS else _HOW.get(family, f"run by {family}"),
            detail=_targets([check.target for check in some]),
            fix=_fix(some),
        )
        for (family, *_), some in sorted(groups.items(), key=lambda item: not item[0][1])
    ]


_HOW = {"natively": "run natively", "elsewhere": "do not run here"}


def _targets(names: Sequence[str]) -> str:
    """``linux-arm64, armv7; windows-arm64``: the system is named once."""
    from toolchains.targets import load_targets

    if set(names) == set(load_targets()):
        return f"all {len(names)} targets"
    systems: dict[str, list[str]] = {}
    for name in names:
        system, _, arch = name.partition("-")
        systems.setdefault(system, []).append(arch)
    return "; ".join(f"{system}-{', '.join(archs)}" for system, archs in systems.items())


def _fix(checks: Sequence[Check]) -> str:
    """One sentence for several checks: packages together, any target as NAME."""
    fixes = list(dict.fromkeys(check.fix.replace(check.target, "NAME") for check in checks if check.fix))
    if fixes and all(fix.startswith(_APT) for fix in fixes):
        return _APT + " ".join(dict.fromkeys(word for fix in fixes for word in fix.removeprefix(_APT).split()))
    return "; or ".join(fixes)


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
    bad = [check for check in found if not check.ok and not check.optional]
    if bad:
        raise HostError(
            f"This machine lacks {', '.join(check.name for check in bad)}.",
            "; ".join(dict.fromkeys(check.detail for check in bad)),
            bad[0].fix,
            [check.name for check in bad],
        )


_PARTS = ("tools", "toolchains", "debian", "images", "wine", "zig")
"""Parts of the cache that have sealed folders."""
_DEPTHS = ("*", "*/*", "*/*/*")


@dataclass(frozen=True)
class Looked:
    """One sealed folder."""

    folder: str
    bytes: int
    damaged: tuple[str, ...]
    """Files that were changed, added or removed since it was made."""


def folders() -> list[Path]:
    """Every sealed folder of the cache."""
    root = cache_dir()
    patterns = [f"{part}/{depth}/{sealed.SEAL}" for part in _PARTS for depth in _DEPTHS]
    return sorted({file.parent for pattern in patterns for file in root.glob(pattern)})


def look() -> Iterator[Looked]:
    """Read every sealed folder of the cache, with progress."""
    found = {folder: sealed.size(folder) for folder in folders()}
    done = 0
    with console.step("reading the cache", announce=False) as step:
        for folder, size in found.items():
            step.now(folder.name)
            try:
                damaged = tuple(sealed.damage(folder, full=True))
            except FileNotFoundError:
                continue  # it is being made anew, or was removed, at this moment
            except OSError as error:  # a disk that cannot be read
                damaged = (str(error),)
            done += size
            step.bytes(done, sum(found.values()))
            yield Looked(str(folder), size, damaged)


def report_cache(as_json: bool) -> None:
    """Print what was read.

    Raises:
        HostError: something of it is not as it was made.
    """
    found = list(look())
    if as_json:
        console.print_json([asdict(one) for one in found])
    else:
        root = cache_dir()
        rows = [
            [str(Path(one.folder).relative_to(root)), f"{one.bytes / 1e6:,.1f} MB", _seal_state(one.damaged)]
            for one in found
        ]
        console.table("The cache", ["sealed folder", "size", "state"], rows)
    bad = [one for one in found if one.damaged]
    if bad:
        raise HostError(
            f"{len(bad)} of {len(found)} sealed folders of the cache are damaged.",
            "; ".join(f"{Path(one.folder).name}: {_seal_state(one.damaged)}" for one in bad),
            f"rm -r {shlex.join(one.folder for one in bad)}; what needs them makes or fetches them again",
            [one.folder for one in bad],
        )


def _seal_state(damaged: tuple[str, ...]) -> str:
    if not damaged:
        return "as it was made"
    more = f" and {len(damaged) - 3} more" if len(damaged) > 3 else ""
    return f"DAMAGED: {', '.join(damaged[:3])}{more}"
