"""What the virtual device's kernel is given: the archive format, and modules in the right order."""

from __future__ import annotations

import lzma
import stat
import struct
from pathlib import Path

import pytest

from core.errors import ConfigError
from deploy.virtual import cpio, image


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
