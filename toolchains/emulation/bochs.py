"""Bochs, which emulates x86 processors with AVX-512: QEMU has AVX2 at most. Built once, from Debian's sources.

Debian's own package does not boot Linux: compiled with GCC's strict aliasing, its 64-bit IDIV gives wrong quotients
(Bochs' issue 668). It also has a debugger in it, which makes it half as fast.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.console import step
from core.errors import BuildError, HostError
from core.files import locked, new_folder, sealed, sha256_bytes
from core.paths import cache_dir
from core.processes.commands import run
from toolchains.compilers import zig
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.tools import program

VERSION = "3.0"
_SUITE = "trixie"
_SOURCE = (
    "bochs_3.0+dfsg.orig.tar.xz",
    "78f6c73d4a6472d5130a87ab9dc306d02c7c71ed8e25b3a8ef642e2a7acd282b",
)
_BIOS = ("bochsbios", "vgabios")
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

_FOLDERS = (
    ".", "cpu", "cpu/decoder", "cpu/avx", "cpu/cpudb/intel", "cpu/cpudb/amd", "cpu/fpu", "cpu/softfloat3e",
    "cpu/softfloat3e/8086-SSE", "memory", "gui", "iodev", "iodev/display", "iodev/hdimage",
    "iodev/network", "iodev/network/slirp",
)  # fmt: skip
_LEFT_OUT = re.compile(
    r"^(bxdisasm|gdbstub|gui/(?!gui\.|keymap\.|nogui\.|paramtree\.|siminterface\.|textconfig\.).*"
    r"|iodev/(busmouse|gameport|iodebug|pcidev)\..*|iodev/display/(banshee|svga_cirrus|voodoo)\..*"
    r"|iodev/hdimage/cdrom_(amigaos|osx|win32)\..*|iodev/network/(eth_(fbsd|tap|win32)|ne2k|pcipnic)\..*)"
)
"""What a machine without a screen, sound and USB does not have."""

_FLAGS = ("-O2", "-fno-strict-aliasing", "-fwrapv", "-w", "-D_FILE_OFFSET_BITS=64")
_SOFTFLOAT = (
    "-Icpu/softfloat3e", "-Icpu/softfloat3e/include", "-DSOFTFLOAT_FAST_INT64", "-DINLINE_LEVEL=5",
    "-DSOFTFLOAT_FAST_DIV32TO16", "-DSOFTFLOAT_FAST_DIV64TO32",
)  # fmt: skip

_YES = """
BX_SUPPORT_X86_64 BX_PHY_ADDRESS_LONG BX_WITH_NOGUI BX_SUPPORT_ALIGNMENT_CHECK BX_SUPPORT_FPU BX_SUPPORT_MONITOR_MWAIT
BX_SUPPORT_PERFMON BX_SUPPORT_MEMTYPE BX_SUPPORT_AVX BX_SUPPORT_EVEX BX_SUPPORT_AMX BX_SUPPORT_REPEAT_SPEEDUPS
BX_SUPPORT_HANDLERS_CHAINING_SPEEDUPS BX_ENABLE_TRACE_LINKING BX_CONFIGURE_MSRS BX_FAST_FUNC_CALL BX_SUPPORT_PCI
BX_SUPPORT_E1000 BX_NETWORKING BX_NETMOD_SLIRP BX_SUPPORT_3DNOW BX_X86_DEBUGGER BX_SUPPORT_CDROM
BX_HAVE_SLEEP BX_HAVE_USLEEP BX_HAVE_NANOSLEEP BX_HAVE_ABORT BX_HAVE_SOCKLEN_T BX_HAVE_GETTIMEOFDAY BX_HAVE_MKSTEMP
BX_HAVE_SYS_MMAN_H BX_HAVE_MKTIME BX_HAVE_TMPFILE64 BX_HAVE_FSEEKO64 BX_HAVE_NET_IF_H BX_HAVE___BUILTIN_BSWAP32
BX_HAVE___BUILTIN_BSWAP64 BX_HAVE_SSIZE_T BX_HAVE_GETENV BX_HAVE_SETENV BX_HAVE_SELECT BX_HAVE_SNPRINTF
BX_HAVE_VSNPRINTF BX_HAVE_STRTOULL BX_HAVE_STRTOUQ BX_HAVE_STRDUP BX_HAVE_STRCASECMP BX_HAVE_SET BX_HAVE_MAP
"""
_VALUES = {
    "BX_CPU_LEVEL": "6",
    "BX_DEFAULT_CONFIG_INTERFACE": '"textconfig"',
    "BX_DEFAULT_DISPLAY_LIBRARY": '"nogui"',
    "BX_PLUGINS": "0", "BX_GDBSTUB": "0", "BX_DEBUGGER": "0", "BX_INSTRUMENTATION": "0", "BX_SUPPORT_SMP": "0",
    "BX_NETMOD_LINUX": "0", "BX_NETMOD_TUNTAP": "0", "BX_NETMOD_VDE": "0", "BX_NETMOD_SOCKET": "0",
    "BX_ENABLE_STATISTICS": "0", "BX_SUPPORT_SB16": "0", "BX_SUPPORT_ES1370": "0",
    "SIZEOF_UNSIGNED_CHAR": "1", "SIZEOF_UNSIGNED_SHORT": "2", "SIZEOF_UNSIGNED_INT": "4", "SIZEOF_UNSIGNED_LONG": "8",
    "SIZEOF_UNSIGNED_LONG_LONG": "8", "SIZEOF_INT_P": "8",
    **dict.fromkeys(_YES.split(), "1"),
}  # fmt: skip
"""What ``configure`` would write: a PC with one 64-bit processor of every extension, a network card, no screen."""

_CHANGES: Mapping[str, tuple[tuple[str, str], ...]] = {
    # An image for the memory was read in one piece, although the memory comes in blocks that lie anywhere.
    "memory/misc_mem.cc": (
        (
            "get_vector(offset), size)",
            "get_vector(offset), size < 0x1000 - offset % 0x1000 ? size : 0x1000 - offset % 0x1000)",
        ),
    ),
    # The processor says 2.2 GHz; its counter runs at the emulator's own rate. Linux measures it if nothing is said.
    "cpu/cpudb/intel/sapphire_rapids.cc": (
        ("get_leaf(leaf, 0x00000002, 0x000000b0, 0x017d7840, 0x00000000);", "get_reserved_leaf(leaf);"),
        ("get_leaf(leaf, 0x00000898, 0x000012c0, 0x00000064, 0x00000000);", "get_reserved_leaf(leaf);"),
    ),
}


def folder() -> Path:
    """The folder with ``bochs``, ``boot.rom``, ``BIOS`` and ``VGABIOS``, built if it is missing (about a minute).

    Raises:
        HostError: sources or compiler are not available, or this machine is not one that it is built for.
        BuildError: it does not compile.
    """
    if why := debian.runnable():
        raise HostError("There is no Bochs on this machine.", why, debian.fix())
    machine = _MACHINES.get(host_arch())
    if machine is None:
        raise HostError(f"Bochs is not built on {host_arch()}.", f"it is on {', '.join(_MACHINES)}", "on one of these")
    bios = debian.tree(_SUITE, host_arch(), list(_BIOS), name="bochs-bios")
    inputs = (
        _SOURCE, _FOLDERS, _LEFT_OUT.pattern, _FLAGS, _SOFTFLOAT, _VALUES, _CHANGES, _ROM.read_bytes(),
        machine, zig.pinned_version(), debian.versions(bios),
    )  # fmt: skip
    key = sha256_bytes(repr(inputs).encode())[:16]
    built = cache_dir("toolchains") / f"bochs-{VERSION}-{key}"
    if not _usable(built):
        with locked(f"bochs-{key}"):
            if not _usable(built):
                _build(built, bios, machine)
    return built


def _usable(built: Path) -> bool:
    return sealed.is_sealed(built) and sealed.whole(built)


_ROM = Path(__file__).with_name("bochs_boot.S")


def _build(built: Path, bios: Path, machine: str) -> None:
    name, digest = _SOURCE
    archive = debian.source(_SUITE, "bochs", name, digest)
    compiler = [str(zig.program()), "c++", "-target", f"{machine}-linux-gnu.2.28"]
    with (
        step(f"building Bochs {VERSION} (once)", "bochs"),
        tempfile.TemporaryDirectory(prefix="slipway-bochs-") as scratch,
        new_folder(built) as new,
    ):
        source = Path(scratch)
        _unpack(archive, source)
        _configure(source)
        (source / "build.ninja").write_text("".join(_steps(source, compiler)), encoding="utf-8")
        run(
            [program("ninja"), "-C", source, "bochs"],
            env={**os.environ, **zig.caches()}, error=BuildError, what="Building Bochs",
        )  # fmt: skip
        shutil.copy2(source / "bochs", new / "bochs")  # a rename fails where /tmp is a file system of its own
        (new / "boot.rom").write_bytes(_rom(source))
        (new / "BIOS").write_bytes((bios / "usr/share/bochs/BIOS-bochs-latest").read_bytes())
        (new / "VGABIOS").write_bytes((bios / "usr/share/vgabios/vgabios.bin").read_bytes())
        sealed.seal(new)


def _unpack(archive: Path, folder: Path) -> None:
    """Only regular files, below ``folder``: the archive's digest was checked."""
    with tarfile.open(archive) as tar:
        for entry in tar:
            path = Path(*Path(entry.name).parts[1:])
            if not entry.isfile() or ".." in path.parts:
                continue
            data = tar.extractfile(entry)
            if data is None:
                continue
            if path.suffix == ".c" and path.parts[1:2] == ("softfloat3e",):
                path = path.with_suffix(".cc")  # zig looks at the name; it is C++
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data.read())


def _configure(source: Path) -> None:
    text = (source / "config.h.in").read_text(encoding="utf-8")
    for name, value in _VALUES.items():
        text, count = re.subn(rf"(?m)^(#\s*define\s+{name})\b.*(?:\\\n.*)*$", rf"\1 {value}", text)
        if not count:
            raise BuildError(f"Bochs {VERSION} has no setting {name}.", "", "fix toolchains/emulation/bochs.py")
    (source / "config.h").write_text(text.replace("cdrom_base_c", "cdrom_misc_c"), encoding="utf-8")
    version = (source / "bxversion.h.in").read_text(encoding="utf-8")
    for name, value in (("@VERSION@", VERSION), ("@VER_DEV@", "0"), ("@REL_STRING@", ""), ("@REL_TIMESTAMP@", "")):
        version = version.replace(name, value)
    (source / "bxversion.h").write_text(version, encoding="utf-8")
    for file, changes in _CHANGES.items():
        code = (source / file).read_text(encoding="utf-8")
        for old, new in changes:
            if code.count(old) != 1:
                raise BuildError(f"{file} of Bochs {VERSION} is not as expected.", old, "fix its change")
            code = code.replace(old, new)
        (source / file).write_text(code, encoding="utf-8")


def _steps(source: Path, compiler: list[str]) -> Iterator[str]:
    command = shlex.join(compiler).replace("$", "$$")
    yield f"rule compile\n  command = {command} $flags -c $in -o $out\n  description = $in\n"
    yield f"rule link\n  command = {command} -s -o $out $in -ldl -lpthread\n"
    objects = []
    for folder in _FOLDERS:
        for file in sorted((source / folder).glob("*.cc")):
            name = file.relative_to(source).as_posix()
            if _LEFT_OUT.match(name):
                continue
            own = _SOFTFLOAT if folder.startswith("cpu/softfloat3e") else _parents(folder)
            flags = " ".join((*_FLAGS, "-I.", "-Iiodev", "-Iinstrument/stubs", *own))
            yield f"build {name}.o: compile {name}\n  flags = {flags}\n"
            objects.append(f"{name}.o")
    yield f"build bochs: link {' '.join(objects)}\n"


def _parents(folder: str) -> tuple[str, ...]:
    return (*(f"-I{parent}" for parent in Path(folder).parents), "'-DBX_SHARE_PATH=\"\"'")


def _rom(scratch: Path) -> bytes:
    """The boot ROM, with the sum of all its bytes a multiple of 256, as a BIOS wants it."""
    from elftools.elf.elffile import ELFFile

    made = scratch / "boot.o"
    run(
        [zig.program(), "cc", "-target", "x86_64-freestanding-none", "-g0", "-c", _ROM, "-o", made],
        env={**os.environ, **zig.caches()}, error=BuildError, what="Assembling Bochs' boot ROM",
    )  # fmt: skip
    with made.open("rb") as file:
        code = bytearray(ELFFile(file).get_section_by_name(".text").data())
    code[-1] = -sum(code[:-1]) & 0xFF
    return bytes(code)
