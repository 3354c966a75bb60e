"""Look for instructions that a target's least CPU does not have, outside the kernels that are chosen at run time.

``isa.toml`` says which CPU feature an instruction needs, and which functions may use it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolchains.inspect import archives
from toolchains.targets import Target
from toolchains.tools import read

if TYPE_CHECKING:
    from toolchains.inspect.symbols import Run

TABLE = Path(__file__).with_name("isa.toml")
UNKNOWN = "unknown"
"""The feature of an instruction that neither the disassembler nor the table knows."""

_PROJECTS = ("xnnpack", "kleidiai", "attention")
Encodings = tuple[tuple[str, int, int], ...]
"""Feature, mask and value, in the table's order."""


@dataclass(frozen=True)
class Rule:
    """What instructions with these names need."""

    feature: str
    mnemonics: re.Pattern[str]
    operands: re.Pattern[str] | None
    evex: bool

    def fits(self, operands: str, evex: bool) -> bool:
        """Whether an instruction of a fitting name is meant."""
        return (evex or not self.evex) and (self.operands is None or self.operands.search(operands) is not None)


class Architecture:
    """The rules of one instruction set: ``a32`` (with Thumb), ``a64`` or ``x86`` (32 and 64 bits)."""

    def __init__(self, name: str, data: Mapping[str, Any]) -> None:
        self.name = name
        self.rules = tuple(
            Rule(feature, re.compile(names), re.compile(more[0]) if more and more[0] else None, more[1:] == ["evex"])
            for feature, names, *more in data["rules"]
        )
        self.encodings = _encodings(data.get("encodings", {}))
        self.unknown = _encodings(data.get("unknown", {}))
        self.vectors: list[Mapping[str, Any]] = data.get("vectors", [])
        self.words = {
            project: [(re.compile(word), frozenset(_features(data[project], word))) for word in data[project]]
            for project in _PROJECTS
            if project in data
        }

    @functools.cache  # noqa: B019 - the table lives as long as the program
    def candidates(self, mnemonic: str) -> tuple[Rule, ...]:
        """The rules for instructions of this name; none at all for one that every CPU has."""
        return tuple(rule for rule in self.rules if rule.mnemonics.fullmatch(mnemonic))

    def feature(self, mnemonic: str, operands: str, evex: bool = False) -> str:
        """The feature that an instruction needs; empty when every CPU has it."""
        return next((rule.feature for rule in self.candidates(mnemonic) if rule.fits(operands, evex)), "")


def _features(kernels: Mapping[str, list[str]], word: str) -> Iterable[str]:
    for item in kernels[word]:
        if item.startswith("+"):
            yield from _features(kernels, item[1:])
        else:
            yield item


def _encodings(data: Mapping[str, list[list[int]]]) -> Encodings:
    return tuple((feature, mask, value) for feature, pairs in data.items() for mask, value in pairs)


class Table:
    """The whole of ``isa.toml``."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.floors: Mapping[str, list[str]] = data["floor"]
        self._meaning: Mapping[str, str] = data["meaning"]
        self.architectures = {name: Architecture(name, data[name]) for name in ("a32", "a64", "x86")}
        self._names = [
            (row["words"], key, re.compile(row[key]))
            for row in data["names"]
            for key in ("function", "file")
            if key in row
        ]
        self._helpers = [(re.compile(row["function"]), frozenset(row["features"])) for row in data["helpers"]]

    def floor(self, target: Target) -> frozenset[str]:
        """What the target's least CPU has besides the base."""
        return frozenset(self.floors.get(target.name, self.floors[target.machine]))

    def meaning(self, feature: str) -> str:
        """A feature as a message names it."""
        return self._meaning.get(feature, feature.upper())

    @functools.cache  # noqa: B019 - the table lives as long as the program
    def allowed(self, architecture: str, names: tuple[str, ...], file: str) -> frozenset[str] | None:
        """What a function may use above the floor; ``None`` when it is no kernel and no helper of the table.

        A function's own name counts before its file's: a kernel for AVX2 in a file for AVX512 may use AVX2. A
        function of several names may use what all of them may.
        """
        for name in names:
            for pattern, features in self._helpers:
                if pattern.search(name):
                    return features
        if own := [found for name in names if (found := self._kernel(architecture, name, "function")) is not None]:
            return frozenset.intersection(*own)
        return self._kernel(architecture, file.replace("\\", "/").rsplit("/", 1)[-1], "file")

    def _kernel(self, architecture: str, text: str, kind: str) -> frozenset[str] | None:
        for project, key, pattern in self._names:
            match = pattern.search(text) if key == kind else None
            known = self.architectures[architecture].words.get(project, [])
            parts = re.split(r"[_-]", match["isa"]) if match else []
            if found := [features for word, features in known for part in parts if word.fullmatch(part)]:
                return frozenset().union(*found)
        return None


@functools.cache
def table() -> Table:
    """``isa.toml``."""
    return Table(read(TABLE))


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


def _behind_segments(code: bytes, at: int) -> int:
    while at < len(code) and code[at] in _SEGMENTS:
        at += 1
    return at


def is_evex(code: bytes, offset: int, wide: bool) -> bool:
    """Whether the instruction at ``offset`` has AVX-512's prefix; ``wide`` in 64-bit code."""
    at = _behind_segments(code, offset)
    # In 32-bit code the byte is BOUND unless what follows could not be its ModR/M.
    return code[at : at + 1] == b"\x62" and (wide or (at + 1 < len(code) and code[at + 1] >= 0xC0))


def vector_at(code: bytes, start: int, wide: bool) -> Vector | None:
    """The VEX or EVEX instruction at ``start``; ``None`` when there is none, or not a whole one."""
    at = _behind_segments(code, start)
    try:
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


def feature_of(rows: Sequence[Mapping[str, Any]], found: Vector) -> str:
    """What an instruction that the disassembler does not know needs, by the rows ``x86.vectors`` of ``isa.toml``."""
    for row in rows:
        if (
            row.get("evex", found.evex) == found.evex
            and found.map in row["maps"]
            and found.prefix in row.get("prefixes", (found.prefix,))
            and found.opcode in row.get("opcodes", (found.opcode,))
        ):
            return str(row["feature"])
    return UNKNOWN


_ARCHITECTURE = {"a32": "a32", "t32": "a32", "a64": "a64", "x86": "x86", "x64": "x86"}
_CONDITION = re.compile(r"(\w+?)(?:eq|ne|cs|hs|cc|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)((?:\..*)?)")
_PER_FUNCTION = 3
"""Findings of one function that are kept: the first says which, the rest only how bad it is."""


@dataclass(frozen=True)
class Finding:
    """One instruction that does not belong where it is."""

    file: str
    member: str
    function: str
    address: int
    instruction: str
    feature: str
    """As messages name it: ``ARMv6T2``."""

    def __str__(self) -> str:
        file = f"{self.file}({self.member})" if self.member else self.file
        return f"{self.function} in {file} has {self.instruction} at {self.address:#x}, which needs {self.feature}"


@dataclass(frozen=True)
class Scan:
    """What was looked at in one file, and what was found."""

    functions: int
    kernels: int
    """Functions among them that the table knows as chosen at run time, and that use more than the floor."""
    instructions: int
    features: tuple[str, ...]
    """What those kernels need, all in all."""
    named: bool
    """Whether the file says what its functions are called; without, kernels cannot be distinguished from the rest."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class _Use:
    """An instruction above the base."""

    address: int
    text: str
    feature: str


class _Scanner:
    """Holds the disassemblers, which are slow to make."""

    def __init__(self, rules: Table) -> None:
        import capstone

        self.rules = rules
        self._modes = {
            "a32": (capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM | capstone.CS_MODE_V8),
            "t32": (capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_V8),
            "a64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
            "x86": (capstone.CS_ARCH_X86, capstone.CS_MODE_32),
            "x64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
        }
        self._words: dict[str, dict[int, tuple[str, str]]] = {"a32": {}, "a64": {}}

    @functools.cache  # noqa: B019 - as long as the scan
    def disassembler(self, mode: str) -> Any:
        """Capstone for one instruction set."""
        import capstone

        made = capstone.Cs(*self._modes[mode])
        # Words that it cannot read come as four bytes of data.
        made.skipdata = mode in {"a32", "a64"}
        return made

    def uses(self, run: Run) -> tuple[int, list[_Use]]:
        """How many instructions a run has, and those among them that are above the base."""
        architecture = self.rules.architectures[_ARCHITECTURE[run.mode]]
        if run.mode in {"a32", "a64"}:
            return self._fixed(architecture, run)
        if run.mode == "t32":
            return self._thumb(architecture, run)
        return self._x86(architecture, run)

    def _fixed(self, architecture: Architecture, run: Run) -> tuple[int, list[_Use]]:
        """Instructions of 32 bits each: every different word is read once."""
        import numpy as np

        words = np.frombuffer(run.code, "<u4", len(run.code) // 4).tolist()
        known = self._words[run.mode]
        if new := set(words).difference(known):
            self._read(architecture, run.mode, sorted(new))
        read = enumerate(map(known.__getitem__, words))
        return len(words), [_Use(run.address + 4 * at, text, feature) for at, (feature, text) in read if feature]

    def _read(self, architecture: Architecture, mode: str, words: list[int]) -> None:
        known = self._words[mode]
        # Whether a condition is set does not matter to what an instruction needs, and its letters hide its name.
        plain = [word & 0x0FFFFFFF | 0xE0000000 if mode == "a32" and word < 0xF0000000 else word for word in words]
        raw = b"".join(word.to_bytes(4, "little") for word in plain)
        for address, _, mnemonic, operands in self.disassembler(mode).disasm_lite(raw, 0):
            word = words[address // 4]
            if mnemonic == ".byte":
                known[word] = (_by_encoding(architecture.unknown, word) or UNKNOWN, f"the word {word:#010x}")
            else:
                feature = _by_encoding(architecture.encodings, word) or architecture.feature(mnemonic, operands)
                known[word] = (feature, f"{mnemonic} {operands}".strip())

    def _thumb(self, architecture: Architecture, run: Run) -> tuple[int, list[_Use]]:
        count, found, position = 0, [], 0
        while position < len(run.code) - 1:
            done = position
            for address, size, mnemonic, operands in self.disassembler("t32").disasm_lite(run.code[position:], 0):
                done = position + address + size
                count += 1
                feature = architecture.feature(_unconditional(architecture, mnemonic.removesuffix(".w")), operands)
                if not feature and size == 4 and mnemonic not in {"bl", "blx"}:
                    feature = "thumb2"
                if feature:
                    found.append(_Use(run.address + position + address, f"{mnemonic} {operands}".strip(), feature))
            position = done
            if position < len(run.code) - 1:
                raw = run.code[position : position + 4]
                size = 4 if raw[1] >> 3 in {0x1D, 0x1E, 0x1F} else 2
                found.append(_Use(run.address + position, f"the bytes {raw[:size].hex()}", UNKNOWN))
                count, position = count + 1, position + size
        return count, found

    def _x86(self, architecture: Architecture, run: Run) -> tuple[int, list[_Use]]:
        count, position, found = 0, 0, []
        wide, data = run.mode == "x64", run.code
        disassembler, candidates = self.disassembler(run.mode), architecture.candidates
        while position < len(data):
            done = position
            for address, size, mnemonic, operands in disassembler.disasm_lite(data[position:], position):
                count += 1
                done = address + size
                name = mnemonic.rpartition(" ")[2]  # without lock and rep
                if candidates(name):
                    evex = is_evex(data, address, wide)
                    exact = (name, operands) if wide or not evex else self._exact(data[address:done], name, operands)
                    if feature := architecture.feature(exact[0], exact[1], evex):
                        found.append(_Use(run.address + address, f"{mnemonic} {operands}".strip(), feature))
            position = done
            if position < len(data):
                vector = vector_at(data, position, wide)
                feature = feature_of(architecture.vectors, vector) if vector else UNKNOWN
                size = vector.size if vector else 1
                text = f"the bytes {data[position : position + max(size, 4)].hex(' ')}"
                found.append(_Use(run.address + position, text, feature))
                count, position = count + 1, position + size
        return count, found

    def _exact(self, code: bytes, name: str, operands: str) -> tuple[str, str]:
        """An instruction of AVX512 in 32-bit code by its right name.

        Capstone takes EVEX.W for nothing there, which tells vextractf64x4 from vextractf32x8.
        """
        return next(((row[2], row[3]) for row in self.disassembler("x64").disasm_lite(code, 0)), (name, operands))


def _unconditional(architecture: Architecture, mnemonic: str) -> str:
    """The name of a Thumb instruction in an IT block without its condition: ``movwne`` is ``movw``."""
    match = _CONDITION.fullmatch(mnemonic)
    return f"{match[1]}{match[2]}" if match and not architecture.candidates(mnemonic) else mnemonic


def _by_encoding(encodings: Encodings, word: int) -> str:
    return next((feature for feature, mask, value in encodings if word & mask == value), "")


def scan(target: Target, path: Path) -> Scan:
    """Read all code of an archive, object, library or program.

    Raises:
        BuildError: it is damaged, or not of a format that has code.
    """
    from toolchains.inspect import symbols

    rules = table()
    scanner, floor = _Scanner(rules), rules.floor(target)
    functions, kernels, instructions, named = 0, 0, 0, False
    features: set[str] = set()
    findings: list[Finding] = []
    for member, data in archives.objects(path, path.read_bytes()):
        listed, has = symbols.functions(path, member, data)
        named = named or has
        for function in listed:
            read = [scanner.uses(run) for run in function.runs]
            functions += 1
            instructions += sum(count for count, _ in read)
            if not (above := [use for _, uses in read for use in uses if use.feature not in floor]):
                continue
            mode = _ARCHITECTURE[function.runs[0].mode]
            allowed = rules.allowed(mode, function.names, function.file) if has else None
            if not has:
                features.update(use.feature for use in above if use.feature != UNKNOWN)
            elif allowed is not None:
                kernels += 1
                features.update(use.feature for use in above if use.feature in allowed)
            wrong = [use for use in above if allowed is None or use.feature not in allowed]
            findings += [
                Finding(path.name, member, function.names[0], use.address, use.text, rules.meaning(use.feature))
                for use in wrong[:_PER_FUNCTION]
            ]
    return Scan(functions, kernels, instructions, tuple(sorted(features)), named, tuple(findings))
