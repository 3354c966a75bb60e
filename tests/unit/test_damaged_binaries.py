"""Whatever a file's bytes are, reading it ends well or in a `BuildError`: never in a traceback."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from core.errors import BuildError
from tests.support.objects import HARD_V6, archive, coff, elf, macho, pe, words
from toolchains.inspect import code, isa_scan
from toolchains.inspect import needs as inspect
from toolchains.targets import get_target

ARM = elf("arm", {"f": words(0xE12FFF1E, 0xE3000001)}, attributes=HARD_V6, marks=[(0, "$a"), (4, "$d")])
FILES = {
    "elf32": ARM,
    "elf64": elf("aarch64", {"f": words(0xD65F03C0), "g": words(0x4E829420)}),
    "elf program": elf("x86_64", {"f": b"\xc5\xfc\x58\xc1\xc3"}, kind=2),
    "coff": coff("x86_64", {"f": b"\x62\xf1\x7c\x48\x58\xc1\xc3"}),
    "pe": pe("x86_64", b"\xc3", ["KERNEL32.dll", "foreign.dll"]),
    "mach-o": macho("aarch64", {"f": words(0xD65F03C0, 0, 0)}, pools=[(4, 4)]),
    "archive": archive({"a.o": ARM, "a-name-longer-than-fifteen.o": ARM}),
    "bsd archive": archive({"a.o": macho("x86_64", {"f": b"\xc3"})}, "bsd"),
    "coff archive": archive({"a-name-longer-than-fifteen.obj": coff("i686", {"f": b"\xc3"})}, "coff"),
}
TARGET = get_target("linux-arm64")


@pytest.mark.parametrize("name", FILES)
def test_whole_files_are_read_and_damage_is_an_error_and_no_traceback(tmp_path: Path, name: str) -> None:
    file = tmp_path / "binary"
    file.write_bytes(FILES[name])
    assert list(inspect.read_all(file))
    assert isa_scan.scan(TARGET, file).instructions
    file = tmp_path / "binary"
    file.write_bytes(FILES[name][: len(FILES[name]) // 2])
    with pytest.raises(BuildError, match="binary"):
        isa_scan.scan(TARGET, file)
    draw, file = random.Random(0), tmp_path / "binary"  # noqa: S311
    for _ in range(30):
        content = bytearray(FILES[name])
        for place in draw.choices(range(len(content)), k=draw.randrange(13)):
            content[place] = draw.randrange(256)
        file.write_bytes(content[: draw.choice((len(content), draw.randrange(len(content))))])
        with contextlib.suppress(BuildError):
            list(inspect.read_all(file))
        with contextlib.suppress(BuildError):
            isa_scan.scan(TARGET, file)


@pytest.mark.parametrize("name", ["elf32", "elf64", "elf program", "mach-o"])
def test_no_beginning_of_a_file_is_taken_for_the_whole(name: str) -> None:
    """The library that reads these formats takes what is cut off for zeros, or leaves it out."""
    data = FILES[name]
    for size in range(len(data)):
        with pytest.raises(BuildError):
            code.functions(Path("binary"), "", data[:size])
