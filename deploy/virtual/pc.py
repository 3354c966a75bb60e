"""A PC that Bochs plays: what lies in its memory when it starts, and its configuration.

The kernel lies there unpacked, with the page tables and parameters that Linux' 64-bit boot protocol wants
(Documentation/arch/x86/boot.rst and zero-page.rst of Linux); ``toolchains/emulation/bochs_boot.S`` jumps to it.
"""

from __future__ import annotations

import io
import lzma
import struct
from collections.abc import Sequence
from pathlib import Path

from core.errors import ConfigError, HostError

PARAMETERS, PAGES, KERNEL, RAMDISK = 0x8000000, 0x8001000, 0x1000000, 0x10000000
"""Physical addresses; bochs_boot.S has the first three, too."""
MEMORY = 1 << 30
_TABLES = 0x10000
"""Bytes at the end of the memory in which the BIOS puts its ACPI tables."""
_COMMAND = 0xD00
"""Offset of the command line in the page of parameters, behind the memory map."""
PER_SECOND = 200_000_000
"""Instructions in a second of the machine's clock. It waits if it is ahead of this machine's clock."""

_XZ = b"\xfd7zXZ\x00"
_HEADER = slice(0x1F1, 0x280)
"""The setup header of a bzImage (its length is at 0x201)."""

_MSRS = "0x1a0 0 00000000 00000001 00000000 00000000 00000000 00000000\n"
"""IA32_MISC_ENABLE says that string instructions are fast. Bochs has no such register, so Linux turns one of two
processor features off that its memmove() takes for inseparable, and copies wrongly."""


def unpack_kernel(packed: bytes) -> tuple[bytes, bytes]:
    """A package's kernel (bzImage) as its setup header, and as the memory from `KERNEL` on.

    Raises:
        ConfigError: it is not packed by xz, or lies elsewhere.
    """
    from elftools.elf.elffile import ELFFile

    start = packed.find(_XZ)
    if start < 0 or packed[0x202:0x206] != b"HdrS":
        raise ConfigError(
            "The kernel is not a bzImage packed by xz.", "", "another kernel in deploy/virtual/virtual.toml"
        )
    elf = ELFFile(io.BytesIO(lzma.LZMADecompressor().decompress(packed[start:])))
    parts = [part for part in elf.iter_segments() if part["p_type"] == "PT_LOAD"]
    end = max(part["p_paddr"] + part["p_memsz"] for part in parts)
    if elf["e_entry"] != KERNEL or min(part["p_paddr"] for part in parts) != KERNEL or end > PARAMETERS:
        raise ConfigError("The kernel lies at another address.", f"{elf['e_entry']:#x}", "fix deploy/virtual/pc.py")
    flat = bytearray(end - KERNEL)
    for part in parts:
        begin = part["p_paddr"] - KERNEL
        flat[begin : begin + part["p_filesz"]] = part.data()
    return packed[_HEADER], bytes(flat)


def parameters(header: bytes, ramdisk: int, words: str) -> bytes:
    """The memory from `PARAMETERS` on: the page of parameters, and page tables that map 4 GiB to themselves.

    Args:
        header: as `unpack_kernel` returns it.
        ramdisk: bytes of the initial file system, which lies at `RAMDISK`.
        words: the kernel's command line.
    """
    page = bytearray(4096)
    page[_HEADER] = header
    page[0x210] = 0xFF  # a boot loader without a number of its own
    page[0x211] |= 1  # loaded high
    struct.pack_into("<II", page, 0x218, RAMDISK, ramdisk)
    struct.pack_into("<I", page, 0x228, PARAMETERS + _COMMAND)
    command = words.encode("ascii") + b"\0"
    if _COMMAND + len(command) > len(page):
        raise ConfigError("The kernel's command line is too long.", words, "fix deploy/virtual/virtual.toml")
    page[_COMMAND : _COMMAND + len(command)] = command
    usable, reserved, tables = 1, 2, 3
    ranges = (
        (0, 0x9F000, usable),
        (0x9F000, 0x1000, reserved),
        (0xE8000, 0x18000, reserved),
        (0x100000, MEMORY - _TABLES - 0x100000, usable),
        (MEMORY - _TABLES, _TABLES, tables),
        (0xFFFC0000, 0x40000, reserved),
    )
    page[0x1E8] = len(ranges)
    for index, values in enumerate(ranges):
        struct.pack_into("<QQI", page, 0x2D0 + 20 * index, *values)
    return bytes(page) + _pages()


def _pages() -> bytes:
    present, large = 0x3, 0x80  # present and writable; 2 MiB
    top = struct.pack("<512Q", PAGES + 0x1000 | present, *[0] * 511)
    second = struct.pack("<512Q", *(PAGES + 0x2000 + 0x1000 * one | present for one in range(4)), *[0] * 508)
    return top + second + struct.pack("<2048Q", *(one << 21 | present | large for one in range(2048)))


def configuration(emulator: Path, images: Sequence[tuple[Path, int]], processor: str, folder: Path) -> dict[str, str]:
    """The texts of Bochs' files in the device's folder, by their names; the network's has the port's placeholder.

    Args:
        emulator: the folder of `toolchains.emulation.bochs`.
        images: files, and the addresses at which they lie in memory; at most four.
        processor: what stands behind ``cpu:``.

    Raises:
        HostError: a path has characters that Bochs' configuration cannot express.
    """
    from deploy.virtual.supervisor import PORT

    def quoted(path: Path) -> str:
        if set(str(path)) & set('"$\n'):
            raise HostError(
                f"Bochs cannot open {path}.", "a quotation mark or a dollar sign", "SLIPWAY_CACHE elsewhere"
            )
        return f'"{path}"'

    msrs = quoted(folder / "msrs")
    lines = [
        "display_library: nogui",
        f"memory: guest={MEMORY >> 20}, host={MEMORY >> 20}",
        f"romimage: file={quoted(emulator / 'BIOS')}",
        f"vgaromimage: file={quoted(emulator / 'VGABIOS')}",
        f"optromimage1: file={quoted(emulator / 'boot.rom')}, address=0xd0000",
        *(f"optramimage{number}: file={quoted(file)}, address={at:#x}" for number, (file, at) in enumerate(images, 1)),
        f"cpu: {processor}, count=1, ips={PER_SECOND}, reset_on_triple_fault=0, ignore_bad_msrs=1, msrs={msrs}",
        "clock: sync=slowdown, time0=utc",
        "ata0: enabled=0",
        "ata1: enabled=0",
        f"com1: enabled=1, mode=file, dev={quoted(folder / 'console.log')}",
        f"e1000: enabled=1, mac=52:54:00:12:34:56, ethmod=slirp, script={quoted(folder / 'network')}",
        "pci: enabled=1, chipset=i440fx, slot1=e1000",
        "log: /dev/stderr",
        "panic: action=fatal",
        "error: action=report, cpu0=ignore",  # Linux asks for registers that Bochs does not have
        "info: action=ignore",
        "debug: action=ignore",
    ]
    network = [
        "# slirp config",
        "restricted = 1",  # the machine reaches nothing; only this forward reaches it
        "ipv6_enabled = 0",
        f"hostfwd = tcp:127.0.0.1:{PORT}-10.0.2.15:22",
    ]
    return {"bochsrc": "\n".join(lines) + "\n", "network": "\n".join(network) + "\n", "msrs": _MSRS}
