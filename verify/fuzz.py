"""What ``./inv self.fuzz`` does: every number of every program changed, one at a time, and each file tried.

What a number becomes: 0, 1, its neighbours, its double and half, the largest and smallest, every name of an
enumeration, and what the same field of the nearest other elements holds (``runtime/fuzz/fields.cpp``). A file is
refused with words, or runs twice to its end: with memory between pages that nobody may touch, filled in two ways, to
the same answer; undefined behaviour of ours ends the process. It is a sweep (`core.processes.sweep`) whose cells are
some patches each.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core import console
from core.errors import MismatchError
from core.files import sha256_bytes, sha256_file
from core.processes import commands
from core.processes import sweep as sweeps
from core.processes.sweep import Journal
from core.strict_json import Frozen
from verify.programs import pick

_PART = 2000
"""Patches that one process tries: some seconds to some minutes of work, lost when a sweep is interrupted."""
_SECONDS = 10
"""CPU time of one file."""
_PART_LIMIT = 6 * 3600


@dataclass(frozen=True)
class Part:
    """Some patches of one program."""

    tool: Path
    """What tries them, as `tool` builds it."""
    program: str
    file: Path
    first: int
    count: int

    @property
    def key(self) -> str:
        """What the outcome depends on."""
        return sha256_bytes(json.dumps([*map(sha256_file, (self.tool, self.file)), self.count]).encode())[:16]

    @property
    def name(self) -> str:
        """Its cell's."""
        return f"{self.program} {self.first}"


class Tried(Frozen):
    """What came of a part."""

    tried: int
    sums: Mapping[str, int]
    """How many files came to what."""
    findings: tuple[Mapping[str, Any], ...] = ()


def tool() -> Path:
    """The program that tries, compiled for this machine.

    Raises:
        BuildError: it does not compile.
    """
    from toolchains.targets import host_target
    from verify.suite.shared import compiled

    (found,) = compiled(host_target(), "lean", "sweep_program", SLIPWAY_FUZZ="ON")
    return found


def programs(pattern: str) -> dict[str, Path]:
    """The zoo's programs whose names match, in all schemes, exported where needed.

    Raises:
        ConfigError: no name matches.
    """
    from core.formats.program import load_program
    from models.export import export
    from models.zoo import everything

    names = {f"{model}-{scheme}": (model, scheme) for model, scheme in everything()}
    found = {}
    for name in pick(names, pattern, "./inv models"):
        folder = export(*names[name])
        found[name] = folder / load_program(folder).file
    return found


def parts(tool: Path, name: str, file: Path) -> list[Part]:
    """All patches of a program, divided."""
    said = subprocess.run([tool, file], capture_output=True, text=True, check=True).stdout
    patches = int(json.loads(said)["patches"])
    return [Part(tool, name, file, at, min(_PART, patches - at)) for at in range(0, patches, _PART)]


def attempt(part: Part) -> Tried:
    """Try a part's files."""
    argv = [
        "nice", "-n", "10", os.fspath(part.tool), os.fspath(part.file), "--run", f"--first={part.first}",
        f"--count={part.count}", f"--cpu_seconds={_SECONDS}",
    ]  # fmt: skip
    done = commands.run(argv, error=None, timeout=_PART_LIMIT, what=f"Trying {part.program}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or not lines or "sums" not in lines[-1]:
        raise MismatchError(
            f"Trying {part.program} ended by itself (exit code {done.returncode}).",
            done.stderr.strip()[-500:],
            " ".join(argv),
        )
    findings = tuple({**line, "program": part.program} for line in lines[:-1])
    return Tried(tried=lines[-1]["tried"], sums=lines[-1]["sums"], findings=findings)


def run(pattern: str) -> None:
    """Build, try as many parts at once as there are processors, report.

    Args:
        pattern: names of programs of the zoo, as ``mlp-*,conv-qs8``; all when empty.

    Raises:
        MismatchError: a file crashed, hung, was refused without words, or had two answers.
    """
    files, sweeper = programs(pattern), tool()
    todo = [part for name, file in files.items() for part in parts(sweeper, name, file)]
    cells = [sweeps.Cell(part.name, part.key, partial(attempt, part), part.count, part.program) for part in todo]
    found = sweeps.sweep("trying", cells, Journal.of("fuzz", Tried), jobs=os.cpu_count() or 1)
    report([(part, found[part.name]) for part in todo])


_WORDS = re.compile(r"signal \d+|guarded memory[^\n]*|first [^\n]*")


def what(finding: Mapping[str, Any]) -> str:
    """The message, without addresses and sizes: one fault has many files."""
    text = str(finding["report"])
    said = found.group() if (found := _WORDS.search(text)) else text[:80].partition("\n")[0]
    return f"{finding['outcome']}: " + re.sub(r"0x[0-9a-f]+|\d{3,}", "N", said)


def report(found: Sequence[tuple[Part, Tried]]) -> None:
    """Print the sums of each program, and what was found."""
    sums: dict[str, Counter[str]] = {}
    findings = []
    for part, outcome in found:
        count = sums.setdefault(part.program, Counter())
        count["tried"] += outcome.tried
        count["findings"] += len(outcome.findings)
        for name, number in outcome.sums.items():
            kind = "refused" if name.startswith("refused") else name
            count["ran" if kind == "loaded" else kind] += number
        findings += [(part, dict(finding)) for finding in outcome.findings]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for _, finding in findings:
        groups.setdefault(what(finding), []).append(finding)
    names = ("tried", "refused", "ran", "findings")
    table = [[name, *(str(count[key]) for key in names)] for name, count in sorted(sums.items())]
    table.append(["all", *(str(sum(count[key] for count in sums.values())) for key in names)])
    console.table("Every number changed, one at a time", ["program", *names], table)
    for said, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        example = "{program}: {path} {was} -> {now}\n{report}".format(**group[0])
        console.note(f"[{len(group)}] {said}\n    e.g. {example}")
    if findings:
        part, first = findings[0]
        raise MismatchError(
            f"{len(findings)} changed programs crash, hang or have two answers, in {len(groups)} groups.",
            "the engine believed a number of the file",
            f"{part.tool} {part.file} --run --first={first['patch']} --count=1",
            [f"{part.program}: {one['path']} {one['was']} -> {one['now']}" for part, one in findings[:20]],
        )
