"""Programs that generate a token in each execution: how often they run, and how fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import UsageError
from core.formats.program import DESCRIPTION, load_program
from deploy.run.settings import Settings

if TYPE_CHECKING:
    from deploy.run.result import Result


def settings_for(path: Path, tokens: int, settings: Settings) -> Settings:
    """Settings with which a program generates ``tokens`` tokens: an execution for each, and for each of its prompt.

    Raises:
        UsageError: the program does not generate, or not so many.
    """
    folder = path if path.is_dir() else path.parent
    program = load_program(folder, verify=False) if (folder / DESCRIPTION).is_file() else None
    if program is None or program.generation is None:
        raise UsageError(
            f"{path.name} does not generate tokens.",
            "it was not exported from models.generating.greedy()",
            "docs/models.md, Generating text",
            ["generate"],
        )
    prompt, length = program.generation
    if tokens > length:
        raise UsageError(
            f"{program.name} generates at most {length} tokens, not {tokens}.",
            "its function says so",
            f"--generate {length}, or greedy(..., length={tokens}) in {program.model}",
            ["generate"],
        )
    # With methods, `prefill` reads the prompt and generates the first token.
    executions = max(1, tokens - 1) if program.before else prompt - 1 + tokens
    return settings.model_copy(update={"num_executions": executions, "warmup": 0})


def rows(value: Result) -> list[list[str]]:
    """Tokens per second, for a report: the prompt's and those that followed."""
    latency = value.runner.latency_ms
    if value.program.generation is None or latency.warmup:
        return []
    prompt = value.program.generation[0]
    parts: list[tuple[str, int, float]]
    if value.methods:
        before = sum(one.latency_ms for one in value.methods)
        parts = [("prompt, at once", prompt, before), ("generated", len(latency.all), sum(latency.all))]
    else:
        # The execution that reads the prompt's last token generates the first one.
        read, made = latency.all[: prompt - 1], latency.all[prompt - 1 :]
        parts = [("prompt", len(read), sum(read)), ("generated", len(made), sum(made))]
    return [
        [name, f"{count} tokens" + ("" if value.emulated else f", {1000 * count / took:.1f} tokens/s")]
        for name, count, took in parts
        if took > 0
    ]
