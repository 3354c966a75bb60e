"""``./inv deploy --prompt``: a text becomes a program's input, and what it writes is shown as it comes."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from commands.requests import Deploy, program_of
from core.console.live import paused
from core.errors import UsageError
from core.plain import plain
from deploy.run.events import Event, Listener
from deploy.run.settings import Prompt

_USUAL = 128
"""Tokens to generate."""
_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def check_prompt(request: Deploy) -> None:
    """Refuse what does not go with a prompt, or with nothing but one.

    Raises:
        UsageError: it names the option.
    """
    if "prompt" not in request.typed:
        if wrong := sorted(request.typed & {"tokenizer", *_SAMPLING}):
            raise UsageError(
                f"--{wrong[0].replace('_', '-')} goes with --prompt.", "", './inv deploy --program x.pte --prompt "Hi"'
            )
        return
    others = {"inputs", "input_shapes", "expected", "values", "etdump", "num_executions", "warmup"}
    if wrong := sorted(request.typed & others):
        raise UsageError(
            f"--prompt cannot be used with --{wrong[0].replace('_', '-')}.",
            "the runner makes the model's inputs from the prompt, token by token",
            "leave it out",
        )
    if not program_of(request):
        raise UsageError(
            "--prompt goes with --program.",
            "only a language model's program reads text",
            './inv deploy --program x.pte --tokenizer tokenizer.json --prompt "Hi"',
        )
    if request.top_p > 1:
        raise UsageError(f"--top-p cannot be {request.top_p:g}.", "it is a probability", "--top-p 0.9")


class _Answer:
    """Shows a text while it is written, in place of the line that says that the program runs."""

    def __init__(self, decoded: Callable[[int], str], to_stderr: bool) -> None:
        self._decoded = decoded
        self._stream = sys.stderr if to_stderr else sys.stdout
        self._alone = contextlib.ExitStack()
        self._begun = False

    def __call__(self, event: Event) -> None:
        if event.kind == "token":
            if not self._begun:
                self._begun = True
                self._alone.enter_context(paused())
            self._stream.write(plain(self._decoded(event.done)))
            self._stream.flush()
        elif event.step == "run" and event.kind in ("end", "fail") and self._begun:
            self._begun = False
            self._stream.write("\n")
            self._stream.flush()
            self._alone.close()


@contextlib.contextmanager
def prompted(request: Deploy, program: Path | None) -> Iterator[tuple[Prompt | None, list[Listener] | None]]:
    """The prompt as a deploy takes it, and who listens to the deploy; nothing without a prompt.

    Raises:
        UsageError: the prompt or the tokenizer cannot be read. HostError: its library could not be installed.
    """
    if "prompt" not in request.typed or program is None:
        yield None, None
        return
    from deploy.run.report import ConsoleListener
    from models.text import Tokenizer

    beside = (program if program.is_dir() else program.parent) / "tokenizer.json"
    tokenizer = Tokenizer(Path(request.tokenizer) if request.tokenizer else beside)
    numbers = tokenizer.encode(request.prompt)
    flags = [f"--generate={request.generate or _USUAL}", "--stream", f"--temperature={request.temperature:g}"]
    flags += [f"--top_k={request.top_k}", f"--top_p={request.top_p:g}", f"--seed={request.seed}"]
    if tokenizer.stops:
        flags.append(f"--stops={','.join(map(str, tokenizer.stops))}")
    with tempfile.TemporaryDirectory(prefix="slipway-prompt-") as folder:
        file = Path(folder) / "prompt.npy"
        np.save(file, np.array(numbers, dtype=np.int64))
        answer = _Answer(tokenizer.decoding(), request.json)
        yield Prompt(tokens=file, vocabulary=tokenizer.size, flags=tuple(flags)), [answer, ConsoleListener()]
