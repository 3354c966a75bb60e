"""``./inv deploy --prompt``: a text becomes a program's input, and what it writes is shown as it comes."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from commands.requests import Deploy, Export, program_of
from commands.shared import Chat
from core.console.live import paused
from core.errors import UsageError
from core.plain import plain
from deploy.run.events import Event, Listener
from deploy.run.result import Result
from deploy.run.settings import Prompt
from models.text.source import is_language, number_of, zoo

if TYPE_CHECKING:
    from models.text.tokenizer import Tokenizer

_USUAL = 256
"""Tokens to generate."""
_TIMES, _LEAST, _HALF, _ROUNDED, _PLAIN = 2.0, 1e-4, 2**-7, 0.03, 0.1
"""How far scores may be from upstream's, in times of how far upstream's are from each other when the prompt is read in
another order, and at least in parts of the scores' spread: in float32; in half precision, where processors add in
float32 or do not; and if activations are rounded to 8 bits. One of these that falls otherwise moves all later ones:
with two small layers by up to 1.5% of the spread, in a third of all prompts. Upstream's own orders seldom show it, as
they only differ in attention's sums; plain attention, with the last one, adds in the same order whatever is read
together. On another processor SmolLM2's scores move by 8% of their spread."""


def check_prompt(request: Deploy) -> None:
    """Refuse what does not go with a prompt, or with nothing but one.

    Raises:
        UsageError: it names the option.
    """
    typed = request.typed & {"prompt", "prompt_file"}
    if len(typed) == 2:
        raise UsageError("--prompt cannot be used with --prompt-file.", "a model reads one", "leave one out")
    if not typed:
        if wrong := sorted(request.typed & {"generate", "tokenizer", "temperature", "top_k", "top_p", "seed"}):
            raise UsageError(
                f"--{wrong[0].replace('_', '-')} goes with --prompt.", "", './inv deploy --model x.pte --prompt "Hi"'
            )
        if not program_of(request) and is_language(request.model):
            raise UsageError(
                f"{request.model} needs a prompt.",
                "it is a language model",
                f'./inv deploy --model {request.model} --prompt "Why is the sky blue?"',
            )
        return
    if wrong := sorted(request.typed & {"inputs", "expected", "values", "etdump", "num_executions", "warmup"}):
        raise UsageError(
            f"--prompt cannot be used with --{wrong[0].replace('_', '-')}.",
            "the runner makes the model's inputs from the prompt, token by token",
            "leave it out",
        )
    if not program_of(request) and not is_language(request.model):
        raise UsageError(
            f"--prompt does not go with {request.model}.",
            f"only language models read text: {', '.join(zoo())}, a folder of Hugging Face, a GGUF file, or a program",
            './inv deploy --model smollm2_135m --prompt "Why is the sky blue?"',
            [request.model],
        )


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
    if program is None or not request.typed & {"prompt", "prompt_file"}:
        yield None, None
        return
    from deploy.run.report import ConsoleListener

    text = request.prompt or text_of(Path(request.prompt_file), "a file of text in UTF-8").rstrip("\n")
    tokenizer = _tokenizer(request, program)
    numbers = tokenizer.encode(text)
    if (room := number_of(program, "context")) and len(numbers) >= room:
        raise UsageError(
            f"The prompt has {len(numbers)} tokens, and the program holds {room}, its answer included.",
            "it was exported for so many",
            f"a shorter prompt, or an export with more: --options context={2 * len(numbers)}",
            ["prompt"],
        )
    flags = flags_of(request, tokenizer)
    with tempfile.TemporaryDirectory(prefix="slipway-prompt-") as folder:
        file = Path(folder) / "prompt.npy"
        np.save(file, np.array(numbers, dtype=np.int64))
        answer = _Answer(tokenizer.decoding(), request.json)
        yield Prompt(tokens=file, vocabulary=tokenizer.size, flags=flags), [answer, ConsoleListener()]


def text_of(file: Path, hint: str) -> str:
    """The text of a user's file; a `UsageError` with ``hint`` if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read.", str(error), hint, [str(file)]) from error


def _tokenizer(request: Deploy | Chat, program: Path) -> Tokenizer:
    from models.text.tokenizer import Tokenizer

    beside = (program if program.is_dir() else program.parent) / "tokenizer.json"
    return Tokenizer(Path(request.tokenizer) if request.tokenizer else beside)


def program_and_tokenizer(request: Chat) -> tuple[Path, Tokenizer]:
    """What a talk needs: the program, exported if it is a model's, and its tokenizer.

    Raises:
        SlipwayError: there is no such model, or a file cannot be read.
    """
    program = program_of(request)
    if program is None and not is_language(request.model):
        raise UsageError(
            f"{request.model} is no language model.",
            f"they are {', '.join(zoo())}, a folder of Hugging Face, a GGUF file, or a program",
            "./inv chat --model smollm2_135m",
            [request.model],
        )
    program = program or exported(request)
    return program, _tokenizer(request, program)


def flags_of(request: Deploy | Chat, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The runner's, for what is generated."""
    flags = [f"--generate={request.generate or _USUAL}", "--stream", "--count_instructions"]
    flags += [f"--temperature={request.temperature:g}", f"--top_k={request.top_k}", f"--top_p={request.top_p:g}"]
    flags += [f"--seed={request.seed}"]
    if tokenizer.stops:
        flags.append(f"--stops={','.join(map(str, tokenizer.stops))}")
    return tuple(flags)


def exported(request: Deploy | Export | Chat) -> Path:
    """The program of the language model that a request names, exported if it is not current.

    Raises:
        SlipwayError: as `models.text.source`.
    """
    from models.request.options import pairs
    from models.text import source

    onnx = {"format"} if isinstance(request, Export) and request.format != "pte" else set()
    if wrong := sorted(request.typed & {"partitioners", "samples", "method"} | onnx):
        raise UsageError(
            f"--{wrong[0]} does not go with {request.model}.",
            "a language model is exported by upstream's own exporter, which chooses that itself",
            "leave it out",
        )
    scheme = request.scheme if "scheme" in request.typed else ""
    language = source.find(request.model, scheme, pairs(request.options))
    return source.exported(language, isinstance(request, Export) and request.force)


def allowed(
    other: np.ndarray[Any, Any], scores: np.ndarray[Any, Any], nodes: Iterable[str], *, plain: bool = False
) -> float:
    """How far scores may be from upstream's.

    Args:
        other: what upstream's runtime says if it reads the prompt in another order.
        scores: what it says.
        nodes: of the kernels, as the runner names them, and types in place of which it computes in others.
        plain: whether attention is of plain operators.
    """
    kinds = set(re.findall("Q[DP]8|F16|float16", " ".join(nodes)))
    least = (_PLAIN if plain else _ROUNDED) if kinds & {"QD8", "QP8"} else _HALF if kinds else _LEAST
    return max(_TIMES * float(np.abs(scores - other).max()), least * float(np.ptp(scores)))


def judged(found: Result, program: Path, prompt: Prompt, *, greedy: bool) -> Result:
    """The result with what upstream's runtime on this machine says of its scores and of its tokens.

    That runtime reads the same prompt and the same tokens. The first one's scores are compared: they may differ by
    twice of what its own do if it reads the prompt token by token. Each token that was taken as the likeliest must be
    the likeliest there, too, or as near to that.

    Args:
        greedy: whether each token was taken so.
    """
    from core.environment import venv
    from core.environment.bootstrap import is_installed
    from core.formats.program import Tolerance
    from core.paths import results_dir
    from deploy.run.compare import Comparison, compare
    from deploy.run.result import overall, write
    from models.text.source import answers

    generated = found.runner.generated
    if generated is None or not is_installed(venv(), "export"):
        return found
    read = np.concatenate([np.load(prompt.tokens), np.array(generated.tokens[:-1], dtype=np.int64)])
    with tempfile.TemporaryDirectory(prefix="slipway-answers-") as scratch:
        file = program / "model.pte" if program.is_dir() else program
        scores = answers(file, read, generated.prompt_tokens, Path(scratch))
        if scores is None:
            return found
        first, other, scores = Path(scratch) / "first.npy", scores[0], scores[1:]
        np.save(first, scores[0])
        nodes = [one.node for one in found.runner.kernels] + [one.wanted for one in found.runner.fallbacks]
        atol = allowed(other, scores[0], nodes, plain=bool(number_of(program, "plain")))
        near = Tolerance(atol=atol, rtol=0, why="upstream's runtime, when it reads the prompt in another order")
        rows = [compare("scores", results_dir() / found.key / "output1.npy", first, near)]
    if greedy:
        chosen = np.array(generated.tokens)
        behind = scores.max(axis=1) - np.take_along_axis(scores, chosen[:, None], axis=1)[:, 0]
        outside = int((behind > atol).sum())
        different = int((chosen != scores.argmax(axis=1)).sum())
        verdict = "differs" if outside else "agrees" if different else "identical"
        rows.append(
            Comparison(
                name="tokens", dtype="int64", shape=chosen.shape, verdict=verdict, different=different,
                outside=outside, elements=len(chosen), max_abs=float(behind.max()), tolerance=near,
            )
        )  # fmt: skip
    outputs = tuple(rows)
    result = found.model_copy(update={"outputs": outputs, "verdict": overall(outputs)})
    write(result)
    return result
