"""Facts about a Mac from what ``sysctl`` prints, in the words that Linux has for them.

Apple documents the names below ``hw.optional`` ("Determining Instruction Set Characteristics"); those of x86 are those
of ``machdep.cpu``, which are Intel's in capitals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deploy.transport.hearing import natural

_ARM = {
    "FEAT_FP16": ("fphp", "asimdhp"), "FEAT_DotProd": ("asimddp",), "FEAT_FHM": ("asimdfhm",), "FEAT_I8MM": ("i8mm",),
    "FEAT_BF16": ("bf16",), "FEAT_LSE": ("atomics",), "FEAT_RDM": ("asimdrdm",), "FEAT_AES": ("aes",),
    "FEAT_PMULL": ("pmull",), "FEAT_SHA1": ("sha1",), "FEAT_SHA256": ("sha2",), "FEAT_SHA512": ("sha512",),
    "FEAT_SHA3": ("sha3",), "FEAT_FCMA": ("fcma",), "FEAT_JSCVT": ("jscvt",), "FEAT_LRCPC": ("lrcpc",),
    "FEAT_LRCPC2": ("ilrcpc",), "FEAT_DIT": ("dit",), "FEAT_SB": ("sb",), "FEAT_FRINTTS": ("frint",),
    "FEAT_FlagM": ("flagm",), "FEAT_FlagM2": ("flagm2",), "FEAT_DPB": ("dcpop",), "FEAT_SME": ("sme",),
    "FEAT_SME2": ("sme2",), "SME_I16I64": ("smei16i64",), "SME_F64F64": ("smef64f64",), "FEAT_BTI": ("bti",),
    "FEAT_CRC32": ("crc32",),
}  # fmt: skip
_X86 = {
    "AVX1.0": "avx", "SSE3": "pni", "SSE4.1": "sse4_1", "SSE4.2": "sse4_2", "MOVBE": "movbe", "RDRAND": "rdrand",
    "LZCNT": "abm", "TPR": "tpr_shadow", "PCLMULQDQ": "pclmulqdq", "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
}  # fmt: skip
"""Where Linux's word is another than Intel's in small letters."""


@dataclass(frozen=True)
class Mac:
    """What a Mac says of itself; sizes in bytes, unknown values empty or ``None``."""

    cpu: str = ""
    features: tuple[str, ...] = ()
    """As ``/proc/cpuinfo`` of Linux names them."""
    memory_total: int = 0
    load: str = ""


def parse(lines: Sequence[str]) -> Mac:
    """From lines such as ``hw.optional.arm.FEAT_DotProd: 1``."""
    values = {key.strip(): value.strip() for key, colon, value in (line.partition(":") for line in lines) if colon}
    arm = [
        word for key, value in values.items() if key.startswith("hw.optional.arm.") and value == "1"
        for word in _ARM.get(key.rpartition(".")[2], ())
    ]  # fmt: skip
    if values.get("hw.optional.arm64") == "1":
        arm = ["fp", "asimd", *arm]  # Armv8-A has both
    names = " ".join(
        values.get(f"machdep.cpu.{each}", "") for each in ("features", "leaf7_features", "extfeatures")
    ).split()
    x86 = [_X86.get(name, name.lower()) for name in names]
    load = values.get("vm.loadavg", "").strip("{} ").split()
    return Mac(
        values.get("machdep.cpu.brand_string", ""),
        tuple(dict.fromkeys([*arm, *x86])),
        natural(values.get("hw.memsize", ""), 1 << 60) or 0,
        load[0] if load else "",
    )
