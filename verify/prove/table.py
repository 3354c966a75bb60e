"""The results of proofs as tables: for the terminal, and for docs/proofs.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from core import console
from toolchains.bundle.report import compilers_of, engines_of, not_run
from toolchains.ran import last, record, said
from toolchains.targets import load_targets
from verify.prove.proof import Row
from verify.tables import Row as TableRow
from verify.tables import Table

PROOFS = Table("docs/proofs.md", "proofs")
_FAILED = "failed"


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
    refused: dict[str, list[str]] = {}
    for case, why in {(case, one.why) for row in rows for case, one in row.cases.items() if one.outcome != "passed"}:
        refused.setdefault(why, []).append(case)
    if refused:
        console.table(
            "Not passed", ["cases", "why"], [[", ".join(sorted(cases)), why] for why, cases in refused.items()]
        )


def _remark(row: Row) -> str:
    """How many cases failed, and why others, or all, were not run."""
    if not row.cases:
        return f"{row.why}; {row.how}" if row.how else row.why
    failed = sum(result.outcome == "failed" for result in row.cases.values())
    refused = Counter(result.why for result in row.cases.values() if result.outcome == "unsupported")
    said = [f"{failed} {_FAILED}"] if failed else []
    return "; ".join([*said, *(f"{count} not run: {why}" for why, count in refused.items())])


def _proved(row: TableRow) -> bool:
    """Whether a row of the docs says that no case that ran there failed."""
    return row["cases passed"] != "not run" and _FAILED not in row["remark"]


def _docs_row(row: Row) -> TableRow:
    passed = sum(result.outcome == "passed" for result in row.cases.values())
    return {
        "target": row.target,
        "CPU": row.cpu or "any",
        "cases passed": f"{passed} of {len(row.cases)}" if row.cases else "not run",
        "KleidiAI's functions": str(len(kleidiai(row))) if row.kernels_by else "",
        "XNNPACK, compiler": f"{row.xnnpack}, {row.toolchain}" if row.cases else "",
        "remark": _remark(row),
    }


def publish(rows: Iterable[Row]) -> None:
    """Put rows into the table of docs/proofs.md, in the place of earlier ones of the same target and CPU model."""
    new = [_docs_row(row) for row in rows if row.outcome != "not built"]
    named = {(row["target"], row["CPU"] == "any") for row in new}
    order = list(load_targets())
    PROOFS.put(
        new,
        ("target", "CPU"),
        order=lambda row: order.index(row["target"]),
        # What a target's programs run on may have changed: nothing, and now something.
        keep=lambda row: row["target"] in order and (row["target"], row["CPU"] != "any") not in named,
    )


def targets_markdown() -> str:
    """The README's table of targets: what a user gets today, where it ran, and where XNNPACK alone was proved."""
    lines = [
        "| target | ISA floor | compilers | engines that build today | ran last | XNNPACK from source proved on |",
        "|---|---|---|---|---|---|",
    ]
    proofs, runs = PROOFS.rows(), last(record())
    for target in load_targets().values():
        passed = [row["CPU"] for row in proofs if row["target"] == target.name and _proved(row)]
        cells = [
            target.name,
            target.isa_floor,
            compilers_of(target),
            engines_of(target),
            "; ".join(said(target.name, runs)) or not_run(target),
            ", ".join(passed),
        ]
        lines.append(f"| {' | '.join([*cells[:-1], cells[-1] or 'not run'])} |")
    return "\n".join(lines) + "\n"
