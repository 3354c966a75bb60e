"""Tables and JSON for people and machines: a result, the inventory, a preflight."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core import console
from core.console.units import counted, duration, took

if TYPE_CHECKING:
    from core.console.live import Step
    from deploy.run.compare import Comparison
    from deploy.run.events import Event
    from deploy.run.preflight import Finding
    from deploy.run.result import Result

_PROFILE_ROWS = 20
_MOST_ORIGINS = 4
"""Reasons for tolerances below the table of outputs; the JSON has all of them."""
_VERDICTS = {
    "identical": "identical", "agrees": "agrees", "differs": "DIFFERS", "no reference": "no reference",
}  # fmt: skip


def result(value: Result, as_json: bool = False) -> None:
    """Print ``value``; then raise `MismatchError` when an output differs from the reference."""
    if as_json:
        console.print_json(value.model_dump(mode="json"))
    else:
        if not value.runner.generated:
            _outputs(value)
        _classes(value)
        _summary(value)
    value.check()


def _outputs(value: Result) -> None:
    from deploy.run.result import tolerance_text

    rows = [
        [output.name, output.dtype, _shape(output.shape), _error(output), tolerance_text(output), _verdict(output)]
        for output in value.outputs
    ]
    given = any(output.tolerance for output in value.outputs)
    against = value.program.reference_engine or ("the outputs given" if given else "no reference")
    console.table(
        f"{value.program.name} on {value.device} ({value.bundle.engine}), against {against}",
        ["output", "dtype", "shape", "max error", "tolerance", "verdict"],
        rows,
        "\n".join(filter(None, [_state(value), *_truths(value), *_origins(value)])),
    )


def _classes(value: Result) -> None:
    """What the program sees in its picture, on both sides; of a quantized one beside what the float model sees."""
    if not value.classes:
        return
    quantized = value.program.scheme not in ("fp32", "fp16")
    console.table(
        "",
        [value.picture, value.device, "this machine", *(["float model"] if quantized else [])],
        [
            [one.name, f"{one.device:.1%}", f"{one.host:.1%}", *([f"{one.model:.1%}"] if quantized else [])]
            for one in value.classes
        ],
    )


def _state(value: Result) -> str:
    kept = value.program.state
    if not value.program.execution:
        return ""
    return (
        f"The program keeps a state ({', '.join(kept[:3])}{', …' if len(kept) > 3 else ''}): execution "
        f"{value.program.execution} here against execution {value.program.execution} of the reference."
    )


def _truths(value: Result) -> list[str]:
    """Where float64 has decided, who is nearer to it."""
    return [
        f"{output.name} {'agrees with float64, not with the reference' if output.right else _verdict(output)}: "
        f"{output.truth}."
        for output in value.outputs
        if output.truth
    ][:_MOST_ORIGINS]


def _origins(value: Result) -> list[str]:
    """Where the tolerances come from, each once: ``tolerance 0.012: one rounding flipped before ...``."""
    from deploy.run.result import tolerance_text

    found: dict[str, str] = {}
    for output in value.outputs:
        if output.tolerance is not None and output.tolerance.why not in ("", "exact"):
            found.setdefault(output.tolerance.why, f"tolerance {tolerance_text(output)}: {output.tolerance.why}")
    return list(found.values())[:_MOST_ORIGINS]


def _summary(value: Result) -> None:
    from deploy.run.job import load_text
    from deploy.run.preflight import size

    latency, upload = value.runner.latency_ms, value.upload
    text, threads = value.runner.generated, value.runner.threads
    times = "emulated" if value.emulated else ""
    moved = f"{size(upload.bytes)} in {counted(upload.files, 'file')}"
    there = (
        f"{size(upload.present_bytes)} in {counted(upload.present_files, 'file')} were there"
        if upload.present_files
        else ""
    )
    uploaded = [moved if upload.files else "nothing", *([there] if there else [])]
    # What an emulator says of its board (linux,dummy-virt) says less than the inventory: virtual Raspberry Pi 4.
    board = value.title.partition(":")[0] if value.emulated else ""
    machine = (board or value.facts.board, value.facts.machine, value.facts.cpu, f"{value.facts.cores} cores")
    rows = [
        ["device", " · ".join(part for part in machine if part)],
        ["engine", f"{value.bundle.engine} {value.bundle.engine_version} for {value.bundle.target}"],
        *_engine_rows(value),
        ["load", times or load_text(value.runner)],
        *([] if text else [["latency p50", times or duration(latency.p50)]]),
        *([] if text else [["latency p90", times or duration(latency.p90)]]),
        *_generated(value),
        *_conditions(value),
        ["threads", str(threads)]
        if text
        else ["executions", f"{latency.count} after {latency.warmup} warm-up, {threads} threads"],
        ["peak RSS", size(value.runner.peak_rss_bytes)],
        ["uploaded", "; ".join(uploaded)],
        *_verified(value),
        ["took", f"{sum(value.seconds.values()):.1f} s"],
    ]
    caption = f"Times are {value.latency_note}." if value.latency_note else ""
    if value.path:
        caption += (" " if caption else "") + f"Result: {console.shown(value.path)}"
    console.table("", ["run", ""], rows, caption)
    _providers(value)


def _generated(value: Result) -> list[list[str]]:
    """Tokens per second of a language model, and how far its text is the host's."""
    if not value.runner.generated:
        return []
    from deploy.run import generate

    counted = value.runner.instructions.all if value.runner.instructions else ()
    said = generate.written(value.runner.generated, value.runner.load_ms, value.emulated, counted)
    return [*said, *([["against the host", generate.agreement(value.outputs)]] if value.outputs else [])]


def _verified(value: Result) -> list[list[str]]:
    """The evidence for the bytes that ran."""
    found = value.verified
    if found is None:
        return []
    rows = [["verified", f"program: {found.program.text}; bundle: {found.bundle.text}"]]
    return rows + ([["replaced", f"{', '.join(found.replaced)}: damaged on the device"]] if found.replaced else [])


def _engine_rows(value: Result) -> list[list[str]]:
    """The engine's settings, if it has any, and the number of nodes that each provider ran."""

    rows = []
    if value.runner.settings:
        rows.append(["settings", ", ".join(f"{name} {text}" for name, text in value.runner.settings.items())])
    if value.runner.kernels:
        named = bool(value.runner.profile)
        used = Counter((one.library, one.feature, one.kernel if named else "") for one in value.runner.kernels)
        text = ", ".join(
            f"{count} of {library}'s" + (f" for {feature}" if feature else "") + (f" ({kernel})" if kernel else "")
            for (library, feature, kernel), count in used.most_common()
        )
        if any(kernel.known for kernel in value.runner.kernels):
            text += ", by the names in the profile"
        rows.append(["kernels", text + ("" if named else " (--json names them)")])
    rows += [
        ["instead", f"{fallback.used} for {fallback.wanted} in {fallback.where}: {fallback.why}"]
        for fallback in value.runner.fallbacks
    ]
    if value.runner.placement:
        coverage = sorted(value.runner.placement.coverage.items(), key=lambda item: -item[1])
        text = ", ".join(f"{count} on {name.removesuffix('ExecutionProvider')}" for name, count in coverage)
        rows.append(["nodes", text])
    return rows


def _providers(value: Result) -> None:
    """What may make it faster on these providers, and the profile by operators."""
    for hint in value.runner.placement.hints if value.runner.placement else ():
        # The runner's options have underscores, ours have dashes, and --inputs takes shapes, too.
        text = hint.replace("--input_shapes", "--inputs")
        console.say(re.sub(r"--\w+", lambda option: option[0].replace("_", "-"), text))
    if value.runner.profile:
        total = sum(row.total_ms for row in value.runner.profile) or 1.0
        shown = value.runner.profile[:_PROFILE_ROWS]
        console.table(
            "Profile" + (" (emulated: shares only)" if value.emulated else ""),
            ["node", "operator", "provider", "count", "share" if value.emulated else "ms", "%"],
            [
                [
                    row.name,
                    row.operator,
                    row.provider.removesuffix("ExecutionProvider"),
                    str(row.count),
                    "" if value.emulated else f"{row.total_ms:.3f}",
                    f"{100 * row.total_ms / total:.1f}",
                ]
                for row in shown
            ],
            caption=f"the {len(shown)} costliest of {len(value.runner.profile)}; --json has all",
        )


def _conditions(value: Result) -> list[list[str]]:
    """Clocks, temperature and throttling around the run, if the device reports them."""
    found = value.conditions
    before, after = found.before, found.after
    clocks = [max(each.frequencies_khz.values()) / 1000 for each in (before, after) if each.frequencies_khz]
    warmth = [each.hottest_c for each in (before, after) if each.hottest_c is not None]
    governor = f" ({', '.join(after.governors)})"
    rows = []
    if len(clocks) == 2:
        rows.append(["clock", f"{clocks[0]:.0f} → {clocks[1]:.0f} MHz{governor}"])
    if len(warmth) == 2:
        rows.append(["temperature", f"{warmth[0]:.1f} → {warmth[1]:.1f} °C"])
    if found.throttled:
        rows.append(["THROTTLED", f"{', '.join(found.throttled)}: these times mean little"])
    if found.affinity:
        rows.append(["cores", found.affinity])
    return rows


def _shape(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape) or "scalar"


def _error(output: Comparison) -> str:
    if output.max_abs is None:
        return output.why or "–"
    return "0" if output.max_abs == 0 else f"{output.max_abs:.3g}"


def _verdict(output: Comparison) -> str:
    text = _VERDICTS[output.verdict]
    if output.verdict == "differs" and not output.why:
        return f"{text} ({output.outside:,} of {output.elements:,})"
    return text


def findings(found: Sequence[Finding]) -> list[list[str]]:
    """A preflight as rows: check, needs, has, verdict, fix."""
    return [
        [each.check, each.needs, each.has, "FAILS" if each.verdict == "bad" else each.verdict, each.fix]
        for each in found
    ]


def preflight(found: Sequence[Finding]) -> None:
    """Print a preflight on stderr: it explains an error, and stdout may carry JSON."""
    rows = findings(found)
    console.table("Preflight", ["check", "needs", "has", "verdict"], [row[:4] for row in rows], stderr=True)
    for check, *_, fix in rows:
        if fix:
            console.note(f"To fix {check}: {fix}")


class ConsoleListener:
    """Shows steps as they happen, on stderr: a live line for each on a terminal, and a line for what came of it."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}

    def __call__(self, event: Event) -> None:
        """Listen to one event."""
        if event.kind == "note":
            console.note(event.text)
        elif event.kind == "findings":
            if any(finding.verdict == "bad" for finding in event.findings):
                with console.paused():
                    preflight(event.findings)
        elif event.kind == "start" and event.text:
            # An upload says itself how far it is; how long the others take, the last time tells.
            key = "" if event.step == "upload" else event.text
            self._steps[event.step] = console.begin(event.text, key, announce=False)
        elif event.kind == "progress" and event.step in self._steps:
            step = self._steps[event.step]
            step.text = event.text or step.text
            step.bytes(event.done, event.total)
        elif event.kind in {"end", "fail"}:
            self._end(event)

    def _end(self, event: Event) -> None:
        step = self._steps.pop(event.step, None)
        if step is not None:
            step.outcome = event.text
            step.end(ok=event.kind == "end")
        elif event.kind == "end" and event.text:
            console.note(f"{event.text} ({took(event.seconds)})")
