"""Language models' tokenizers: from a prompt to the numbers that a program reads, and from its numbers to text.

They run on this machine, by their own library: devices only see numbers.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.environment import apart
from core.errors import UsageError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Tokenizer:
    """A ``tokenizer.json``, with the template of chats and the end of texts of the files beside it."""

    def __init__(self, file: Path) -> None:
        """Read ``file``.

        Raises:
            UsageError: it is missing, or it or a file beside it is damaged. HostError: the library is not here.
        """
        if not file.is_file():
            raise UsageError(
                f"There is no tokenizer {file}.",
                "a program has none inside",
                "--tokenizer with the tokenizer.json of the model that was exported",
                [str(file)],
            )
        folder = str(apart("text"))
        if folder not in sys.path:
            sys.path.append(folder)
        import tokenizers  # type: ignore[import-not-found,unused-ignore]

        self.file = file
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more exact
            raise UsageError(
                f"{file} is not a tokenizer.", str(error)[:300], "the model's own tokenizer.json", [str(file)]
            ) from error
        self._new_stream: Any = tokenizers.decoders.DecodeStream
        self._special, self._template = self._beside()
        end = self._special.get("eos_token", "")
        number = self._tokenizer.token_to_id(end) if end else None
        self.stops: tuple[int, ...] = () if number is None else (number,)
        """Tokens that end a text, as far as the files say so."""

    def _beside(self) -> tuple[dict[str, str], str]:
        """The special tokens by role, and the template of chats; what no file has is empty."""
        file = self.file.with_name("tokenizer_config.json")
        try:
            found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            alone = self.file.with_name("chat_template.jinja")
            template = alone.read_text(encoding="utf-8") if alone.is_file() else found.get("chat_template") or ""
            if isinstance(template, list):  # several, by name
                template = next((one["template"] for one in template if one["name"] == "default"), "")
            special = {
                role: value["content"] if isinstance(value, dict) else str(value)
                for role, value in found.items()
                if role.endswith("_token") and value and not isinstance(value, bool)
            }
            return special, str(template)
        except (ValueError, AttributeError, KeyError, TypeError, OSError) as error:
            raise UsageError(f"{file} cannot be read.", str(error), "the model's own file", [str(file)]) from error

    @property
    def size(self) -> int:
        """Tokens, special ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, prompt: str) -> list[int]:
        """The numbers of a prompt's tokens, as the only turn of a chat if there is a template.

        Raises:
            UsageError: as `talk`.
        """
        return self.talk([("user", prompt)])

    def talk(self, turns: Sequence[tuple[str, str]]) -> list[int]:
        """The numbers of a talk's tokens, up to where the next answer begins.

        Args:
            turns: who said what, the newest last: ``user`` or ``assistant``. Without a template of chats, they are
                joined line by line.

        Raises:
            UsageError: it is empty or has characters that no text has, or the template refuses it.
        """
        prompt = turns[-1][1]
        if found := _CONTROL.search(prompt):
            raise UsageError(
                f"The prompt has the control character U+{ord(found[0]):04X} at position {found.start() + 1}.",
                "no tokenizer was trained with it; text has tabs and line feeds only",
                "leave it out",
                ["prompt"],
            )
        if self._template:
            numbers = self._tokenizer.encode(self._chat(turns), add_special_tokens=False).ids
        else:
            numbers = self._tokenizer.encode("\n".join(text for _, text in turns)).ids
        if not numbers:
            raise UsageError("The prompt is empty.", "a model goes on from one token at least", '--prompt "Hi"')
        return [int(number) for number in numbers]

    def _chat(self, turns: Sequence[tuple[str, str]]) -> str:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(why: str) -> None:
            raise TemplateError(why)

        try:
            made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(self._template)
            messages = [{"role": role, "content": text} for role, text in turns]
            return made.render(messages=messages, add_generation_prompt=True, raise_exception=refuse, **self._special)
        except TemplateError as error:
            raise UsageError(
                f"The template of chats beside {self.file} cannot be used.", str(error), "the model's own files"
            ) from error

    def decoding(self) -> Callable[[int], str]:
        """What gives the text of one token after another; empty while a character is not complete."""
        stream = self._new_stream(skip_special_tokens=True)
        return lambda number: stream.step(self._tokenizer, number) or ""
