"""Instructions above a target's least CPU: found in plain functions, refused by a build, allowed in kernels."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BuildError
from core.files import write_atomic
from tests.support.objects import HARD_V6, Functions, archive, coff, elf, macho, words
from toolchains.inspect import checks, isa
from toolchains.inspect.isa import Scan
from toolchains.targets import get_target

A32_RETURN, A64_RETURN = 0xE12FFF1E, 0xD65F03C0
MOVW, VADD_NEON, VFMA, VSDOT = 0xE3000001, 0xF2220844, 0xEEA00A20, 0xFC220D44
SDOT, USDOT, FADD_H, LDADD, SMSTART = 0x4E829420, 0x4E829C20, 0x1EE22820, 0xB8200041, 0xD503477F
SSE2 = bytes.fromhex("660ffec1")
AVX, AVX2 = bytes.fromhex("c5fc58c1"), bytes.fromhex("c5f5fec2")
AVX512F, AVX512VL, AVX512BW = map(bytes.fromhex, ("62f17c4858c1", "62f17c0858c1", "62f17548fdc2"))
VNNI, AVXVNNI = bytes.fromhex("62f2754850c2"), bytes.fromhex("c4e27550c2")
FP16, AMX = bytes.fromhex("62f57c4858c1"), bytes.fromhex("c4e26b5ec1")
KERNEL = "xnn_f32_vadd_minmax_ukernel__{}_u16"

Scanner = Callable[..., Scan]


@pytest.fixture
def scan(tmp_path: Path) -> Scanner:
    """Scan an object with the given functions, as a member of an archive when it has a name."""

    def run(target: str, data: bytes, member: str = "") -> Scan:
        file = tmp_path / "libx.a"
        file.write_bytes(archive({member: data}) if member else data)
        return isa.scan(get_target(target), file)

    return run


def armv6(functions: Functions, **more: object) -> bytes:
    return elf("arm", functions, attributes=HARD_V6, marks=[(0, "$a")], **more)  # type: ignore[arg-type]


def arm64(functions: Functions) -> bytes:
    return elf("aarch64", functions)


def x86(functions: Functions) -> bytes:
    return elf("x86_64", {name: code + b"\xc3" for name, code in functions.items()})


def needs(found: Scan) -> list[tuple[str, str]]:
    return [(item.function, item.feature) for item in found.findings]


@pytest.mark.parametrize(("feature", "those"), [
    # after movw: movt, movwlo, ubfx, rbit, mls
    ("ARMv6T2", (MOVW, 0xE3400001, 0x33000000, 0xE7E00050, 0xE6FF0F30, 0xE0600291)),
    ("ARMv7", (0xF57FF05B, 0xF57FF06F)),  # dmb ish, isb
    ("a divider (ARMv7VE)", (0xE710F110,)),
    # vadd, vld1, vdup, vmov.8 d0[0], vcvt or a comparison on q registers
    ("NEON", (VADD_NEON, 0xF2010D02, 0xF4200A8F, 0xEE800B10, 0xEE400B10, 0xF3B90540, 0xF3C00050)),
    ("VFPv3", (0x1EB70A00, 0xEEB70A00, 0xEEBA0A40)),  # vmovne, vmov of 1.0, vcvt with fraction bits
    ("registers d16 to d31 (VFPv3-D32)", (0xEE700BA0, 0xED6D0B02)), ("conversions of half precision", (0xEEB20A60,)),
    ("VFPv4", (VFMA,)),
    ("Armv8's floating point", (0xEEB60A40,)),  # vrintr
    ("Armv8", (0xE1900C9F,)),  # lda
    ("arithmetic in half precision (FEAT_FP16)", (0xED910901, 0xEE300920)),  # vldr.16, vadd.f16
    ("FEAT_DotProd", (VSDOT,)), ("FEAT_I8MM", (0xFC220C44,)), ("FEAT_BF16", (0xFC020D44,)),
    ("an instruction that this check does not know", (0xFFFFFFFF,)),
])  # fmt: skip
def test_what_an_arm1176_does_not_have(scan: Scanner, feature: str, those: tuple[int, ...]) -> None:
    for word in those:
        code = {"first": words(A32_RETURN), "planted": words(0xE1A00000, word, A32_RETURN)}
        found = scan("linux-armv6", armv6(code))
        assert needs(found) == [("planted", feature)], hex(word)
        assert found.findings[0].address == 8
        assert (found.functions, found.instructions) == (2, 4)


@pytest.mark.parametrize(("target", "kernel", "code", "wrong"), [
    ("linux-armv6", "neon", VADD_NEON, []), ("linux-armv6", "neon", MOVW, []), ("linux-armv6", "neon", VFMA, ["VFPv4"]),
    ("linux-armv6", "neonfma", VFMA, []), ("linux-armv6", "neonfma", VSDOT, ["FEAT_DotProd"]),
    ("linux-armv6", "neondot", VSDOT, []), ("linux-armv6", "asm_aarch32_neon_cortex_a53", VADD_NEON, []),
    ("linux-armv6", "scalar", VADD_NEON, ["NEON"]), ("linux-armv6", "armsimd32", MOVW, ["ARMv6T2"]),
    ("linux-armv6", "asm_aarch32_vfp_ld64", VADD_NEON, ["NEON"]), ("android-arm64", "neon", SDOT, ["FEAT_DotProd"]),
    ("android-arm64", "neondot", SDOT, []), ("android-arm64", "asm_aarch64_neonfp16arith_cortex_a55", FADD_H, []),
    ("android-arm64", "neonfma", FADD_H, ["arithmetic in half precision (FEAT_FP16)"]),
    ("linux-x86_64", "sse2", SSE2, []), ("linux-x86_64", "ssse3", AVX, ["AVX"]), ("linux-x86_64", "avx", AVX, []),
    ("linux-x86_64", "avx", AVX2, ["AVX2"]), ("linux-x86_64", "avx2", AVX2, []),
    ("linux-x86_64", "avx2", AVX512F, ["AVX512F"]), ("linux-x86_64", "avx2", AVX512VL, ["AVX512SKX"]),
    ("linux-x86_64", "avx512f", AVX512F, []), ("linux-x86_64", "avx512f", AVX512VL, ["AVX512SKX"]),
    ("linux-x86_64", "avx512f", AVX512BW, ["AVX512SKX"]), ("linux-x86_64", "avx512skx", AVX512BW, []),
    ("linux-x86_64", "avx512skx", VNNI, ["AVX512VNNI"]), ("linux-x86_64", "avx256skx", AVX512VL, []),
    ("linux-x86_64", "avx512vnni", VNNI, []), ("linux-x86_64", "avxvnni", AVXVNNI, []),
    ("linux-x86_64", "avxvnni", VNNI, ["AVX512VNNI"]), ("linux-x86_64", "avx512fp16", FP16, []),
    ("linux-x86_64", "avx512amx", AMX, []), ("linux-x86_64", "avx512vnnigfni", AMX, ["AMX"]),
])  # fmt: skip
def test_a_kernel_may_use_what_its_name_says(
    scan: Scanner, target: str, kernel: str, code: int | bytes, wrong: list[str]
) -> None:
    made = {"linux-armv6": armv6, "android-arm64": arm64, "linux-x86_64": x86}[target]
    found = scan(target, made({KERNEL.format(kernel): words(code) if isinstance(code, int) else code}))
    assert [feature for _, feature in needs(found)] == wrong
    assert found.kernels == (kernel != "sse2"), "which every x86-64 has"


def test_a_kernel_counts_by_its_own_name_and_then_by_its_file(scan: Scanner) -> None:
    data = armv6({KERNEL.format("neon"): words(VFMA)})
    assert [feature for _, feature in needs(scan("linux-armv6", data, "f32-x-neonfma.c.o"))] == ["VFPv4"]
    data = armv6({"unnamed_helper": words(VADD_NEON)})
    assert scan("linux-armv6", data, "f32-vadd-minmax-neon-u8.c.o").kernels == 1
    assert needs(scan("linux-armv6", data, "f32-vadd-minmax-scalar-u8.c.o")) == [("unnamed_helper", "NEON")]
    assert needs(scan("linux-armv6", data, "operator-run.c.o")) == [("unnamed_helper", "NEON")]
    found = scan("linux-armv6", armv6({"helper": words(MOVW)}), "pack-lh.c.o")
    assert str(found.findings[0]) == "helper in libx.a(pack-lh.c.o) has movw r0, #1 at 0x0, which needs ARMv6T2"
    data = x86({"local_helper": AVX512F})
    assert needs(scan("linux-x86_64", data, "avx512f.c.o")) == []
    assert needs(scan("linux-x86_64", data, "avx2.c.o")) == [("local_helper", "AVX512F")]
    assert needs(scan("linux-x86_64", coff("x86_64", {"f": AVX}), "f32-vadd-avx-u8.c.obj")) == []
    data = macho("aarch64", {"f": words(LDADD, FADD_H, SDOT, USDOT)})
    assert needs(scan("macos-arm64", data)) == [("f", "FEAT_I8MM")]


def test_literal_pools_and_thumb_under_a_condition(scan: Scanner) -> None:
    code = {"f": words(A32_RETURN, MOVW, VADD_NEON, A32_RETURN, MOVW)}
    marks = [(0, "$a"), (4, "$d.1"), (12, "$a")]
    found = scan("linux-armv6", elf("arm", code, attributes=HARD_V6, marks=marks))
    assert [item.address for item in found.findings] == [16]
    assert found.instructions == 3
    thumb = bytes.fromhex("18bf40f201007047")
    found = scan("linux-armv6", elf("arm", {"f": thumb}, attributes=HARD_V6, thumb=True))
    assert [item.feature for item in found.findings] == ["ARMv6T2", "ARMv6T2"]
    assert found.findings[1].instruction.startswith("movwne")
    found = scan("linux-armv7", armv6({"f": words(MOVW, VADD_NEON, 0xE710F110, VFMA)}))
    assert [feature for _, feature in needs(found)] == ["a divider (ARMv7VE)", "VFPv4"]


@pytest.mark.parametrize("marks", [[], [(0, "$t")]])
def test_thumb_is_read_as_thumb(scan: Scanner, marks: list[tuple[int, str]]) -> None:
    """mov r0, r3; movw r0, #1; add.w r0, r0, #1; bx lr"""
    code = bytes.fromhex("184640f2010000f101007047")
    found = scan("linux-armv6", elf("arm", {"f": code}, attributes=HARD_V6, thumb=True, marks=marks))
    assert needs(found) == [("f", "ARMv6T2"), ("f", "Thumb-2")]
    assert [item.address for item in found.findings] == [2, 6]
    assert scan("linux-armv7", elf("arm", {"f": code}, attributes=HARD_V6, thumb=True, marks=marks)).findings == ()


@pytest.mark.parametrize(("feature", "those"), [
    ("FEAT_DotProd", (SDOT, 0x4F82E020)),  # the second by element
    ("FEAT_I8MM", (0x4E82A420, USDOT)), ("FEAT_BF16", (0x6E42EC20,)),
    ("arithmetic in half precision (FEAT_FP16)", (FADD_H, 0x4E421420)), ("FEAT_FHM", (0x4E22EC20,)),
    ("FEAT_RDM", (0x6E828420,)),
    ("atomics of Armv8.1 (FEAT_LSE)", (LDADD, 0x88A07C41)),  # the second: cas
    ("FEAT_LRCPC", (0xB8BFC020,)), ("CRC", (0x1AC24020,)), ("CRYPTO", (0x4E284820,)),
    ("PAUTH", (0xD65F0BFF,)),  # retaa
    ("SVE", (0x2518E3E0, 0x04BF5020)),
    ("SME", (SMSTART, 0x80800000, 0x04BF5820)),  # the last: rdsvl
    ("SME2 or SVE2.1", (0xC1201800,)),
])  # fmt: skip
def test_what_the_first_armv8_does_not_have(scan: Scanner, feature: str, those: tuple[int, ...]) -> None:
    for word in those:
        found = scan("linux-arm64", elf("aarch64", {"planted": words(word, A64_RETURN)}))
        assert needs(found) == [("planted", feature)], hex(word)


@pytest.mark.parametrize(
    ("name", "word", "wrong"),
    [
        ("kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4c32p4x8_1x4x32_neon_dotprod", SDOT, []),
        ("kai_run_matmul_clamp_f32_qai8dxp1x8_qsi4c32p4x8_1x4x32_neon_dotprod", USDOT, ["FEAT_I8MM"]),
        ("kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4cxp4x8_8x4x32_neon_i8mm", USDOT, []),
        ("kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", SMSTART, []),
        ("kai_get_m_step_matmul_clamp_f32_f32_f32p", SDOT, ["FEAT_DotProd"]),
        ("__aarch64_ldadd4_acq_rel", LDADD, []),
        ("__aarch64_ldadd4_acq_rel", SDOT, ["FEAT_DotProd"]),
        ("xnn_create_runtime", LDADD, ["atomics of Armv8.1 (FEAT_LSE)"]),
    ],
)
def test_kleidiais_functions_and_helpers_of_64_bits(scan: Scanner, name: str, word: int, wrong: list[str]) -> None:
    assert [feature for _, feature in needs(scan("android-arm64", arm64({name: words(word)})))] == wrong


@pytest.mark.parametrize("linked", [False, True])
def test_data_in_code_of_apples_files(scan: Scanner, linked: bool) -> None:
    code = {"f": words(A64_RETURN, USDOT, USDOT)}
    data = macho("aarch64", code, pools=[(4, 4)], linked=linked)
    assert [item.address for item in scan("macos-arm64", data).findings] == [8]


@pytest.mark.parametrize(("feature", "codes"), [
    ("AVX", "c5fc58c1 c4e27d1900"),  # vaddps, vbroadcastsd from memory
    ("AVX2", "c5f5fec2 c4e27d18c1"),  # vpaddd, vbroadcastss from a register
    ("FMA", "c4e275b8c2"), ("F16C", "c4e27d13c1"),
    ("AVX512F", "62f17c4858c1 c5f892c8"),  # the second: kmovw k1, eax
    ("AVX512SKX", "62f17c0858c1 62f17548fdc2 c5fb92c8"),  # the last: kmovd k1, eax
    ("AVX512VNNI", "62f2754850c2"), ("AVXVNNI", "c4e27550c2"),
    # vaddph, vcmpph with an immediate, vaddph from memory by index and displacement
    ("AVX512FP16", "62f57c4858c1 62f37c48c2c801 62f57c4858848800010000"), ("AMX", "c4e26b5ec1"), ("SSE3", "f20f7cc1"),
    ("SSSE3", "660f3800c1"),
    ("SSE4.1", "660f3840c1 660f3a150001"),  # the second: pextrw to memory
    ("SSE4.2", "660f3837c1"), ("POPCNT", "f30fb8c0"), ("LZCNT", "f30fbdc0"), ("BMI", "c4e278f2c0"),
    ("BMI2", "c4e2f8f5c0"),
    ("CX16", "480fc708 f0480fc70f"),  # the second one locked
    ("XSAVE", "0f01d0"),
])  # fmt: skip
def test_what_the_first_x86_64_does_not_have(scan: Scanner, feature: str, codes: str) -> None:
    """In every format, and what follows is still read from its beginning."""
    for code in map(bytes.fromhex, codes.split()):
        for data in (x86({"planted": code + SSE2 + AVX}), coff("x86_64", {"planted": code + SSE2 + AVX})):
            found = scan("linux-x86_64", data)
            assert needs(found) == [("planted", feature), ("planted", "AVX")]
            assert found.findings[1].address == len(code) + len(SSE2)


def test_functions_are_told_from_labels_and_tails_of_names(scan: Scanner) -> None:
    """A function's name may begin with an l; a label of an assembler's is no function."""
    plain = {"first": SSE2, "load_weights": AVX, "Large": AVX}
    names = ["load_weights", "Large"]
    assert [name for name, _ in needs(scan("windows-x86_64", coff("x86_64", plain)))] == names
    assert [name for name, _ in needs(scan("macos-x86_64", macho("x86_64", plain)))] == names
    labels = macho("x86_64", {"_first": SSE2, "ltmp0": AVX, "l_label": AVX}, underscore="")
    assert {name for name, _ in needs(scan("macos-x86_64", labels))} == {"first"}
    data = coff("x86_64", {"other_plain": SSE2, "plain": AVX})
    first, second = data.rindex(b"other_plain"), data.rindex(b"plain")
    strings = first - 4
    own, shared = (struct.pack("<II", 0, offset - strings) for offset in (second, first + len("other_")))
    assert data.count(own) == 1
    assert needs(scan("windows-x86_64", data.replace(own, shared))) == [("plain", "AVX")]


def test_bytes_with_another_meaning_or_none(scan: Scanner) -> None:
    """0x62 is BOUND there, and underscores stand before C names on Windows."""
    bound = bytes.fromhex("6200")
    assert needs(scan("linux-x86", elf("i686", {"f": bound + b"\xc3"}))) == []
    found = scan("windows-x86", coff("i686", {KERNEL.format("avx2"): AVX2, "plain": AVX512F}))
    assert needs(found) == [("plain", "AVX512F")]
    found = scan("linux-x86_64", x86({"f": b"\x06" + AVX}))
    assert needs(found)[-1] == ("f", "AVX")
    assert needs(found)[0][1] == "an instruction that this check does not know"
    with pytest.raises(BuildError, match="build without -flto"):
        scan("linux-x86_64", b"BC\xc0\xde" + bytes(40), "lto.o")


def test_a_planted_instruction_fails_the_build_with_the_functions_name(tmp_path: Path) -> None:
    planted = {"fine": words(A32_RETURN), "xnn_planted": words(VADD_NEON, MOVW)}
    write_atomic(tmp_path / "lib/libx.a", archive({"a.c.o": armv6(planted)}))
    with pytest.raises(BuildError, match=r"xnn_planted in libx\.a\(a\.c\.o\) has vadd\.i32") as caught:
        checks.check_native(get_target("linux-armv6"), tmp_path)
    assert caught.value.names == ("xnn_planted",)
    assert "isa.toml" in caught.value.hint
    write_atomic(tmp_path / "lib/libx.a", archive({"a.c.o": x86({f"f{index}": AVX for index in range(40)})}))
    with pytest.raises(BuildError, match="and 35 more functions") as caught:
        checks.check_native(get_target("android-x86_64"), tmp_path)
    assert len(caught.value.names) == 40


def test_a_check_that_saw_nothing_is_none(tmp_path: Path) -> None:
    target = get_target("android-x86_64")
    (tmp_path / "lib").mkdir()
    with pytest.raises(BuildError, match="no binaries"):
        checks.check_native(target, tmp_path)
    (tmp_path / "lib/libx.a").write_bytes(archive({"a.o": elf("x86_64", {})}))
    with pytest.raises(BuildError, match="has no code for android-x86_64"):
        checks.check_native(target, tmp_path)
    file = tmp_path / "program"
    file.write_bytes(elf("x86_64", {"f": AVX + b"\xc3"}, stripped=True))
    with pytest.raises(BuildError, match="no table of symbols"):
        checks.check_code(target, [file], tmp_path)
    (code,) = checks.check_code(target, [file], tmp_path, prebuilt=[file]).code
    assert code.features == ("avx",)
    assert "stripped" in code.note
