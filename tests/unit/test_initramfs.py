"""What a virtual device's machine is given: the archive, modules in order, the memory of the PC that Bochs plays."""

from __future__ import annotations

import lzma
import stat
import struct
from pathlib import Path

import pytest

from core.errors import BuildError, ConfigError
from deploy.virtual import cpio, image, pc
from deploy.virtual.spec import get_spec
from deploy.virtual.supervisor import PORT
from toolchains.emulation import bochs


def test_a_record_is_laid_out_as_the_kernel_reads_it() -> None:
    raw = cpio.write([cpio.file("etc/name", b"pi\n", 0o640)])
    # The folder's record comes first: 110 bytes of head, "etc\0", padded to a multiple of four.
    begin = 116
    head = raw[begin : begin + 110]
    assert head[:6] == b"070701"
    fields = [int(head[6 + 8 * i : 14 + 8 * i], 16) for i in range(13)]
    inode, mode, uid, gid, links, mtime, size, *devices, name_size, check = fields
    assert (mode, uid, gid, links, mtime, size) == (stat.S_IFREG | 0o640, 0, 0, 1, 0, 3)
    assert (inode, devices, check) == (2, [0, 0, 0, 0], 0)
    assert name_size == len(b"etc/name\0")
    name_at = begin + 110
    assert raw[name_at : name_at + name_size] == b"etc/name\0"
    data_at = name_at + name_size + -(110 + name_size) % 4
    assert data_at % 4 == 0
    assert raw[data_at : data_at + 4] == b"pi\n\0"
    assert raw[data_at + 4 : data_at + 10] == b"070701"
    assert b"TRAILER!!!\0" in raw
    assert len(raw) % 512 == 0


def read(raw: bytes) -> dict[str, cpio.Entry]:
    found: dict[str, cpio.Entry] = {}
    at = 0
    while True:
        fields = [int(raw[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        name = raw[at + 110 : at + 109 + fields[11]].decode()
        if name == "TRAILER!!!":
            return found
        data = at + 110 + fields[11] + -(110 + fields[11]) % 4
        found[name] = cpio.Entry(name, fields[1], raw[data : data + fields[6]], (fields[9], fields[10]))
        at = data + fields[6] + -fields[6] % 4


def test_entries_of_every_kind_come_in_one_order() -> None:
    entries = [
        cpio.folder("root", 0o700), cpio.file("usr/bin/tool", bytes(range(256)) * 33, 0o755), cpio.file("empty", b""),
        cpio.link("bin", "usr/bin"), cpio.character_device("dev/console", 5, 1),
    ]  # fmt: skip
    found = read(cpio.write(entries))
    assert [found[entry.path] for entry in entries] == entries
    assert found["usr/bin"] == cpio.folder("usr/bin")
    names = list(read(cpio.write([cpio.file("a/b/c", b""), cpio.file("a-b", b""), cpio.file("a/z", b"")])))
    assert names == ["a", "a/b", "a/b/c", "a/z", "a-b"]
    assert cpio.write(entries) == cpio.write(entries[::-1])


@pytest.mark.parametrize("path", ["/etc", "a//b", "../x", "a/./b", ""])
def test_paths_that_leave_the_root_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="relative"):
        cpio.write([cpio.file(path, b"")])


def module(info: bytes) -> bytes:
    """The least ELF file with a ``.modinfo`` section (System V ABI: file header, section headers)."""
    names = b"\0.modinfo\0.shstrtab\0"
    at = 64
    sections = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, at, len(info), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, at + len(info), len(names), 0, 0, 1, 0),
    ]
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 1, 183, 1, 0, 0, at + len(info) + len(names), 0, 64, 0, 0, 64, 3, 2)
    return head + info + names + b"".join(sections)


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A kernel's modules: net needs core and bus, bus needs core; ring is built in; soft wants extra first."""
    files = {
        "net/virt-net.ko": b"name=virt_net\0depends=core,bus,ring\0",
        "bus.ko": b"depends=core\0license=GPL\0",
        "core.ko": b"depends=\0",
        "soft.ko": b"softdep=pre: extra absent post: later\0depends=\0",
        "extra.ko": b"",
        "loop-a.ko": b"depends=loop-b\0",
        "loop-b.ko": b"depends=loop-a\0",
        "broken.ko": b"depends=missing\0",
    }
    for name, info in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(module(info))
    (tmp_path / "packed.ko.xz").write_bytes(lzma.compress(module(b"depends=core\0")))
    (tmp_path / "modules.builtin").write_text("kernel/drivers/ring.ko\n")
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        (["virt_net"], ["core.ko", "bus.ko", "virt-net.ko"]),
        (["virt-net", "core"], ["core.ko", "bus.ko", "virt-net.ko"]),
        (["bus", "virt_net"], ["core.ko", "bus.ko", "virt-net.ko"]),
        (["ring"], []),
        (["soft"], ["extra.ko", "soft.ko"]),
        (["packed"], ["core.ko", "packed.ko.xz"]),
        (["loop_a"], ["loop-b.ko", "loop-a.ko"]),
    ],
)
def test_modules_come_after_what_they_depend_on(modules: Path, wanted: list[str], order: list[str]) -> None:
    assert [file.name for file in image.load_order(wanted, *image.find(modules))] == order


def test_modinfo_keeps_all_values_and_a_module_that_is_missing_is_named(modules: Path) -> None:
    with pytest.raises(ConfigError, match="no module missing") as caught:
        image.load_order(["broken"], *image.find(modules))
    assert "broken" in caught.value.cause
    assert image.modinfo(module(b"alias=a\0alias=b\0depends=\0")) == {"alias": ["a", "b"], "depends": [""]}


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
