"""Static archives of all flavours, and those that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BuildError
from tests.support.objects import archive
from toolchains.inspect.archives import members, objects

FILES = {"short.o": b"one", "a-name-longer-than-fifteen.c.o": b"four", "another-long-name.c.obj": b"\x7fELF"}
PATH = Path("libx.a")


@pytest.mark.parametrize("flavour", ["gnu", "bsd", "coff"])
def test_an_archive_is_read_whole_or_named(flavour: str) -> None:
    found = {member.name: bytes(member.data) for member in members(PATH, archive(FILES, flavour))}
    assert found == FILES
    data = archive(FILES, flavour)
    for size in (len(data) - 2, len(data) - 70, 20):
        with pytest.raises(BuildError, match=r"libx\.a is damaged"):
            list(members(PATH, data[:size]))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"`\n", b"xx", "no member's header at byte 8"),
        (b"/0 ", b"/99", "a name at 99"),
        (b"3         `\n", b"-3        `\n", "is cut off"),
    ],
)
def test_damage_is_said(old: bytes, new: bytes, why: str) -> None:
    data = archive(FILES)
    assert old in data
    with pytest.raises(BuildError, match=why):
        list(members(PATH, data.replace(old, new, 1)))


def test_odd_members_and_archives() -> None:
    library = archive({"kernel32.dll": b"\0\0\xff\xff\0\0\x64\x86", "code.obj": b"\x64\x86"}, "coff")
    assert [name for name, _ in objects(PATH, library)] == ["code.obj"]
    assert list(objects(Path("a.o"), b"\x7fELF")) == [("", b"\x7fELF")]
    data = archive({"x.o": b"one"}, "bsd").replace(b"#1/8  ", b"#1/999")
    with pytest.raises(BuildError, match="a name of 999 bytes"):
        list(members(PATH, data))
    with pytest.raises(BuildError, match="thin archive"):
        list(members(PATH, b"!<thin>\n"))
