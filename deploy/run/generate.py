"""Programs that generate a token in each execution: how often they run, and how fast."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from core.console.units import duration
from core.errors import UsageError
from deploy.run.compare import Comparison
from deploy.run.events import Event
from deploy.run.needs import Method
from deploy.run.runner import Generated
from deploy.run.settings import Prompt, Turn
from deploy.transport.base import Transport
from deploy.transport.deadline import Deadline

_TURN = re.compile(rb"turn (stop|length|context)((?: [0-9]{1,12}(?:\.[0-9]{1,9})?){6})\r?")
_PADDING = 1024
"""Scores that a model may have beyond its tokens: exporters round the number up."""


def check_vocabulary(prompt: Prompt, method: Method | None) -> None:
    """Refuse a tokenizer that is not the model's, as far as the numbers of tokens of a known method show it.

    Raises:
        UsageError: the tokenizer has more tokens than the model has scores, or far fewer.
    """
    scores = method.outputs[0].shape[-1:] if method and method.outputs else ()
    if scores and not scores[0] - _PADDING <= prompt.vocabulary <= scores[0]:
        raise UsageError(
            f"The tokenizer has {prompt.vocabulary:,} tokens, and the program scores {scores[0]:,}.",
            "the tokenizer belongs to another model",
            "--tokenizer with the tokenizer.json of the model that was exported",
        )


def hearing(
    transport: Transport, folder: str, prompt: Prompt | None, tell: Callable[[Event], None], deadline: Deadline
) -> Callable[[bytes], None]:
    """What takes the runner's output in pieces, tells of each token in it, and sends what comes after each text.

    The runner waits for that in ``folder``. Without a prompt nothing is heard.
    """
    rest, count = b"", 0

    def hear(piece: bytes) -> None:
        nonlocal rest, count
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if found := re.fullmatch(rb"token ([0-9]{1,9})\r?", line):
                tell(Event("run", "token", done=int(found[1])))
            elif prompt and prompt.turn and (found := _TURN.fullmatch(line)):
                count += 1
                held, room, read, read_ms, wrote, wrote_ms = map(float, found[2].split())
                said = Turn(found[1].decode(), int(held), int(room), int(read), read_ms, int(wrote), wrote_ms)
                _send(transport, f"{folder}/turn{count}", prompt.turn(said), deadline)

    return hear if prompt else lambda _: None


def _send(transport: Transport, stem: str, tokens: Sequence[int] | None, deadline: Deadline) -> None:
    """Give the runner what comes next; nothing: it ends."""
    with tempfile.TemporaryDirectory(prefix="slipway-turn-") as scratch:
        file, end = Path(scratch) / "tokens.npy", Path(scratch) / "end"
        np.save(file, np.array([-1] if tokens is None else tokens, dtype=np.int64))
        end.touch()
        transport.put(file, f"{stem}.npy", lambda _: None, deadline)
        transport.put(end, f"{stem}.end", lambda _: None, deadline)


def speeds(found: Generated) -> dict[str, float]:
    """Tokens a second of reading and of writing, by llama-bench's names: ``pp128`` and ``tg32``."""
    counts = [("pp", found.prompt_tokens, found.prompt_ms), ("tg", len(found.token_ms), sum(found.token_ms))]
    return {f"{name}{count}": 1000 * count / took for name, count, took in counts if count and took > 0}


def written(found: Generated, load_ms: float, emulated: bool, counted: Sequence[int] = ()) -> list[list[str]]:
    """A report's rows: reading and writing speed as llama-bench names them, the first token with the load, the end.

    The instructions ``counted`` are those of reading the prompt, then of each further token.
    """
    ends = {"stop": "the model ended its text", "context": f"the context of {found.context} tokens is full"}
    said = [["ended", ends.get(found.ended, "--generate reached")]]
    pace = [[name, "emulated" if emulated else f"{each:.1f} tokens/s"] for name, each in speeds(found).items()]
    for row, some, many in zip(pace, (counted[:1], counted[1:]), (found.prompt_tokens, len(counted) - 1), strict=False):
        if some:
            row[1] += f"; {sum(some) / many:,.0f} instructions a token"
    first = [] if emulated else [["first token", duration(load_ms + found.prompt_ms)]]
    return [*pace, *first, *said]


def agreement(outputs: Sequence[Comparison]) -> str:
    """How far the text is that of this machine: ``63 of 64 tokens the same; scores within 0.012 of 2``."""
    said = []
    for one in outputs:
        if one.name == "tokens":
            said.append(f"{one.elements - one.different} of {one.elements} tokens the same")
        elif one.max_abs is not None and one.tolerance is not None:
            said.append(f"the first one's scores within {one.max_abs:.2g}, {one.tolerance.atol:.2g} allowed")
    return "; ".join(reversed(said)) or "not compared"
