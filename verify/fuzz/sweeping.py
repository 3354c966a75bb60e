"""What ``./inv self.fuzz --sweep`` does: every number of every program changed, one at a time, and each file tried.

What a number becomes: 0, 1, its neighbours, its double and half, the largest and smallest, every name of an
enumeration, and what the same field of the nearest other elements holds (``runtime/fuzz/fields.cpp``). A file is
refused with words or runs to its end, in two forms: `SANITIZED`, and `GUARDED` (where it runs twice, with memory
filled in two ways, to the same answer). It is a sweep (`core.processes.sweep`) whose cells are some patches each.
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

from pydantic import BaseModel, ConfigDict

from core import console
from core.errors import MismatchError, UsageError
from core.files import sha256_bytes, sha256_file
from core.paths import cache_dir
from core.processes import commands
from core.processes import sweep as sweeps
from core.processes.sweep import Journal
from verify.fuzz.build import GUARDED, SANITIZED, build
from verify.programs import pick

FORMS = (SANITIZED, GUARDED)
_PART = 2000
"""Patches that one process tries: some seconds to some minutes of work, lost when a sweep is interrupted."""
_SECONDS = 10
"""CPU time of one file."""
_PART_LIMIT = 6 * 3600


@dataclass(frozen=True)
class Part:
    """Some patches of one program in one form."""

    form: str
    program: str
    file: Path
    first: int
    count: int
    argv: tuple[str, ...]

    @property
    def key(self) -> str:
        """What the outcome depends on."""
        tools = [sha256_file(Path(word)) for word in self.argv]
        return sha256_bytes(json.dumps([tools, sha256_file(self.file), self.count]).encode())[:16]

    @property
    def name(self) -> str:
        """Its cell's."""
        return f"{self.form} {self.program} {self.first}"


class Tried(BaseModel):
    """What came of a part."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tried: int
    sums: Mapping[str, int]
    """How many files came to what."""
    findings: tuple[Mapping[str, Any], ...] = ()


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


def parts(form: str, name: str, file: Path, argv: tuple[str, ...]) -> list[Part]:
    """All patches of a program, divided."""
    said = subprocess.run([argv[0], os.fspath(file)], capture_output=True, text=True, check=True).stdout
    patches = int(json.loads(said)["patches"])
    return [Part(form, name, file, at, min(_PART, patches - at), argv) for at in range(0, patches, _PART)]


def attempt(part: Part) -> Tried:
    """Try a part's files."""
    argv = [
        "nice", "-n", "10", part.argv[0], os.fspath(part.file), "--run", f"--first={part.first}",
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
    findings = tuple({**line, "program": part.program, "form": part.form} for line in lines[:-1])
    return Tried(tried=lines[-1]["tried"], sums=lines[-1]["sums"], findings=findings)


def sweep(todo: Sequence[Part]) -> list[tuple[Part, Tried]]:
    """Try all parts, as many at once as there are processors."""
    cells = [
        sweeps.Cell(part.name, part.key, partial(attempt, part), part.count, f"{part.form} {part.program}")
        for part in todo
    ]
    journal = Journal.of("fuzz", Tried)
    found = sweeps.sweep("trying", cells, journal, jobs=os.cpu_count() or 1)
    return [(part, found[part.name]) for part in todo]


def run(form: str, pattern: str) -> None:
    """Build, try, report.

    Args:
        form: one of `FORMS`; all when empty.
        pattern: names of programs of the zoo, as ``mlp-*,conv-qs8``; all when empty.

    Raises:
        MismatchError: a file crashed, hung, leaked, was refused without words, or had two answers.
    """
    if form and form not in FORMS:
        raise UsageError(f"There is no form {form}.", f"forms are {', '.join(FORMS)}", "./inv self.fuzz --sweep")
    log = cache_dir("logs") / "sweep.log"
    log.write_text("", encoding="utf-8")
    files = programs(pattern)
    todo = []
    for one in (form,) if form else FORMS:
        argv = (os.fspath(build(one, "sweep_program", log)),)
        todo += [part for name, file in files.items() for part in parts(one, name, file, argv)]
    found = sweep(todo)
    report(found)


_WORDS = re.compile(
    r"runtime error: [^\n]*|(?:AddressSanitizer|LeakSanitizer): [^\n]*?(?= on | \(pc|$)|signal \d+|exit code \d+"
    r"|guarded memory[^\n]*|first [^\n]*|hard rss limit[^\n]*",
    re.MULTILINE,
)


def what(finding: Mapping[str, Any]) -> str:
    """The message, without addresses and sizes: one fault has many files."""
    text = str(finding["report"])
    said = found.group() if (found := _WORDS.search(text)) else text[:80].partition("\n")[0]
    return f"{finding['outcome']}: " + re.sub(r"0x[0-9a-f]+|\d{3,}", "N", said)


def report(found: Sequence[tuple[Part, Tried]]) -> None:
    """Print the sums a form and program, and what was found."""
    sums: dict[tuple[str, str], Counter[str]] = {}
    findings = []
    for part, outcome in found:
        count = sums.setdefault((part.form, part.program), Counter())
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
    table = [[form, name, *(str(count[key]) for key in names)] for (form, name), count in sorted(sums.items())]
    table.append(["all", "", *(str(sum(count[key] for count in sums.values())) for key in names)])
    console.table("Every number changed, one at a time", ["form", "program", *names], table)
    for said, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        example = "{program}: {path} {was} -> {now}\n{report}".format(**group[0])
        console.note(f"[{len(group)}] {said}\n    e.g. {example}")
    if findings:
        part, first = findings[0]
        raise MismatchError(
            f"{len(findings)} changed programs crash, hang, leak or have two answers, in {len(groups)} groups.",
            "the engine believed a number of the file",
            f"{part.argv[0]} {part.file} --run --first={first['patch']} --count=1",
            [
                f"{part.program}: {finding['path']} {finding['was']} -> {finding['now']}"
                for part, finding in findings[:20]
            ],
        )
