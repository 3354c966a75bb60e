"""The checks on a build: every binary is read and compared with its target; the manifest records the checks."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.errors import BuildError
from core.files import sha256_bytes, sha256_file, write_json
from core.formats.bundle import Checks, CodeCheck, HardeningCheck
from core.paths import cache_dir
from toolchains.inspect import isa
from toolchains.inspect import needs as inspect
from toolchains.inspect.archives import Binary
from toolchains.targets import Target
from toolchains.tools import hardening, table

MEANINGS: Mapping[str, str] = {
    "pie": "is not position independent (-fPIE and -pie): it is loaded at the same address every time",
    "high_entropy": "does not take addresses beyond 4 GiB (--high-entropy-va)",
    "relro": "has no part that becomes read-only after loading (-z relro)",
    "bind_now": "looks functions up when they are first called (-z now)",
    "nx": "has memory that is both written to and executed (-z noexecstack)",
    "stack_protector": "does not watch its stack (-fstack-protector-strong)",
    "fortify": "calls the C library without its checks of sizes (_FORTIFY_SOURCE)",
    "assertions": "uses the C++ library without its checks of bounds (_GLIBCXX_ASSERTIONS)",
}
"""Every property that may be promised, and what a binary without it is or does."""

_PROGRAMS_ONLY = frozenset({"fortify", "assertions", "stack_protector"})
"""What a whole program of ours is sure to use. A small library may have no array at all, and so nothing to watch."""


def promised(target: Target, binary: Binary) -> tuple[str, ...]:
    """What ``binary``, compiled by us for ``target``, must have."""
    if binary.kind == "object":
        return ()
    names: list[str] = list(hardening(target.libc)["promises"])
    if binary.kind == "library":
        names = [name for name in names if name not in _PROGRAMS_ONLY]
    if target.bits == 32:
        names = [name for name in names if name != "high_entropy"]
    return tuple(names)


def lacking(target: Target, binary: Binary) -> tuple[str, ...]:
    """The properties that ``binary`` lacks."""
    return tuple(name for name in promised(target, binary) if name not in binary.hardening)


_ROOM = Path(__file__).parent
_SOURCES = ("isa.toml", "isa.py", "symbols.py", "archives.py")
"""What decides the outcome of a scan besides the file."""
_SHOWN = 5
_BINARIES = (".a", ".lib", ".so", ".dylib", ".dll", ".exe", ".o", ".obj")


def bounds(target: Target) -> dict[str, str]:
    """The newest symbol version of each family that a binary for ``target`` may need."""
    newest: dict[str, str] = table()["libstdcxx"]["newest"]
    return {"GLIBC": target.max_glibc, "GLIBCXX": newest["GLIBCXX"]} if target.max_glibc else {}


@functools.cache
def _key() -> str:
    return sha256_bytes("\n".join(sha256_file(_ROOM / name) for name in _SOURCES).encode())


def scan(target: Target, file: Path) -> isa.Scan:
    """`isa.scan`, remembered by the file's digest, the floor and the tables.

    Raises:
        BuildError: the file is damaged, or has no code at all.
    """
    floor = ",".join(sorted(isa.table().floor(target)))
    key = sha256_bytes("\n".join([_key(), sha256_file(file), floor]).encode())
    kept = cache_dir("scans") / f"{key}.json"
    try:
        known = json.loads(kept.read_text(encoding="utf-8"))
        findings = tuple(isa.Finding(**{**row, "file": file.name}) for row in known.pop("findings"))
        return isa.Scan(**{**known, "features": tuple(known["features"])}, findings=findings)
    except (OSError, ValueError, TypeError, KeyError):
        found = isa.scan(target, file)
        write_json(kept, dataclasses.asdict(found))
        return found


def check_code(target: Target, files: Sequence[Path], folder: Path, *, prebuilt: Sequence[Path] = ()) -> Checks:
    """Scan all code of ``files``, which are below ``folder``, for instructions above the target's floor.

    Args:
        prebuilt: those among them that were compiled elsewhere: what they use is noted, and nothing is refused.
            Without a table of symbols their kernels could not be distinguished from the rest.

    Raises:
        BuildError: an instruction outside the kernels that are chosen at run time; the message names the function.
            Or a file of ours has no table of symbols, or no code: the check would see nothing.
    """
    code: list[CodeCheck] = []
    findings: list[isa.Finding] = []
    for file in files:
        found = scan(target, file)
        name = file.relative_to(folder).as_posix()
        if not found.instructions:
            raise BuildError(f"{name} has no code for {target.name} in it.", "nothing to check", "./inv build --force")
        note = _from_elsewhere(found) if file in prebuilt else "" if found.named else _without_names(target, file)
        if not note:
            findings += found.findings
        code.append(
            CodeCheck(
                path=name,
                functions=found.functions,
                kernels=found.kernels,
                instructions=found.instructions,
                features=found.features,
                note=note,
            )
        )
    if findings:
        raise _refused(target, findings)
    return Checks(floor=_floor(target), code=tuple(code))


def _floor(target: Target) -> str:
    """The least CPU in words, with what every device of the target has besides, where the table says so."""
    own = isa.table().floors.get(target.name, [])
    return f"{target.isa_floor} with {', '.join(own)}" if own else target.isa_floor


def _from_elsewhere(found: isa.Scan) -> str:
    """The note about a file that others compiled, which cannot be fixed here."""
    if not found.named:
        return "compiled elsewhere and stripped: features are all that it uses, in kernels or not"
    names = list(dict.fromkeys(finding.function for finding in found.findings))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"compiled elsewhere; {len(names)} functions use more than the floor: {shown}" if names else ""


def _without_names(target: Target, file: Path) -> str:
    """The note about a file of ours without a table of symbols, which linkers for Windows do not write.

    Raises:
        BuildError: it should have one.
    """
    if target.os == "windows":
        return "no table of symbols in programs for Windows: its libraries were checked instead"
    raise BuildError(
        f"{file.name} has no table of symbols, so its code cannot be checked.",
        "it was stripped",
        "link it without -s and --strip-all",
    )


def _refused(target: Target, findings: Sequence[isa.Finding]) -> BuildError:
    functions = list(dict.fromkeys(finding.function for finding in findings))
    first = [next(item for item in findings if item.function == name) for name in functions[:_SHOWN]]
    more = f"; and {len(functions) - len(first)} more functions" if len(functions) > len(first) else ""
    return BuildError(
        f"Code for {target.name} uses instructions that its least CPU ({target.isa_floor}) does not have.",
        "; ".join(map(str, first)) + more,
        "fix the flags it is compiled with; a function that runs only where the CPU has the instruction "
        "goes into toolchains/inspect/isa.toml with the reason (docs/build.md)",
        functions,
    )


def check_hardening(
    target: Target, binaries: Sequence[inspect.Binary], folder: Path, *, prebuilt: Sequence[Path] = ()
) -> tuple[HardeningCheck, ...]:
    """Compare programs and shared libraries with what `toolchains.inspect.checks` promises of the target.

    Args:
        prebuilt: those that were compiled elsewhere: what they lack is noted, and nothing is refused.

    Raises:
        BuildError: one of ours lacks something.
    """
    files = [item for item in binaries if item.kind != "object"]
    ours = [item for item in files if item.path not in prebuilt]
    if found := [f"{item.name} {MEANINGS[name]}" for item in ours for name in lacking(target, item)]:
        raise BuildError(
            f"What was built for {target.name} is not hardened as promised.",
            _some(found),
            "see which flags the recipe or CMakeLists.txt drops; toolchains/systems.toml has those that give it",
            found,
        )
    return tuple(
        HardeningCheck(path=item.path.relative_to(folder).as_posix(), has=item.hardening, lacks=lacking(target, item))
        for item in files
    )


def check_native(target: Target, folder: Path) -> Checks:
    """Check the product of the native packages: ``lib/`` and ``bin/`` of ``folder``.

    Raises:
        BuildError: a binary is for another machine, float ABI, C library or system, needs a library that no device
            has, or has instructions above the floor outside kernels; the message names file and function.
    """
    files = [file for part in ("lib", "bin") for file in sorted((folder / part).glob("**/*")) if _is_binary(file)]
    if not files:
        raise BuildError(f"{folder} has no binaries.", "lib/ and bin/ are empty", "./inv build --force")
    return check_files(target, files, folder)


def check_files(target: Target, files: Sequence[Path], folder: Path) -> Checks:
    """The same for ``files``, which are below ``folder``.

    Raises:
        BuildError: as `check_native`.
    """
    binaries = check_binaries(target, files, bounds(target))
    hardened = check_hardening(target, binaries, folder)
    # An import library names what its DLL has, and has no code of its own.
    code = [file for file in files if not file.name.endswith(".dll.a")]
    return check_code(target, code, folder).model_copy(update={"hardening": hardened})


def check_binaries(target: Target, files: Sequence[Path], newest: Mapping[str, str]) -> list[Binary]:
    """Read ``files``, and refuse what devices of the target would.

    Args:
        newest: the newest symbol version of each family that they may need.

    Raises:
        BuildError: a file is for another machine, float ABI, C library or system, or needs what no device has.
    """
    binaries = [binary for file in files for binary in inspect.read_all(file)]
    if found := inspect.problems(target, binaries):
        raise unfit(target, found)
    if newer := inspect.too_new(binaries, newest):
        raise BuildError(
            f"What was built would not start on the older devices of {target.name}.",
            _some(newer),
            f"./inv build --target {target.name} --toolchain zig (whose binaries need less); "
            "or, for devices known to be newer, INVOKE_SLIPWAY_ALLOW_NEWER_GLIBC=yes",
            newer,
        )
    return binaries


def unfit(target: Target, found: list[str]) -> BuildError:
    """The error for binaries that devices of the target do not load."""
    hint = f"fix the recipe or the compiler, then ./inv build --target {target.name} --force"
    return BuildError(f"What was built does not fit {target.name}.", _some(found), hint, found)


def _some(found: Sequence[str]) -> str:
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


def _is_binary(file: Path) -> bool:
    return file.is_file() and (file.parent.name == "bin" or file.suffix in _BINARIES) and file.suffix != ".pdb"
