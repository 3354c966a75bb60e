"""``./inv compare`` of a language model: what each scheme costs in knowledge, and gains in speed, size and memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from commands.answer import judged
from commands.requests import Compare
from core import console
from core.cli.request import words
from core.console.units import duration, size
from core.errors import UsageError
from core.paths import ROOT
from deploy.devices.inventory import get_device
from deploy.run.engine_flags import LEAN
from deploy.run.generate import speeds
from deploy.run.settings import Prompt, Settings
from models.text.source import SCHEMES, answers, exported, find
from models.text.tokenizer import Tokenizer

_READ, _WRITTEN = 128, 32
"""Tokens of the prompt and of the answer, as llama-bench's pp128 and tg32."""
_MOST = 512
"""Tokens of the text whose perplexity is computed, at most."""
_TEXT = ROOT / "docs" / "tolerances.md"
"""What a model is asked to foresee if its user names no text."""
_OTHERS = ("variants", "engines", "metric", "rounds")


def run(request: Compare) -> None:
    """Export, run and measure each scheme on each device, and print one table.

    Raises:
        UsageError: an option for models of other kinds. SlipwayError: as an export's and a deploy's.
    """
    from deploy.run.pipeline import deploy
    from toolchains.bundle.builder import build

    if wrong := sorted(request.typed & set(_OTHERS)):
        raise UsageError(
            f"--{wrong[0]} does not go with a language model.", "its text is compared", "leave it out", [wrong[0]]
        )
    file = Path(request.samples) if request.samples else _TEXT
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read.", str(error), "--samples with a file of text", [str(file)]) from error
    chosen = SCHEMES if request.schemes == "all" else words(request.schemes) or SCHEMES[:2]
    rows: list[dict[str, Any]] = []
    for scheme in chosen:
        program = exported(find(request.model, scheme))
        tokenizer = Tokenizer(program.with_name("tokenizer.json"))
        tokens = np.array(tokenizer.plain(text)[: request.most or _MOST], dtype=np.int64)
        if len(tokens) <= _READ:
            raise UsageError(
                f"{file} has {len(tokens)} tokens.", f"{_READ} of them are read first", "a longer text", [str(file)]
            )
        known = perplexity(program, tokens)
        for name in words(request.devices or "local"):
            device = get_device(name)
            with tempfile.TemporaryDirectory(prefix="slipway-compare-") as folder:
                prompt = Path(folder) / "prompt.npy"
                np.save(prompt, tokens[:_READ])
                flags = (f"--generate={_WRITTEN + 1}", "--stops=none", "--temperature=0")
                asked = Prompt(tokens=prompt, vocabulary=tokenizer.size, flags=flags)
                settings = Settings.parse(vars(request), text=asked).on(device)
                found = judged(
                    deploy(device, build(device.target, LEAN), program, settings), program, asked, greedy=True
                )
            wrote = found.runner.generated
            assert wrote is not None  # noqa: S101 - a run with a prompt
            rows.append(
                {
                    "scheme": scheme, "device": name, "perplexity": known, "size": program.stat().st_size,
                    "load_ms": None if found.emulated else found.runner.load_ms,
                    **({} if found.emulated else speeds(wrote)),
                    "peak_rss_bytes": found.runner.peak_rss_bytes, "verdict": found.verdict,
                }
            )  # fmt: skip
    if request.json:
        console.print_json({"model": request.model, "text": str(file), "rows": rows})
        return
    pace = [f"pp{_READ}", f"tg{_WRITTEN}"]  # tokens a second
    console.table(
        f"{request.model}: schemes",
        ["scheme", "device", "perplexity", "size", "load", *pace, "peak RSS", "verdict"],
        [
            [
                row["scheme"], row["device"], "" if row["perplexity"] is None else f"{row['perplexity']:.2f}",
                size(row["size"]), "emulated" if row["load_ms"] is None else duration(row["load_ms"]),
                *(f"{row[name]:.1f}" if name in row else "emulated" for name in pace),
                size(row["peak_rss_bytes"]), row["verdict"],
            ]
            for row in rows
        ],
        caption=f"Perplexity: how many tokens the model hesitates between, of {console.shown(file)}; less is better",
    )  # fmt: skip


def perplexity(program: Path, tokens: np.ndarray[Any, Any]) -> float | None:
    """Of the text, by upstream's runtime on this machine; ``None`` if that does not run the program."""
    with tempfile.TemporaryDirectory(prefix="slipway-perplexity-") as folder:
        scores = answers(program, tokens, 1, Path(folder))
    if scores is None:
        return None
    before = scores[1:-1].astype(np.float64)
    most = before.max(axis=1)
    of_all = most + np.log(np.exp(before - most[:, None]).sum(axis=1))
    return float(np.exp((of_all - before[np.arange(len(before)), tokens[1:]]).mean()))
