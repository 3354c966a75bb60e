"""Which CPU feature an instruction needs, and which functions may use it: ``isa.toml`` as typed data."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolchains.targets import Target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
            Rule(
                rule["feature"],
                re.compile(rule["mnemonics"]),
                re.compile(rule["operands"]) if "operands" in rule else None,
                rule.get("encoding") == "evex",
            )
            for rule in data["rules"]
        )
        self.encodings = _encodings(data.get("encodings", {}))
        self.unknown = _encodings(data.get("unknown", {}))
        self.vectors: list[Mapping[str, Any]] = data.get("vectors", [])
        self.words = {
            project: [(re.compile(word), frozenset(_features(data[project], word))) for word in data[project]]
            for project in _PROJECTS
            if project in data
        }
        self._by_mnemonic: dict[str, tuple[Rule, ...]] = {}

    def candidates(self, mnemonic: str) -> tuple[Rule, ...]:
        """The rules for instructions of this name; none at all for one that every CPU has."""
        found = self._by_mnemonic.get(mnemonic)
        if found is None:
            found = tuple(rule for rule in self.rules if rule.mnemonics.fullmatch(mnemonic))
            self._by_mnemonic[mnemonic] = found
        return found

    def feature(self, mnemonic: str, operands: str, evex: bool = False) -> str:
        """The feature that an instruction needs; empty when every CPU has it."""
        for rule in self.candidates(mnemonic):
            if rule.fits(operands, evex):
                return rule.feature
        return ""


def _features(kernels: Mapping[str, list[str]], word: str) -> Iterable[str]:
    for item in kernels[word]:
        if item.startswith("+"):
            yield from _features(kernels, item[1:])
        else:
            yield item


def _encodings(data: Mapping[str, list[list[int]]]) -> Encodings:
    return tuple((feature, mask, value) for feature, pairs in data.items() for mask, value in pairs)


@dataclass(frozen=True)
class _Names:
    """How a project's kernels that are chosen at run time are named, by function or by file."""

    project: str
    function: re.Pattern[str] | None
    file: re.Pattern[str] | None


class Table:
    """The whole of ``isa.toml``."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.floors: Mapping[str, list[str]] = data["floor"]
        self._meaning: Mapping[str, str] = data["meaning"]
        self.architectures = {name: Architecture(name, data[name]) for name in ("a32", "a64", "x86")}
        self._names = [
            _Names(row["words"], *(re.compile(row[key]) if key in row else None for key in ("function", "file")))
            for row in data["names"]
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
        own = [found for name in names if (found := self._kernel(architecture, name, "function")) is not None]
        if own:
            return frozenset.intersection(*own)
        return self._kernel(architecture, file.replace("\\", "/").rsplit("/", 1)[-1], "file")

    def _kernel(self, architecture: str, text: str, key: str) -> frozenset[str] | None:
        for names in self._names:
            pattern = getattr(names, key)
            match = pattern.search(text) if pattern is not None else None
            known = self.architectures[architecture].words.get(names.project, [])
            parts = re.split(r"[_-]", match["isa"]) if match else []
            found = [features for word, features in known for part in parts if word.fullmatch(part)]
            if found:
                return frozenset().union(*found)
        return None


@functools.cache
def table() -> Table:
    """``isa.toml``."""
    with TABLE.open("rb") as file:
        return Table(tomllib.load(file))
