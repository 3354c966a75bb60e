"""Findings of a sweep, grouped by message and location: one fault has many files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_CALL = re.compile(r"([^\s()]+)\(?\+0x([0-9a-f]+)\)")
_WORDS = (
    re.compile(r"runtime error: ([^\n]*)"),
    re.compile(
        r"ERROR: (?:AddressSanitizer|LeakSanitizer):? ([^\n]*?)(?: on (?:unknown )?address| \(pc|$)", re.MULTILINE
    ),
    re.compile(r"(signal \d+|exit code \d+|guarded memory[^\n]*|first [^\n]*|hard rss limit[^\n]*)"),
)
_NOT_OURS = ("__asan", "__interceptor", "__ubsan", "__sanitizer", "__lsan", "operator new", "operator delete")
_DEEP = 3
"""Calls that tell one fault from another."""


def symbols(program: str, addresses: Iterable[str]) -> Mapping[str, str]:
    """Names of functions, with files and lines where the program has them; the addresses where nothing tells."""
    distinct = sorted(set(addresses))
    tool = shutil.which("llvm-symbolizer")
    if not distinct or tool is None:
        return {address: address for address in distinct}
    argv = [tool, "-e", program, "--output-style=JSON", "--no-inlines"]
    lines = "\n".join(f"0x{address}" for address in distinct)
    said = subprocess.run(argv, input=lines, capture_output=True, text=True, check=False).stdout
    names = {}
    for address, line in zip(distinct, said.splitlines(), strict=False):
        symbol = (json.loads(line).get("Symbol") or [{}])[0]
        name = str(symbol.get("FunctionName") or address).split("(")[0]
        file = Path(str(symbol.get("FileName") or "")).name
        names[address] = f"{name} {file}:{symbol.get('Line')}" if file else name
    return names


def what(finding: Mapping[str, Any]) -> str:
    """The message, without addresses and sizes."""
    report = str(finding["report"])
    said = next((found[1] for pattern in _WORDS if (found := pattern.search(report))), report[:80].partition("\n")[0])
    return f"{finding['outcome']}: " + re.sub(r"0x[0-9a-f]+|\d{3,}", "N", said)


def grouped(findings: Sequence[tuple[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Groups, the largest first: how many, what, where, an example.

    Args:
        findings: the program that tried, and what it found.
    """
    calls = [[at for file, at in _CALL.findall(str(one["report"])) if file == program] for program, one in findings]
    names: dict[str, dict[str, str]] = {}
    for program in {program for program, _ in findings}:
        own = [at for (tool, _), ats in zip(findings, calls, strict=True) if tool == program for at in ats[:14]]
        names[program] = dict(symbols(program, own))
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for (program, one), ats in zip(findings, calls, strict=True):
        known = [names[program].get(at, at) for at in ats[:14]]
        location = " < ".join([name for name in known if not name.startswith(_NOT_OURS)][:_DEEP])
        groups.setdefault((what(one), location), []).append(one)
    return [
        {
            "count": len(group),
            "what": said,
            "where": location,
            "example": f"{group[0]['program']}: {group[0]['path']} {group[0]['was']} -> {group[0]['now']}",
        }
        for (said, location), group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
