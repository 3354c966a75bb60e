"""The results of proofs as tables: for the terminal, and for docs/native.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core import console
from toolchains.build.report import compilers_of, engines_of, proof_of
from toolchains.targets import Target, load_targets
from verify.prove.proof import CaseResult, Proofs, Row

_FAMILIES = {"fc": "fully connected", "conv": "convolution", "dwconv": "convolution", "softmax": "softmax"}


def column(case: str) -> str:
    """The column of a case: operator and types, ``fully connected qd8_qc4w``, without its shape."""
    kind, _, rest = case.partition("_")
    types = [word for word in rest.split("_") if not _is_shape(word)]
    return f"{_FAMILIES[kind]} {'_'.join(types)}"


def _is_shape(word: str) -> bool:
    if word == "signed":
        return True
    head, tail = word[:1], word[1:]
    return (head in "mknocb" and tail.isdigit()) or (head.isdigit() and "x" in word)


def columns(rows: Iterable[Row]) -> list[str]:
    """All columns, in the order of the program's cases."""
    return list(dict.fromkeys(column(case) for row in rows for case in row.cases))


def _cell(row: Row, name: str, reasons: list[str]) -> str:
    """``3``, the number of passed cases; or the number of failed ones; or ``not run (1)``, a number of ``reasons``."""
    found = [result for case, result in row.cases.items() if column(case) == name]
    if not found:
        return ""
    failed = [result for result in found if result.outcome == "failed"]
    if failed:
        return f"**{len(failed)} of {len(found)} failed**"
    refused = [result for result in found if result.outcome == "unsupported"]
    if refused:
        if refused[0].why not in reasons:
            reasons.append(refused[0].why)
        return f"not run ({reasons.index(refused[0].why) + 1})"
    return str(len(found))


def _sorted(rows: Iterable[Row]) -> list[Row]:
    order = list(load_targets())
    return sorted(rows, key=lambda row: order.index(row.target) if row.target in order else len(order))


def _kernels(cases: Mapping[str, CaseResult], name: str) -> list[str]:
    return sorted({kernel for case, result in cases.items() if column(case) == name for kernel in result.kernels})


def kleidiai(row: Row) -> list[str]:
    """KleidiAI's functions that ran on a CPU model."""
    return sorted({kernel for result in row.cases.values() for kernel in result.kernels if kernel.startswith("kai_")})


def report(rows: Sequence[Row], as_json: bool) -> None:
    """A line for every target and CPU model, then what failed."""
    if as_json:
        console.print_json([row.model_dump(mode="json") for row in rows])
        return
    table = []
    for row in rows:
        counts = [sum(result.outcome == kind for result in row.cases.values()) for kind in ("passed", "unsupported")]
        said = f"{counts[0]} passed" + (f", {counts[1]} unsupported" if counts[1] else "") if row.cases else ""
        kai = str(len(kleidiai(row))) if row.kernels_by else "unknown"
        table.append([row.target, row.cpu, row.outcome, said or row.why, kai if row.cases else "", row.how])
    console.table(
        "Proofs of XNNPACK", ["target", "CPU", "outcome", "cases", "KleidiAI's functions", "how"], table,
        caption="Emulated runs prove that the numbers are right; they say nothing about speed.",
    )  # fmt: skip
    refused = dict.fromkeys(
        (column(case), result.why)
        for row in rows
        for case, result in row.cases.items()
        if result.outcome == "unsupported"
    )
    if refused:
        console.table("Unsupported", ["cases", "why"], [list(pair) for pair in refused])


def markdown(proofs: Proofs) -> str:
    """The generated part of docs/native.md: target x CPU model x cases, then the kernels."""
    named = {row.target for row in proofs.rows}
    missing = [
        Row(target=name, cpu="", how="", outcome="not built", why=_unbuilt(target))
        for name, target in load_targets().items()
        if name not in named
    ]
    rows = _sorted([*proofs.rows, *missing])
    ran = [row for row in rows if row.cases]
    return "\n".join([*_outcomes(rows, columns(ran)), "", *_chosen(ran, columns(ran))]) + "\n"


def _unbuilt(target: Target) -> str:
    # A system that runs apps alone starts no proof program, so there is none.
    return target.proof if target.embedded_engines else "not built when this table was made"


def _outcomes(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """One table for each operator, so that they fit on a page."""
    lines: list[str] = []
    for family in dict.fromkeys(_FAMILIES.values()):
        own = [name for name in names if name.startswith(family)]
        if not own:
            continue
        heads = [name.removeprefix(family).strip() for name in own]
        reasons: list[str] = []
        lines += [f"### {family.capitalize()}", "", f"| target | CPU | {' | '.join(heads)} |"]
        lines += ["|---|---|" + "---|" * len(own)]
        for row in rows:
            if row.cases:
                cells = " | ".join(_cell(row, name, reasons) for name in own)
                lines.append(f"| {row.target} | {row.cpu} | {cells} |")
        lines.append("")
        lines += [f"({number}) {why}\n" for number, why in enumerate(reasons, 1)]
    idle = [row for row in rows if not row.cases]
    if idle:
        lines += ["### Not run", "", "| target | CPU | why | instead |", "|---|---|---|---|"]
        lines += [f"| {row.target} | {row.cpu or 'any'} | {row.why} | {row.how or 'nothing'} |" for row in idle]
    return lines


def _table(row: Row, names: Sequence[str]) -> list[str]:
    """The kernels that one CPU model ran, a line for each column of cases."""
    if not row.kernels_by:
        return []
    lines = ["| cases | kernels |", "|---|---|"]
    for name in names:
        found = _kernels(row.cases, name)
        if found:
            lines.append(f"| {name} | {', '.join(f'`{kernel}`' for kernel in found)} |")
    return lines


def _chosen(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """A folded table for all targets and CPU models that ran the same kernels."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        kai = kleidiai(row)
        count = f"{len(kai)} functions of KleidiAI {row.kleidiai}" if kai else "without KleidiAI"
        head = f"XNNPACK {row.xnnpack}, {row.toolchain}; features: {' '.join(row.features) or 'none'}."
        key = (count if row.kernels_by else "unknown", head, *_table(row, names))
        groups.setdefault(key, []).append(f"{row.target} on {row.cpu}")
    lines = ["### Kernels that ran", ""]
    for (count, head, *table), models in groups.items():
        summary = f"<summary>{', '.join(models)}: {count}</summary>"
        lines += ["<details>", summary, "", head, "", *table, "", "</details>", ""]
    return lines


def targets_markdown(proofs: Proofs) -> str:
    """The README's table of targets: what a user gets today, where it ran, and where XNNPACK alone was proved."""
    lines = [
        "| target | ISA floor | compilers | engines that build today | run on | XNNPACK from source proved on |",
        "|---|---|---|---|---|---|",
    ]
    for target in load_targets().values():
        passed = [row.cpu for row in proofs.rows if row.target == target.name and row.outcome == "passed"]
        cells = [
            target.name,
            target.isa_floor,
            compilers_of(target),
            engines_of(target),
            proof_of(target),
            ", ".join(passed),
        ]
        lines.append(f"| {' | '.join([*cells[:-1], cells[-1] or 'not run'])} |")
    return "\n".join(lines) + "\n"
