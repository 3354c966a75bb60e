"""What a build does with what the scan of instructions found: refuse, note, remember."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BuildError
from tests.support.objects import archive, elf, macho, words
from tests.unit.test_isa_scan import A32_RETURN, AVX, AVX2, KERNEL, MOVW, SSE2, VADD_NEON, armv6, x86
from toolchains.inspect import checks, isa_scan
from toolchains.targets import get_target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "native/lib").mkdir(parents=True)
    return tmp_path / "native"


def put(folder: Path, data: bytes, name: str = "lib/libx.a") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def test_a_planted_instruction_fails_the_build_with_the_functions_name(folder: Path) -> None:
    put(folder, archive({"a.c.o": armv6({"fine": words(A32_RETURN), "xnn_planted": words(VADD_NEON, MOVW)})}))
    with pytest.raises(BuildError, match=r"xnn_planted in libx\.a\(a\.c\.o\) has vadd\.i32") as caught:
        checks.check_native(get_target("linux-armv6"), folder)
    assert caught.value.names == ("xnn_planted",)
    assert "isa.toml" in caught.value.hint


def test_many_functions_are_counted_not_listed(folder: Path) -> None:
    put(folder, archive({"a.c.o": x86({f"f{index}": AVX for index in range(40)})}))
    with pytest.raises(BuildError, match="and 35 more functions") as caught:
        checks.check_native(get_target("android-x86_64"), folder)
    assert len(caught.value.names) == 40


def test_what_was_looked_at_is_noted(folder: Path) -> None:
    put(folder, archive({"f32-vadd-avx2-u8.c.o": x86({KERNEL.format("avx2"): AVX2}), "b.o": x86({"g": SSE2})}))
    found = checks.check_native(get_target("android-x86_64"), folder)
    (code,) = found.code
    assert (code.path, code.functions, code.kernels, code.instructions) == ("lib/libx.a", 2, 1, 4)
    assert (code.features, code.note, found.floor) == (("avx2",), "", "x86-64")


def test_what_every_mac_has_is_part_of_its_floor(folder: Path) -> None:
    put(folder, archive({"a.o": macho("x86_64", {"f": SSE2}, minimum=(10, 15))}, "bsd"))
    assert checks.check_native(get_target("macos-x86_64"), folder).floor == "x86-64 with sse3, ssse3, cx16"


def test_a_check_that_saw_nothing_is_none(folder: Path) -> None:
    with pytest.raises(BuildError, match="no binaries"):
        checks.check_native(get_target("android-x86_64"), folder)
    put(folder, archive({"a.o": elf("x86_64", {})}))
    with pytest.raises(BuildError, match="has no code for android-x86_64"):
        checks.check_native(get_target("android-x86_64"), folder)


def test_a_stripped_program_cannot_be_checked(folder: Path) -> None:
    file = put(folder, elf("x86_64", {"f": AVX + b"\xc3"}, stripped=True), "bin/proof")
    target = get_target("android-x86_64")
    with pytest.raises(BuildError, match="no table of symbols"):
        checks.check_code(target, [file], folder)
    (code,) = checks.check_code(target, [file], folder, prebuilt=[file]).code
    assert code.features == ("avx",)
    assert "stripped" in code.note


def test_what_others_compiled_is_noted_and_not_refused(folder: Path) -> None:
    data = x86({"their_dispatched_kernel": AVX, KERNEL.format("avx2"): AVX2})
    file = put(folder, data, "lib/libtheirs.so")
    (code,) = checks.check_code(get_target("linux-x86_64"), [file], folder, prebuilt=[file]).code
    assert code.note == "compiled elsewhere; 1 functions use more than the floor: their_dispatched_kernel"
    assert code.features == ("avx2",)


def test_a_file_is_scanned_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = put(folder, archive({"a.c.o": x86({"f": AVX})}))
    target = get_target("linux-x86_64")
    first = checks.scan(target, file)
    monkeypatch.setattr(isa_scan, "scan", lambda *_: pytest.fail("scanned again"))
    assert checks.scan(target, file) == first
    monkeypatch.undo()
    monkeypatch.setenv("SLIPWAY_CACHE", str(folder.parent / "cache"))
    file.write_bytes(archive({"a.c.o": x86({"f": SSE2})}))
    assert checks.scan(target, file).findings == ()
