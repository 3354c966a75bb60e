"""The checksum of the runner's own files (``runtime/base/checksum.cpp``)."""

from __future__ import annotations

import struct

MASK = 2**64 - 1


def checksum(data: bytes) -> bytes:
    """As runtime/base/checksum.cpp."""

    def turned(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & MASK

    def scattered(value: int) -> int:
        value = (value ^ value >> 32) * 0xD6E8FEB86659FD93 & MASK
        value = (value ^ value >> 29) * 0x9E3779B97F4A7C15 & MASK
        return value ^ value >> 32

    lanes = [1, 2, 3, 4]
    for index in range(0, len(data), 8):
        word = int.from_bytes(data[index : index + 8].ljust(8, b"\0"), "little")
        lane = index // 8 % 4
        lanes[lane] = turned((lanes[lane] + word * 0xD6E8FEB86659FD93) & MASK, 31) * 0x9E3779B97F4A7C15 & MASK
    first, second = len(data), len(data) ^ MASK
    for index in range(4):
        first = scattered(first ^ lanes[index])
        second = scattered(second ^ turned(lanes[3 - index], 17))
    return struct.pack("<2Q", first, second)
