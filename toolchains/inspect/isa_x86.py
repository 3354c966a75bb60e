"""Instructions of x86 that the disassembler does not know yet: their length, and the feature they need.

Only those with a VEX or EVEX prefix, whose encoding is regular (Intel SDM volume 2, 2.3 and 2.7): prefix, opcode,
ModR/M, SIB, displacement, and an immediate where map and opcode say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolchains.inspect.isa import UNKNOWN

_SEGMENTS = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x67})
_IMMEDIATE = frozenset({0x70, 0x71, 0x72, 0x73, 0xC2, 0xC4, 0xC5, 0xC6})
"""Opcodes of map 1 that end with an immediate byte; in map 3 all do, in maps 2, 5 and 6 none does."""


@dataclass(frozen=True)
class Vector:
    """An instruction with a VEX or EVEX prefix."""

    size: int
    evex: bool
    map: int
    """1 to 3 are 0F, 0F38 and 0F3A; 5 and 6 those of half precision."""
    prefix: int
    """0 to 3: none, 66, F3, F2."""
    opcode: int


def is_evex(code: bytes, offset: int, wide: bool) -> bool:
    """Whether the instruction at ``offset`` has AVX-512's prefix; ``wide`` in 64-bit code."""
    while offset < len(code) and code[offset] in _SEGMENTS:
        offset += 1
    if code[offset : offset + 1] != b"\x62":
        return False
    # In 32-bit code the byte is BOUND unless what follows could not be its ModR/M.
    return wide or (offset + 1 < len(code) and code[offset + 1] >= 0xC0)


def vector(code: bytes, start: int, wide: bool) -> Vector | None:
    """The VEX or EVEX instruction at ``start``; ``None`` when there is none, or not a whole one."""
    at = start
    try:
        while code[at] in _SEGMENTS:
            at += 1
        kind, first = code[at], code[at + 1]
        if kind not in {0x62, 0xC4, 0xC5} or (not wide and first < 0xC0):
            return None
        if kind == 0xC5:
            number, prefix, at = 1, first & 3, at + 2
        elif kind == 0xC4:
            number, prefix, at = first & 0x1F, code[at + 2] & 3, at + 3
        else:
            number, prefix, at = first & 7, code[at + 2] & 3, at + 4
        opcode, form = code[at], code[at + 1]
        at += 2
        mode, register = form >> 6, form & 7
        if mode != 3:
            if register == 4:
                register = code[at] & 7
                at += 1
            at += {0: 4 * (register == 5), 1: 1, 2: 4}[mode]
        at += number == 3 or (number == 1 and opcode in _IMMEDIATE)
    except IndexError:
        return None
    return Vector(at - start, kind == 0x62, number, prefix, opcode) if at <= len(code) else None


def feature(table: Sequence[Mapping[str, Any]], found: Vector) -> str:
    """What an instruction that the disassembler does not know needs, by the rows ``x86.vectors`` of ``isa.toml``."""
    for row in table:
        if (
            row.get("evex", found.evex) == found.evex
            and found.map in row["maps"]
            and found.prefix in row.get("prefixes", (found.prefix,))
            and found.opcode in row.get("opcodes", (found.opcode,))
        ):
            return str(row["feature"])
    return UNKNOWN
