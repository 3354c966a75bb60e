"""Language models in ``./inv compare`` and ``./inv matrix``: what schemes cost in knowledge, and gain in speed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from commands.answer import judged, text_of
from commands.requests import Compare
from core import console
from core.cli.request import words
from core.console.units import duration, size
from core.errors import UsageError
from core.paths import ROOT
from deploy.devices.inventory import get_device
from deploy.run.generate import speeds
from deploy.run.settings import LEAN, Prompt, Settings
from models.text.source import SCHEMES, answers, exported, find
from models.text.tokenizer import Tokenizer

_READ, _WRITTEN = 128, 32
"""Tokens of the prompt and of the answer, as llama-bench's pp128 and tg32."""
_MOST = 512
"""Tokens of the text whose perplexity is computed, at most."""
_TEXT = ROOT / "docs" / "tolerances.md"
"""What a model is asked to foresee if its user names no text."""

if TYPE_CHECKING:
    from deploy.run.result import Result


class Pace:
    """Measures how fast a program reads 128 tokens of a text, and writes 32 that nothing ends.

    Args:
        folder: of the prompts' files, which must stay as long as they are used.
    """

    def __init__(self, folder: Path, text: str = "", most: int = _MOST) -> None:
        self._folder = folder
        self._text = text or _TEXT.read_text(encoding="utf-8")
        self._most = most
        self._known: dict[Path, tuple[Prompt, np.ndarray[Any, Any]]] = {}

    def read(self, program: Path) -> tuple[Prompt, np.ndarray[Any, Any]]:
        """The prompt, and the tokens of the whole text."""
        if program not in self._known:
            tokenizer = Tokenizer(program.with_name("tokenizer.json"))
            tokens = np.array(tokenizer.plain(self._text)[: self._most], dtype=np.int64)
            prompt = self._folder / f"{len(self._known)}.npy"
            np.save(prompt, tokens[:_READ])
            flags = (f"--generate={_WRITTEN + 1}", "--stops=none", "--temperature=0")
            self._known[program] = Prompt(tokens=prompt, vocabulary=tokenizer.size, flags=flags), tokens
        return self._known[program]

    def prompt(self, program: Path) -> Prompt:
        """The prompt alone."""
        return self.read(program)[0]

    def judged(self, found: Result, program: Path) -> Result:
        """The result with what upstream's runtime on this machine says of it."""
        return judged(found, program, self.prompt(program), greedy=True)


def run(request: Compare) -> None:
    """Export, run and measure each scheme on each device, and print one table.

    Raises:
        UsageError: an option for models of other kinds. SlipwayError: as an export's and a deploy's.
    """
    from deploy.run.pipeline import deploy
    from toolchains.bundle.builder import build

    if wrong := sorted(request.typed & {"variants", "engines", "metric", "rounds"}):
        raise UsageError(
            f"--{wrong[0]} does not go with a language model.", "its text is compared", "leave it out", [wrong[0]]
        )
    file = Path(request.samples) if request.samples else _TEXT
    text = text_of(file, "--samples with a file of text")
    chosen = SCHEMES if request.schemes == "all" else words(request.schemes) or SCHEMES[:2]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="slipway-compare-") as folder:
        pace = Pace(Path(folder), text, request.most or _MOST)
        for scheme in chosen:
            program = exported(find(request.model, scheme))
            prompt, tokens = pace.read(program)
            if len(tokens) <= _READ:
                raise UsageError(
                    f"{file} has {len(tokens)} tokens.", f"{_READ} of them are read first", "a longer text", [str(file)]
                )
            known = perplexity(program, tokens)
            for name in words(request.devices or "local"):
                device = get_device(name)
                settings = Settings.parse(vars(request), text=prompt).on(device)
                found = pace.judged(deploy(device, build(device.target, LEAN), program, settings), program)
                rows.append(_row(found, scheme, name, known, program))
    if request.json:
        console.print_json({"model": request.model, "text": str(file), "rows": rows})
        return
    units = [f"pp{_READ}", f"tg{_WRITTEN}"]  # tokens a second
    console.table(
        f"{request.model}: schemes",
        ["scheme", "device", "perplexity", "size", "load", *units, "peak RSS", "verdict"],
        [
            [
                row["scheme"], row["device"], "" if row["perplexity"] is None else f"{row['perplexity']:.2f}",
                size(row["size"]), "emulated" if row["load_ms"] is None else duration(row["load_ms"]),
                *(f"{row[name]:.1f}" if name in row else "emulated" for name in units),
                size(row["peak_rss_bytes"]), row["verdict"],
            ]
            for row in rows
        ],
        caption=f"Perplexity: how many tokens the model hesitates between, of {console.shown(file)}; less is better",
    )  # fmt: skip


def _row(found: Result, scheme: str, device: str, known: float | None, program: Path) -> dict[str, Any]:
    wrote = found.runner.generated
    assert wrote is not None  # noqa: S101 - a run with a prompt
    return {
        "scheme": scheme, "device": device, "perplexity": known, "size": program.stat().st_size,
        "load_ms": None if found.emulated else found.runner.load_ms, **({} if found.emulated else speeds(wrote)),
        "peak_rss_bytes": found.runner.peak_rss_bytes, "verdict": found.verdict,
    }  # fmt: skip


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
