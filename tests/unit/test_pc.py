"""What lies in the memory of the PC that Bochs plays (`deploy.virtual.pc`), and how Bochs is set up."""

from __future__ import annotations

import lzma
import struct
from pathlib import Path

import pytest

from core.errors import BuildError, ConfigError
from deploy.virtual import pc
from deploy.virtual.spec import get_spec
from deploy.virtual.supervisor import PORT
from toolchains.emulation import bochs


def kernel(entry: int = pc.KERNEL, address: int = pc.KERNEL) -> bytes:
    """A bzImage with an ELF file of one segment, which is longer in memory than in the file."""
    code = b"code of a kernel"
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, entry, 64, 0, 0, 64, 56, 1, 64, 0, 0
    ) + struct.pack("<IIQQQQQQ", 1, 5, 120, 0, address, len(code), len(code) + 8, 1)
    setup = bytearray(1024)
    setup[0x201] = 0x6A
    setup[0x202:0x206] = b"HdrS"
    return bytes(setup) + lzma.compress(header + code) + b"behind it"


def test_a_kernel_is_unpacked_with_its_empty_memory() -> None:
    header, flat = pc.unpack_kernel(kernel())
    assert flat == b"code of a kernel" + bytes(8)
    assert header[0x202 - 0x1F1 :][:4] == b"HdrS"


@pytest.mark.parametrize(
    "packed",
    [b"", b"MZ", kernel().replace(b"HdrS", b"none"), kernel(entry=0x200000), kernel(address=0x1200000)],
    ids=["empty", "short", "no header", "another entry", "another address"],
)
def test_another_kernel_is_refused(packed: bytes) -> None:
    with pytest.raises(ConfigError, match="The kernel"):
        pc.unpack_kernel(packed)


def test_only_the_forward_reaches_the_machine(tmp_path: Path) -> None:
    texts = pc.configuration(tmp_path, [(tmp_path / "k", pc.KERNEL)], get_spec("avx512").bochs, tmp_path)
    assert f"hostfwd = tcp:127.0.0.1:{PORT}-10.0.2.15:22" in texts["network"]
    assert "restricted = 1" in texts["network"]
    assert f'optramimage1: file="{tmp_path}/k", address=0x1000000' in texts["bochsrc"]


def sources(folder: Path, config: str) -> Path:
    for name, changes in bochs._CHANGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(old for old, _ in changes))
    (folder / "config.h.in").write_text(config)
    (folder / "bxversion.h.in").write_text('"@VERSION@" @VER_DEV@ "@REL_STRING@" "@REL_TIMESTAMP@"')
    return folder


CONFIG = "".join(f"#define {name} 0\n" for name in bochs._VALUES) + "#define LOWLEVEL_CDROM cdrom_base_c\n"


def test_the_sources_are_set_up(tmp_path: Path) -> None:
    bochs._configure(sources(tmp_path, CONFIG))
    lines = (tmp_path / "config.h").read_text().splitlines()
    assert {"#define BX_CPU_LEVEL 6", "#define BX_SUPPORT_EVEX 1", "#define BX_DEBUGGER 0"} <= set(lines)
    assert "get_vector(offset), size)" not in (tmp_path / "memory/misc_mem.cc").read_text()
    assert (tmp_path / "bxversion.h").read_text() == f'"{bochs.VERSION}" 0 "" ""'


def test_other_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no setting BX_SUPPORT_EVEX"):
        bochs._configure(sources(tmp_path, CONFIG.replace("BX_SUPPORT_EVEX", "BX_SUPPORT_OTHER")))
    sources(tmp_path, CONFIG)
    (tmp_path / "memory/misc_mem.cc").write_text("something else")
    with pytest.raises(BuildError, match=r"misc_mem\.cc of Bochs 3\.0 is not as expected"):
        bochs._configure(tmp_path)
