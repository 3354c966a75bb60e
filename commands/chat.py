"""``./inv chat``: a talk with a language model on a device, which stays loaded and keeps what it has read."""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from commands.answer import flags_of, program_and_tokenizer
from commands.shared import Chat
from core import console
from core.console.live import paused
from core.errors import UsageError
from core.paths import cache_dir
from core.plain import plain
from deploy.devices.inventory import get_device
from deploy.run.events import Event
from deploy.run.settings import LEAN, Prompt, Settings, Turn
from models.text.source import number_of
from models.text.tokenizer import Tokenizer

_SECONDS = 12 * 3600.0
"""Of a talk, at most."""
_HELP = "/reset forgets the talk, /stats shows the speed, /exit or Ctrl-D ends it"


class Talk:
    """The talk so far: what was said, and the tokens that the model on the device has of it.

    Args:
        ask: gives the user's next line; raises EOFError at the end.
        show: shows a piece of an answer.
        emulated: whether the device's times say nothing.
        context: tokens that the program holds, if that is known before it runs; else 0.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        ask: Callable[[], str],
        show: Callable[[str], None],
        emulated: bool = False,
        context: int = 0,
    ) -> None:
        self._tokenizer, self._ask, self._show, self._emulated = tokenizer, ask, show, emulated
        self._turns: list[tuple[str, str]] = []
        self._seen = 0
        """Answers that the user has seen; over another connection, the first one is computed again and not shown."""
        self._last: Turn | None = None
        self._over = False
        self.first = self._asked(context) or []
        """The tokens of the first line; empty: the user wants none."""
        self.begin()

    def begin(self) -> None:
        """A connection begins: the model reads the first line."""
        self._here, self._held = 0, list(self.first)
        self._listen()

    def _listen(self) -> None:
        self._answer, self._decoded = "", self._tokenizer.decoding()

    def token(self, number: int) -> None:
        """The model has written a token."""
        self._held.append(number)
        text = self._decoded(number)
        self._answer += text
        if self._here >= self._seen:
            self._show(plain(text))

    def turn(self, said: Turn) -> list[int] | None:
        """An answer has ended: how many tokens stay, and those that come next; ``None``: that was all."""
        if self._over:  # the connection broke when the device was told so
            return None
        if self._here < self._seen:
            console.note("The connection is there again; the model reads the talk once more.")
            tokens: list[int] | None = self._tokenizer.talk(self._turns)
            self._here = self._seen
        else:
            self._show("\n")
            self._turns.append(("assistant", self._answer))
            self._here = self._seen = self._seen + 1
            self._last = said
            tokens = self._asked(said.context)
        if tokens is None:
            self._over = True
            return None
        pairs = zip(self._held[: said.position], tokens, strict=False)
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        keep = min(same, len(tokens) - 1)
        self._held = list(tokens)
        self._listen()
        return [keep, *tokens[keep:]]

    def _asked(self, context: int) -> list[int] | None:
        """The tokens of the talk with the user's next line; ``None``: the user ends it."""
        while True:
            try:
                text = self._ask().strip()
            except EOFError:
                return None
            if text == "/exit":
                return None
            if text == "/reset":
                self._turns.clear()
                self._last = self._last and self._last._replace(position=0)
                console.note("The model has forgotten the talk.")
            elif text == "/stats":
                console.note(stats(self._last, self._emulated))
            elif text.startswith("/"):
                console.note(_HELP)
            elif text:
                try:
                    tokens = self._tokenizer.talk([*self._turns, ("user", text)])
                except UsageError as error:
                    console.note(f"{error.what} {error.cause}")
                    continue
                if context and len(tokens) >= context:
                    console.note(
                        f"The talk would have {len(tokens)} tokens, and the model holds {context}: a shorter line, or "
                        "/reset; --options context=N exports the model with more"
                    )
                    continue
                self._turns.append(("user", text))
                return tokens


def stats(last: Turn | None, emulated: bool) -> str:
    """``holds 41 of 1024 tokens; pp 210.5 tokens/s; tg 31.2 tokens/s``: of all answers so far."""
    if last is None:
        return "there is no answer yet"
    said = [f"holds {last.position}" + (f" of {last.context}" if last.context else "") + " tokens"]
    speeds = [("pp", last.prompt_tokens, last.prompt_ms), ("tg", last.tokens, last.token_ms)]
    if emulated:
        said.append("its speed is emulated")
    else:
        said += [f"{name} {1000 * count / took:.1f} tokens/s" for name, count, took in speeds if took > 0]
    return "; ".join(said)


class _Screen:
    """Lets nothing else write while the talk goes on."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._alone = contextlib.ExitStack()

    def __call__(self, event: Event) -> None:
        if event.kind == "token":
            self._talk.token(event.done)
        elif event.step == "run" and event.kind == "start":
            self._talk.begin()
            self._alone.enter_context(paused())
        elif event.step == "run" and event.kind in ("end", "fail"):
            self._alone.close()


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _asker() -> Callable[[], str]:
    """What asks for lines: with the history of earlier talks on a terminal."""
    if not sys.stdin.isatty():
        return input
    import readline

    history = cache_dir("chat") / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(history)

    def ask() -> str:
        text = input("> ")
        with contextlib.suppress(OSError):
            readline.set_history_length(1000)
            readline.write_history_file(history)
        return text

    return ask


def run(request: Chat) -> None:
    """Talk with the model until its user ends it.

    Raises:
        SlipwayError: as those of a deploy.
    """
    from deploy.run.pipeline import deploy
    from deploy.run.report import ConsoleListener
    from toolchains.bundle.builder import build

    device = get_device(request.device)
    program, tokenizer = program_and_tokenizer(request)
    bundle = build(device.target, LEAN, "")
    console.note(_HELP)
    talk = Talk(tokenizer, _asker(), _show, device.emulated, number_of(program, "context"))
    if not talk.first:
        return
    with tempfile.TemporaryDirectory(prefix="slipway-chat-") as folder:
        file = Path(folder) / "prompt.npy"
        np.save(file, np.array(talk.first, dtype=np.int64))
        flags = (*flags_of(request, tokenizer), "--turns")
        prompt = Prompt(tokens=file, vocabulary=tokenizer.size, flags=flags, turn=talk.turn)
        settings = Settings.parse({**vars(request), "timeout": _SECONDS}, text=prompt).on(device)
        deploy(device, bundle, program, settings, listeners=[_Screen(talk), ConsoleListener()])
