"""Tables and JSON for people and machines: a result, the inventory, a preflight."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core import console
from core.console.units import amount, counted, duration, took

if TYPE_CHECKING:
    from core.console.live import Step
    from deploy.run.events import Event
    from deploy.run.preflight import Finding
    from deploy.run.result import Result

_PROFILE_ROWS = 20
_MOST_ORIGINS = 4
"""Reasons for tolerances below the table of outputs; the JSON has all of them."""


def result(value: Result, as_json: bool = False) -> None:
    """Print ``value``; then raise `MismatchError` when an output differs from the reference."""
    if as_json:
        console.print_json(value.model_dump(mode="json"))
    else:
        if not value.runner.generated:
            _outputs(value)
        _classes(value)
        _summary(value)
        _profile(value)
    value.check()


def _outputs(value: Result) -> None:
    from deploy.run.result import tolerance_text

    rows = []
    below = [_state(value)]
    origins: dict[str, str] = {}
    for output in value.outputs:
        shape = "×".join(map(str, output.shape)) or "scalar"
        error = (output.why or "–") if output.max_abs is None else f"{output.max_abs:.3g}"
        verdict, allowed = output.verdict, tolerance_text(output)
        said: str = "DIFFERS" if verdict == "differs" else verdict
        if verdict == "differs" and not output.why:
            said += f" ({output.outside:,} of {output.elements:,})"
        rows.append([output.name, output.dtype, shape, error, allowed, said])
        if output.truth:  # float64 has decided
            right = "agrees with float64, not with the reference" if output.right else said
            below.append(f"{output.name} {right}: {output.truth}.")
        if output.tolerance and output.tolerance.why not in ("", "exact"):
            origins.setdefault(output.tolerance.why, f"tolerance {allowed}: {output.tolerance.why}")
    given = any(output.tolerance for output in value.outputs)
    against = value.program.reference_engine or ("the outputs given" if given else "no reference")
    console.table(
        f"{value.program.name} on {value.device} ({value.bundle.engine}), against {against}",
        ["output", "dtype", "shape", "max error", "tolerance", "verdict"],
        rows,
        "\n".join(filter(None, [*below[: _MOST_ORIGINS + 1], *list(origins.values())[:_MOST_ORIGINS]])),
    )


def _state(value: Result) -> str:
    kept, execution = value.program.state, value.program.execution
    if not execution:
        return ""
    return (
        f"The program keeps a state ({', '.join(kept[:3])}{', …' if len(kept) > 3 else ''}): execution {execution} "
        f"here against execution {execution} of the reference."
    )


def _classes(value: Result) -> None:
    """What the program sees in its picture, on both sides; of a quantized one beside what the float model sees."""
    if not value.classes:
        return
    heads = [value.picture, value.device, "this machine", "float model"]
    rows = [[one.name, *(f"{part:.1%}" for part in (one.device, one.host, one.model))] for one in value.classes]
    shown = 3 if value.program.scheme in ("fp32", "fp16") else 4
    console.table("", heads[:shown], [row[:shown] for row in rows])


def _summary(value: Result) -> None:
    from deploy.run import generate
    from deploy.run.job import load_text

    runner, upload, found = value.runner, value.upload, value.conditions
    latency, text, emulated = runner.latency_ms, runner.generated, "emulated" if value.emulated else ""
    uploaded = f"{amount(upload.bytes)} in {counted(upload.files, 'file')}" if upload.files else "nothing"
    if upload.present_files:
        uploaded += f"; {amount(upload.present_bytes)} in {counted(upload.present_files, 'file')} were there"
    # What an emulator says of its board (linux,dummy-virt) says less than the inventory: virtual Raspberry Pi 4.
    board = value.title.partition(":")[0] if value.emulated else ""
    machine = (board or value.facts.board, value.facts.machine, value.facts.cpu, f"{value.facts.cores} cores")
    verified = value.verified
    coverage = sorted(runner.placement.coverage.items(), key=lambda item: -item[1]) if runner.placement else ()
    rows = [
        ["device", " · ".join(filter(None, machine))],
        ["engine", f"{value.bundle.engine} {value.bundle.engine_version} for {value.bundle.target}"],
        ["settings", ", ".join(f"{name} {setting}" for name, setting in runner.settings.items())],
        ["kernels", _kernels(value)],
        *(["instead", f"{each.used} for {each.wanted} in {each.where}: {each.why}"] for each in runner.fallbacks),
        ["nodes", ", ".join(f"{count} on {name.removesuffix('ExecutionProvider')}" for name, count in coverage)],
        ["load", emulated or load_text(runner)],
    ]
    if text:
        counts = runner.instructions.all if runner.instructions else ()
        rows += generate.written(text, runner.load_ms, value.emulated, counts)
        rows.append(["against the host", generate.agreement(value.outputs) if value.outputs else ""])
    else:
        rows += [["latency p50", emulated or duration(latency.p50)], ["latency p90", emulated or duration(latency.p90)]]
    damaged = ", ".join(verified.replaced) if verified else ""
    throttled = f"{', '.join(found.throttled)}: these times mean little" if found.throttled else ""
    executions = f"{latency.count} after {latency.warmup} warm-up, {runner.threads} threads"
    rows += [
        *_before_and_after(value),
        ["THROTTLED", throttled],
        ["cores", found.affinity],
        ["threads", str(runner.threads)] if text else ["executions", executions],
        ["peak RSS", amount(runner.peak_rss_bytes)],
        ["uploaded", uploaded],
        ["verified", f"program: {verified.program.text}; bundle: {verified.bundle.text}" if verified else ""],
        ["replaced", f"{damaged}: damaged on the device" if damaged else ""],
        ["took", f"{sum(value.seconds.values()):.1f} s"],
    ]
    caption = [f"Times are {value.latency_note}."] if value.latency_note else []
    caption += [f"Result: {console.shown(value.path)}"] if value.path else []
    console.table("", ["run", ""], [row for row in rows if row[1]], " ".join(caption))


def _kernels(value: Result) -> str:
    """How many kernels of which library ran, with their names if there is a profile."""
    named = bool(value.runner.profile)
    used = Counter((one.library, one.feature, one.kernel if named else "") for one in value.runner.kernels)
    text = ", ".join(
        f"{count} of {library}'s" + (f" for {feature}" if feature else "") + (f" ({kernel})" if kernel else "")
        for (library, feature, kernel), count in used.most_common()
    )
    return text + " (--json names them)" if text and not named else text


def _before_and_after(value: Result) -> list[list[str]]:
    """Clock and temperature around the run, if the device reports them."""
    both = (value.conditions.before, value.conditions.after)
    clocks = [max(each.frequencies_khz.values()) / 1000 for each in both if each.frequencies_khz]
    warmth = [each.hottest_c for each in both if each.hottest_c is not None]
    rows = []
    if len(clocks) == 2:
        rows.append(["clock", f"{clocks[0]:.0f} → {clocks[1]:.0f} MHz ({', '.join(both[1].governors)})"])
    if len(warmth) == 2:
        rows.append(["temperature", f"{warmth[0]:.1f} → {warmth[1]:.1f} °C"])
    return rows


def _profile(value: Result) -> None:
    """What may make it faster on its providers, and the profile by operators."""
    for hint in value.runner.placement.hints if value.runner.placement else ():
        # The runner's options have underscores, ours have dashes, and --inputs takes shapes, too.
        text = hint.replace("--input_shapes", "--inputs")
        console.say(re.sub(r"--\w+", lambda option: option[0].replace("_", "-"), text))
    profile, emulated = value.runner.profile, value.emulated
    if not profile:
        return
    total = sum(row.total_ms for row in profile) or 1.0
    shown = profile[:_PROFILE_ROWS]
    console.table(
        "Profile" + (" (emulated: shares only)" if emulated else ""),
        ["node", "operator", "provider", "count", *([] if emulated else ["ms"]), "%"],
        [
            [row.name, row.operator, row.provider.removesuffix("ExecutionProvider"), str(row.count),
             *([] if emulated else [f"{row.total_ms:.3f}"]), f"{100 * row.total_ms / total:.1f}"]
            for row in shown
        ],
        caption=f"the {len(shown)} costliest of {len(profile)}; --json has all",
    )  # fmt: skip


def preflight(found: Sequence[Finding]) -> None:
    """Print a preflight on stderr: it explains an error, and stdout may carry JSON."""
    rows = [[each.check, each.needs, each.has, "FAILS" if each.verdict == "bad" else each.verdict] for each in found]
    console.table("Preflight", ["check", "needs", "has", "verdict"], rows, stderr=True)
    for each in found:
        if each.fix:
            console.note(f"To fix {each.check}: {each.fix}")


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
            self._steps[event.step].bytes(event.done, event.total)
        elif event.kind in {"end", "fail"} and (step := self._steps.pop(event.step, None)) is not None:
            step.outcome = event.text
            step.end(ok=event.kind == "end")
        elif event.kind == "end" and event.text:
            console.note(f"{event.text} ({took(event.seconds)})")
