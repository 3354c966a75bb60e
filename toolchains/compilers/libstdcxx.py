"""Building against GCC's libstdc++ with another compiler, for systems older than the library at hand.

Debian's libstdc++ is newer than the devices'. Two adaptations make what is built run on both:

- **headers**: three configuration macros and one ``__has_include`` that assume a newer glibc are switched off;
- **link stubs**: shared libraries that contain nothing but the symbols of libstdc++ and its like up to a bound,
  each with the version it has there. A program linked against them cannot ask for more; a newer symbol is an
  error at link time and not on the device. (What zig itself does for glibc.)

The few newer symbols that the newer headers call from everyday code are linked in statically
(``libstdcxx_compat.cpp``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import BuildError, HostError, NotSupportedError
from core.files import sealed, sha256_bytes, sha256_file
from core.paths import cache_dir, portable
from core.processes.commands import run
from toolchains.targets import Target
from toolchains.tools import table


def sysroot(target: Target) -> Path:
    """A Debian tree with the target's glibc, libstdc++ (library and headers) and libgcc, fetched once.

    It serves two ends: compiling against libstdc++ with zig, and ``qemu-user -L`` for running the result.

    Raises:
        NotSupportedError: the target has no glibc.
        HostError: Debian packages cannot be had on this machine.
    """
    if target.libc != "glibc":
        raise NotSupportedError(f"{target.name} has no sysroot.", f"its C library is {target.libc}", "./inv targets")
    from toolchains.debian import packages as debian

    pinned = table()["libstdcxx"]
    return debian.tree(pinned["suite"], target.debian_arch, tuple(pinned["packages"]))


def library(root: Path, target: Target, name: str) -> Path:
    """The shared library ``name`` in the tree, wherever Debian's merge of ``/lib`` and ``/usr/lib`` left it."""
    folders = (root / "usr/lib" / target.multiarch, root / "lib" / target.multiarch)
    return next((folder / name for folder in folders if (folder / name).exists()), folders[0] / name)


_FORMAT = "2"
"""Raise it when this module writes something else, so that cached results are made again."""

_OFF = (
    "_GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT",
    "_GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK",
    "_GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK",
)
"""Inline uses of functions of glibc 2.30."""

_LOADERS = {"armv7l": ("ld-linux-armhf.so.3",), "armv6l": ("ld-linux-armhf.so.3",)}
"""Loaders that have something which zig takes from elsewhere: the value that guards the stack, random in the loader, is
the same in every program when it is zig's own."""

_COMPAT = Path(__file__).with_name("libstdcxx_compat.cpp")


@dataclass(frozen=True)
class Adapted:
    """What a compiler is given."""

    includes: tuple[Path, ...]
    """Header folders, in this order, behind the caller's own and ahead of the C library's."""
    inputs: tuple[Path, ...]
    """Files to link, behind everything else."""
    static: tuple[Path, ...]
    """The same for a program that gets the C++ library inside; it also needs ``runtime/runner/static_cxx.cpp``."""
    key: str


@dataclass(frozen=True)
class Symbol:
    """A symbol that a shared library defines."""

    name: str
    version: str
    kind: str
    """``function``, ``object`` or ``tls_object``, as the assembler's ``.type`` says it."""
    size: int


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def within(version: str, newest: Mapping[str, str]) -> bool:
    """Whether ``GLIBCXX_3.4.21`` and its like are not newer than the bound of their family.

    Versions that are not numbers (``CXXABI_TM_1``, ``GLIBCXX_LDBL_3.4``) count as too new: nothing of ours needs them.
    """
    family, _, number = version.rpartition("_")
    return family in newest and number.replace(".", "").isdigit() and _number(number) <= _number(newest[family])


def symbols(path: Path) -> Iterator[Symbol]:
    """Every versioned symbol that the ELF library at ``path`` defines."""
    from elftools.elf.elffile import ELFFile

    kinds = {
        "STT_FUNC": "function",
        "STT_GNU_IFUNC": "function",
        "STT_OBJECT": "object",
        "STT_TLS": "tls_object",
        "STT_NOTYPE": "object",
    }
    with path.open("rb") as file:
        elf = ELFFile(file)
        defined = elf.get_section_by_name(".gnu.version_d")
        names = {item.entry["vd_ndx"]: next(iter(aux)).name for item, aux in defined.iter_versions()}
        indices = elf.get_section_by_name(".gnu.version")
        for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            index = indices.get_symbol(number).entry["ndx"]
            if symbol.entry["st_shndx"] in ("SHN_UNDEF", "SHN_ABS") or not isinstance(index, int):
                continue
            version, kind = names.get(index & 0x7FFF, ""), kinds.get(symbol.entry["st_info"]["type"])
            if version and kind and symbol.name:
                yield Symbol(symbol.name, version, kind, symbol.entry["st_size"])


def stub_sources(found: Iterator[Symbol], newest: Mapping[str, str]) -> tuple[str, str]:
    """Assembly and linker version script of a library with the symbols within the bound.

    A symbol that exists in several versions gets the newest that is still within it.
    """
    chosen: dict[str, Symbol] = {}
    for symbol in found:
        old = chosen.get(symbol.name)
        if within(symbol.version, newest) and (
            old is None or _number(old.version.rpartition("_")[2]) < _number(symbol.version.rpartition("_")[2])
        ):
            chosen[symbol.name] = symbol
    lines: list[str] = []
    nodes: dict[str, list[str]] = {}
    for symbol in sorted(chosen.values(), key=lambda item: item.name):
        section = {"function": ".text", "object": ".data", "tls_object": '.section .tbss,"awT",%nobits'}[symbol.kind]
        lines += [
            section,
            f".globl {symbol.name}",
            f".type {symbol.name}, %{symbol.kind}",
            f".size {symbol.name}, {max(symbol.size, 1)}",
            f"{symbol.name}: .zero {max(symbol.size, 1)}",
        ]
        nodes.setdefault(symbol.version, []).append(symbol.name)
    script = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in sorted(nodes.items()))
    return "\n".join(lines) + '\n.section .note.GNU-stack,"",%progbits\n', script


def _adapt_headers(plain: Path, out: Path) -> None:
    """Write the headers that stand before the ones in ``plain``."""
    atomicity = plain / "ext/atomicity.h"
    if not atomicity.is_file():
        raise HostError("libstdc++'s headers are not where Debian puts them.", f"no {atomicity}", "./inv clean --cache")
    (out / "bits").mkdir(parents=True)
    (out / "ext").mkdir()
    off = "".join(f"#undef {macro}\n" for macro in _OFF)
    (out / "bits/c++config.h").write_text(f"#include_next <bits/c++config.h>\n{off}", encoding="utf-8")
    text = atomicity.read_text(encoding="utf-8")
    (out / "ext/atomicity.h").write_text(text.replace("__has_include(<sys/single_threaded.h>)", "0"), encoding="utf-8")


def _stub(
    zig: Path, target: Target, source: Path, out: Path, newest: Mapping[str, str], env: Mapping[str, str]
) -> None:
    """A link stub of the library ``source`` at ``out``."""
    assembly, script = out.with_suffix(".S"), out.with_suffix(".map")
    text, versions = stub_sources(symbols(source), newest)
    assembly.write_text(text, encoding="utf-8")
    script.write_text(versions, encoding="utf-8")
    words: list[str | Path] = [zig, "cc", "-target", target.zig_triple, "-shared", "-nostdlib", "-o", out, assembly]
    _run([*words, f"-Wl,-soname,{source.name}", f"-Wl,--version-script={script}"], env)
    assembly.unlink()


def _run(words: Sequence[str | Path], env: Mapping[str, str]) -> None:
    """Run zig."""
    hint = "./inv clean --cache; what is in it is fetched again"
    run(words, env={**os.environ, **env}, error=BuildError, what="Compiling for libstdc++", hint=hint)


def _cpu(target: Target) -> list[str]:
    """The processor to compile for, where the target's is less than zig takes for the triple: ARMv6."""
    return [f"-mcpu={target.zig_cpu}"] if target.machine == "armv6l" else []


def _compat(zig: Path, target: Target, headers: tuple[Path, ...], out: Path, env: Mapping[str, str]) -> None:
    """The static library of what the headers need and old libraries lack."""
    built = out.with_suffix(".o")
    words = ["-target", target.zig_triple, *_cpu(target), "-std=c++17", "-O2", "-g0", "-fPIC"]
    words += ["-fstack-protector-strong", "-fno-sanitize=undefined", "-nostdinc++"]
    words += [f"-I{folder}" for folder in headers]
    _run([zig, "c++", *words, "-c", _COMPAT, "-o", built], env)
    _run([zig, "ar", "rcs", out, built], env)
    built.unlink()


def _archive(root: Path, gcc: str) -> Path:
    """libstdc++ as a static library: of the headers' version, so it has what they call."""
    found = sorted(root.glob(f"usr/lib/gcc/*/{gcc}/libstdc++.a"))
    if len(found) != 1:
        raise HostError("libstdc++.a is not where Debian puts it.", f"{len(found)} in {root}", "./inv clean --cache")
    return found[0]


def adapted(zig: Path, target: Target, env: Mapping[str, str]) -> Adapted:
    """Headers and link inputs for ``target``, made once and cached.

    Args:
        zig: the zig program.
        env: the variables that say where zig's caches are.
    """
    pinned = table()["libstdcxx"]
    newest: Mapping[str, str] = {**pinned["newest"], "GLIBC": target.max_glibc}
    root = sysroot(target)
    plain = root / "usr/include/c++" / pinned["gcc"]
    headers = (plain, root / "usr/include" / target.multiarch / "c++" / pinned["gcc"], plain / "backward")
    names = ("libstdc++.so.6", "libgcc_s.so.1", *_LOADERS.get(target.machine, ()))
    libraries = [library(root, target, name) for name in names]
    facts = [
        _FORMAT,
        sha256_file(_COMPAT),
        target.zig_triple,
        *_cpu(target),
        portable(str(root)),
        repr(sorted(newest.items())),
    ]
    key = sha256_bytes("\n".join([*facts, *map(sha256_file, libraries)]).encode())[:16]
    folder = cache_dir("toolchains") / f"libstdcxx-{target.name}-{key}"

    def make(new: Path) -> None:
        _adapt_headers(plain, new / "include")
        for source in libraries:
            _stub(zig, target, source, new / source.name, newest, env)
        _compat(zig, target, (new / "include", *headers), new / "libcompat.a", env)

    sealed.made(folder, f"libstdcxx-{target.name}", make)
    shared, *others = (folder / source.name for source in libraries)
    compat = folder / "libcompat.a"
    archive = _archive(root, pinned["gcc"])
    return Adapted((folder / "include", *headers), (shared, *others, compat), (archive, *others, compat), key)
