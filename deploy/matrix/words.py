"""Expressions that select cells of the matrix: ``linux-arm64 & (mobilenet* | mlp-qs8) & !phone``.

    expression = term ("|" term)*
    term       = factor ("&" factor)*
    factor     = "!" factor | "(" expression ")" | word
    word       = [field ":"] pattern

A pattern is a shell glob (``*``, ``?``, ``[…]``) that must fit a whole word of the cell, in any field or in the one
named before the colon.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from core.errors import UsageError, did_you_mean, near, suggestion

FIELDS = ("device", "cpu", "tag", "fixture", "target", "engine", "program", "model", "scheme")
"""The fields in which a cell has words."""

Words = Mapping[str, tuple[str, ...]]
"""A cell's words by field."""

_TOKEN = re.compile(r"\s*(?:(?P<sign>[&|!()])|(?P<word>[^\s&|!()]+))")
_DEEPEST = 50
_HELP = "--only 'linux-arm64 & (mobilenet* | mlp-qs8) & !phone'; docs/matrix.md says what a word may be"


@dataclass(frozen=True)
class Word:
    """A pattern, in one field or (empty) in any."""

    pattern: str
    field: str = ""

    def fits(self, words: Words) -> bool:
        """Whether a word of the cell matches the pattern."""
        fields = (self.field,) if self.field else FIELDS
        return any(fnmatch.fnmatchcase(word, self.pattern) for name in fields for word in words.get(name, ()))


@dataclass(frozen=True)
class Expression:
    """A parsed expression; an empty one is true of every cell."""

    text: str = ""
    words: tuple[Word, ...] = ()
    """All its words, in their order."""
    test: Callable[[Words], bool] = field(default=lambda _words: True, compare=False, repr=False)

    def fits(self, words: Words) -> bool:
        """Whether it selects the cell that has these words."""
        return self.test(words)

    def speaks_of(self, name: str, values: Iterable[str], unless: Iterable[str] = ()) -> bool:
        """Whether a word of it names the field ``name``, or fits one of ``values`` and none of ``unless``."""
        found, others = list(values), list(unless)
        return any(
            word.field == name
            or (
                not word.field
                and bool(fnmatch.filter(found, word.pattern))
                and not fnmatch.filter(others, word.pattern)
            )
            for word in self.words
        )

    def check(self, cells: Iterable[Words]) -> None:
        """Refuse words that match nothing at all: they are misspelt.

        Raises:
            UsageError: names them and near matches.
        """
        everything = list(cells)
        known = sorted({word for cell in everything for name in FIELDS for word in cell.get(name, ())})
        for word in self.words:
            if not any(word.fits(cell) for cell in everything):
                meant = near(word.pattern, known)
                raise UsageError(
                    f"There is no {word.field or 'device, tag, target, engine, program or scheme'} "
                    f"called {word.pattern!r}.",
                    did_you_mean(meant),
                    "./inv devices.list, ./inv targets and ./inv models list the names",
                    meant,
                )


def parse(text: str) -> Expression:
    """Read an expression; blank text selects everything.

    Raises:
        UsageError: it cannot be read; names the position, and what could follow there.
    """
    if not text.strip():
        return Expression()
    reader = _Reader(text)
    test = reader.expression(0)
    if reader.ahead:
        raise reader.unexpected("& or | or the end")
    return Expression(text.strip(), tuple(reader.words), test)


def quoted(name: str, value: str) -> str:
    """A word that fits ``value`` in the field ``name`` and nothing else."""
    return f"{name}:" + re.sub(r"([*?[])", r"[\1]", value)


class _Reader:
    """Recursive descent; `ahead` is the next token, empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self.words: list[Word] = []
        self.ahead, self._at = "", 0
        self._next()

    def _split(self) -> Iterator[tuple[str, int]]:
        end = len(self._text.rstrip())
        at = 0
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:  # every character is a sign, part of a word, or a blank
                raise AssertionError(self._text)
            name = found.lastgroup or ""
            yield found[name], found.start(name)
            at = found.end()

    def _next(self) -> None:
        self.ahead, self._at = next(self._tokens, ("", len(self._text.rstrip())))

    def unexpected(self, expected: str) -> UsageError:
        """The error for the current token."""
        here = f"{self.ahead!r}" if self.ahead else "the end"
        return UsageError(
            f"The expression {self._text!r} cannot be read.",
            f"at character {self._at + 1} there is {here} where {expected} should be",
            _HELP,
            [self.ahead],
        )

    def expression(self, depth: int) -> Callable[[Words], bool]:
        """Terms between ``|``."""
        terms = [self._term(depth)]
        while self.ahead == "|":
            self._next()
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else lambda words: any(term(words) for term in terms)

    def _term(self, depth: int) -> Callable[[Words], bool]:
        factors = [self._factor(depth)]
        while self.ahead == "&":
            self._next()
            factors.append(self._factor(depth))
        return factors[0] if len(factors) == 1 else lambda words: all(factor(words) for factor in factors)

    def _factor(self, depth: int) -> Callable[[Words], bool]:
        if depth > _DEEPEST:
            raise UsageError(f"The expression is nested deeper than {_DEEPEST} levels.", "", _HELP)
        if self.ahead == "!":
            self._next()
            inner = self._factor(depth + 1)
            return lambda words: not inner(words)
        if self.ahead == "(":
            self._next()
            inside = self.expression(depth + 1)
            if self.ahead != ")":
                raise self.unexpected("& or | or )")
            self._next()
            return inside
        if not self.ahead or self.ahead in "&|)":
            raise self.unexpected("a word, ! or (")
        word = self._word()
        self._next()
        return word.fits

    def _word(self) -> Word:
        name, colon, pattern = self.ahead.partition(":")
        if colon and name not in FIELDS:
            raise UsageError(
                f"There is no field {name!r}.",
                f"{suggestion(name, FIELDS)}the fields are {', '.join(FIELDS)}",
                _HELP,
                near(name, FIELDS, 1),
            )
        if colon and not pattern:
            raise self.unexpected(f"{name}:NAME")
        word = Word(pattern, name) if colon else Word(self.ahead)
        self.words.append(word)
        return word
