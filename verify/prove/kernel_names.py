"""Which of XNNPACK's and KleidiAI's kernels ran: named from what an emulator translated, or from samples."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

_KERNEL = re.compile(r"xnn_\w+_ukernel_\w+|kai_(?:run|kernel)_\w+")
_LEAST_SAMPLES = 2
"""A single sample may be a function that a signal's arrival was charged to by chance."""


def is_kernel(symbol: str) -> bool:
    """Whether a function is a microkernel of XNNPACK's, or one of KleidiAI's that computes or packs."""
    return _KERNEL.fullmatch(symbol) is not None and not symbol.endswith(("_get_mr", "_get_nr"))


def translated(log: Path) -> tuple[str, ...]:
    """Kernels of which QEMU translated code: it does so when code is about to run, and names it in its log.

    The log is that of ``-d in_asm``: blocks that begin with ``IN: function``.
    """
    return tuple(sorted({name for name in _functions(log) if is_kernel(name)}))


def _functions(log: Path) -> Iterator[str]:
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("IN: "):
                yield line[4:].strip()


class Symbols:
    """A program's functions by address.

    Args:
        functions: address, size, name.
    """

    def __init__(self, functions: Iterable[tuple[int, int, str]]) -> None:
        self._functions = sorted(functions)

    @classmethod
    def read(cls, program: Path) -> Symbols:
        """Those of an ELF program that was not stripped."""
        from elftools.elf.elffile import ELFFile

        with program.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            found = [
                # Thumb code of 32-bit Arm has its lowest bit set.
                (symbol["st_value"] & ~1, symbol["st_size"], symbol.name)
                for symbol in (table.iter_symbols() if table else ())
                if symbol["st_info"]["type"] in {"STT_FUNC", "STT_GNU_IFUNC"} and symbol["st_value"]
            ]
        return cls(found)

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _, _ in self._functions]

    def at(self, address: int) -> str:
        """The function at an address; empty when it is in none."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index < 0:
            return ""
        start, size, name = self._functions[index]
        # Hand-written assembly may leave its size out: it reaches as far as the next function.
        return name if not size or address < start + size else ""


def sampled(samples: Mapping[str, int], symbols: Symbols) -> tuple[str, ...]:
    """Kernels in which the program was seen more than once."""
    counts: dict[str, int] = {}
    for address, count in samples.items():
        name = symbols.at(int(address, 16))
        counts[name] = counts.get(name, 0) + count
    return tuple(sorted(name for name, count in counts.items() if count >= _LEAST_SAMPLES and is_kernel(name)))
