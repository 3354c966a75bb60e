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
from core.errors import SlipwayError, UsageError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class _Json:
    """``tokenizer.json``, of Hugging Face."""

    def __init__(self, file: Path) -> None:
        _enter("text")
        import tokenizers  # type: ignore[import-not-found,unused-ignore]

        self._made: Any = tokenizers.Tokenizer.from_file(str(file))
        self._new_stream: Any = tokenizers.decoders.DecodeStream
        self.size = int(self._made.get_vocab_size(with_added_tokens=True))
        self.ends: tuple[int, ...] = ()

    def number(self, token: str) -> int | None:
        found: int | None = self._made.token_to_id(token)
        return found

    def encode(self, text: str, whole: bool) -> list[int]:
        """The numbers; ``whole``: a template has written all of the text, the special tokens too."""
        return [int(number) for number in self._made.encode(text, add_special_tokens=not whole).ids]

    def decoding(self) -> Callable[[int], str]:
        stream = self._new_stream(skip_special_tokens=True)
        return lambda number: stream.step(self._made, number) or ""


class _Model:
    """``tokenizer.model``, of SentencePiece or of tiktoken."""

    def __init__(self, file: Path) -> None:
        _enter("language", "text")
        from pytorch_tokenizers import get_tokenizer  # type: ignore[import-not-found,unused-ignore]

        self._made: Any = get_tokenizer(str(file))
        self._special: dict[str, int] = getattr(self._made, "special_tokens", {})
        self.size = int(self._made.n_words)
        turn = self._special.get("<|eot_id|>")
        self.ends = (int(self._made.eos_id), *([turn] if turn is not None else []))

    def number(self, token: str) -> int | None:
        return self._special.get(token)

    def encode(self, text: str, whole: bool) -> list[int]:
        more = {"allowed_special": "all"} if self._special and whole else {}
        return [int(number) for number in self._made.encode(text, bos=not whole, eos=False, **more)]

    def decoding(self) -> Callable[[int], str]:
        numbers: list[int] = []
        shown = ""

        def step(number: int) -> str:
            nonlocal shown
            if number in self.ends or number in self._special.values():
                return ""
            numbers.append(number)
            text = str(self._made.decode(numbers))
            if text.endswith("\ufffd"):  # half of a character
                return ""
            found, shown = text[len(shown) :], text
            return found

        return step


def _enter(*sets: str) -> None:
    for name in sets:
        if (folder := str(apart(name))) not in sys.path:
            sys.path.append(folder)


class Tokenizer:
    """A tokenizer, with the template of chats and the end of texts of the files beside it."""

    def __init__(self, file: Path) -> None:
        """Read ``file``: ``tokenizer.json``, or ``tokenizer.model`` of SentencePiece or tiktoken.

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
        self.file = file
        try:
            self._made = (_Json if file.suffix == ".json" else _Model)(file)
        except SlipwayError:
            raise
        except Exception as error:  # the libraries raise nothing more exact
            raise UsageError(
                f"{file} is not a tokenizer.", str(error)[:300], "the model's own tokenizer.json", [str(file)]
            ) from error
        self._special, self._template = self._beside()
        end = self._special.get("eos_token", "")
        number = self._made.number(end) if end else None
        self.stops: tuple[int, ...] = self._made.ends if number is None else (number,)
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
        return self._made.size

    def encode(self, prompt: str) -> list[int]:
        """The numbers of a prompt's tokens, as the only turn of a chat if there is a template.

        Raises:
            UsageError: as `talk`.
        """
        return self.talk([("user", prompt)])

    def plain(self, text: str) -> list[int]:
        """The numbers of a text's tokens, without any template."""
        return self._made.encode(text, whole=False)

    def talk(self, turns: Sequence[tuple[str, str]]) -> list[int]:
        """The numbers of a talk's tokens, up to where the next answer begins.

        Args:
            turns: who said what, the newest last: ``user`` or ``assistant``. Without a template of chats, they are
                joined line by line.

        Raises:
            UsageError: it is empty or has characters that no text has, or the template refuses it.
        """
        if found := _CONTROL.search(turns[-1][1]):
            raise UsageError(
                f"The prompt has the control character U+{ord(found[0]):04X} at position {found.start() + 1}.",
                "no tokenizer was trained with it; text has tabs and line feeds only",
                "leave it out",
                ["prompt"],
            )
        if self._template:
            numbers = self._made.encode(self._chat(turns), whole=True)
        else:
            numbers = self._made.encode("\n".join(text for _, text in turns), whole=False)
        if not numbers:
            raise UsageError("The prompt is empty.", "a model goes on from one token at least", '--prompt "Hi"')
        return numbers

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
        return self._made.decoding()
