"""Which cells a matrix has: devices × their targets × engines × programs, and why the others are impossible.

Expressions select cells: ``linux-arm64 & (mobilenet* | mlp-qs8) & !phone``.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from core.console.units import counted
from core.errors import ConfigError, NotSupportedError, UsageError, did_you_mean, near, nearest, suggestion
from core.formats.program import ENGINES
from deploy.devices.inventory import HOST, Device
from deploy.run.settings import DEFAULT as DEFAULT_SETTINGS
from deploy.run.settings import LEAN, Settings, why_no_limits
from toolchains.targets import Target, get_target, host_target

FIELDS = ("device", "cpu", "tag", "fixture", "target", "engine", "program", "model", "scheme")
"""The fields in which a cell has words."""

Words = Mapping[str, tuple[str, ...]]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_TOKEN = re.compile(r"\s*(?:[&|!()]|[^\s&|!()]+)")
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
    source: str = "True"
    """The same in Python, over what each word says: ``fit[0] and not fit[1]``."""

    def fits(self, words: Words) -> bool:
        """Whether it selects the cell that has these words."""
        fit = [word.fits(words) for word in self.words]
        return bool(eval(self.source, {"__builtins__": {}}, {"fit": fit}))  # noqa: S307 - `parse` wrote it

    def speaks_of(self, name: str, values: Iterable[str], unless: Iterable[str] = ()) -> bool:
        """Whether a word of it names the field ``name``, or fits one of ``values`` and none of ``unless``."""
        found, others = list(values), list(unless)
        return any(
            word.field == name
            or (not word.field and fnmatch.filter(found, word.pattern) and not fnmatch.filter(others, word.pattern))
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
    parts = [(found[0].strip(), found.end() - len(found[0].strip())) for found in _TOKEN.finditer(text.rstrip())]
    words: list[Word] = []
    source, operand, depth, negations = "", True, 0, 0
    for part, at in (*parts, ("", len(text.rstrip()))) if parts else ():
        expected = "a word, ! or (" if operand else f"& or | or {')' if depth else 'the end'}"
        ends = ("&", "|", ")" if depth else "")
        if part in ("", "&", "|", ")") if operand else part not in ends:
            raise _unexpected(text, part, at, expected)
        negations = (negations + 1) * (part == "!")
        depth += (part == "(") - (part == ")")
        if depth + negations > _DEEPEST:
            raise UsageError(f"The expression is nested deeper than {_DEEPEST} levels.", "", _HELP)
        if operand and part not in ("!", "("):
            source += f"fit[{len(words)}]"
            words.append(_word(text, part, at))
            operand = False
        else:
            source += _PYTHON[part]
            operand = part != ")"
    return Expression(text.strip(), tuple(words), source or "True")


_PYTHON = {"&": " and ", "|": " or ", "!": " not ", "(": "(", ")": ")", "": ""}
"""The signs in Python's words, which have the same order of precedence."""


def _unexpected(text: str, token: str, at: int, expected: str) -> UsageError:
    return UsageError(
        f"The expression {text!r} cannot be read.",
        f"at character {at + 1} there is {repr(token) if token else 'the end'} where {expected} should be",
        _HELP,
        [token],
    )


def _word(text: str, token: str, at: int) -> Word:
    name, colon, pattern = token.partition(":")
    if not colon:
        return Word(token)
    if name not in FIELDS:
        cause = f"{suggestion(name, FIELDS)}the fields are {', '.join(FIELDS)}"
        raise UsageError(f"There is no field {name!r}.", cause, _HELP, near(name, FIELDS, 1))
    if not pattern:
        raise _unexpected(text, token, at, f"{name}:NAME")
    return Word(pattern, name)


def exactly(name: str, value: str) -> str:
    """A word that fits ``value`` in the field ``name`` and nothing else."""
    return f"{name}:" + re.sub(r"([*?[])", r"[\1]", value)


SMALL = ("linear", "conv", "matmul", "mlp")
"""The default models: each exports and runs in seconds, even emulated."""
SCHEMES = ("fp32", "qs8")
"""The default schemes."""
DEFAULT = "default"
"""Stands for the engine that a target has by default."""


@dataclass(frozen=True)
class Exportable:
    """A program that can be exported."""

    name: str
    model: str
    scheme: str
    format: str
    source: str = ""
    """The export's name of the model, if it is not ``model``: a file of the user's own."""
    also: str = ""
    """Another name of the scheme, for expressions: Arm's."""
    variant: str = ""
    """Other partitioners or options (`models.request.options.chosen`); empty: the usual ones."""
    why_not: str = ""
    """Why it cannot be exported; empty if it can."""
    text: bool = False
    """Whether it is a language model: it reads a text, and is measured by how fast it reads and writes."""


@dataclass(frozen=True)
class Cell:
    """One run to make."""

    device: Device
    target: str
    engine: str
    program: Exportable
    why_not: str = ""
    """Why it is impossible; empty if it is possible."""

    @property
    def key(self) -> str:
        """Its name, unique in a matrix: ``pi/linux-arm64/lean/mlp-qs8``."""
        return f"{self.device.name}/{self.target}/{self.engine}/{self.program.name}"

    @property
    def words(self) -> Words:
        """Its words for expressions."""
        device, program = self.device, self.program
        return {
            "device": (device.name,), "cpu": (device.cpu,) if device.cpu else (), "tag": device.tags,
            "fixture": device.fixtures, "target": (self.target,),
            "engine": (self.engine,), "program": (program.name,), "model": (program.model,),
            "scheme": (program.scheme, program.also) if program.also else (program.scheme,),
        }  # fmt: skip


@dataclass(frozen=True)
class Selection:
    """The user's selection; an empty part leaves the choice to the expression, then to the defaults."""

    only: str = ""
    """An expression."""
    devices: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    run: Settings = DEFAULT_SETTINGS
    """Of every deploy; not every engine can do without kernels (`Settings.cpu_features`)."""


def parse_shard(text: str) -> tuple[int, int]:
    """``2/5`` as (2, 5); nothing is all of it, (1, 1).

    Raises:
        UsageError: it is not a part of a whole.
    """
    found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text or "1/1")
    number, count = map(int, found.groups()) if found else (1, 0)
    if number > count:
        raise UsageError(f"--shard {text!r} is not of the form PART/PARTS.", "", "--shard 2/5: part two of five")
    return number, count


@dataclass(frozen=True)
class Plan:
    """The cells that can be filled, and those that cannot."""

    cells: tuple[Cell, ...]
    impossible: tuple[Cell, ...]

    def part(self, shard: str) -> Plan:
        """The cells of one part: neighbours, so that it boots few devices and builds few bundles.

        Raises:
            UsageError: it is not a part of a whole, or there are more parts than cells.
        """
        number, count = parse_shard(shard)
        total = len(self.cells)
        if shard and count > total:
            raise UsageError(f"--shard {shard}: there are {total} cells.", "", f"--shard 1/{max(total, 1)}")
        return replace(self, cells=self.cells[(number - 1) * total // count : number * total // count])

    @property
    def bundles(self) -> tuple[tuple[str, str], ...]:
        """Target and engine of every bundle to build, each once."""
        return tuple(dict.fromkeys((cell.target, cell.engine) for cell in self.cells))

    @property
    def programs(self) -> tuple[Exportable, ...]:
        """Every program to export, each once."""
        return tuple(dict.fromkeys(cell.program for cell in self.cells))

    def reasons(self) -> dict[str, list[str]]:
        """The impossible cells by the reason."""
        return grouped((cell.why_not, cell.key) for cell in self.impossible)


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """The values of each key, in their order."""
    found: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


_NAMED = 5
"""Cells that `named` names; it counts the others."""


def named(keys: Sequence[str]) -> str:
    """``2 cells: pi/linux-arm64/lean/mlp-qs8, pi/linux-arm64/lean/conv-qs8``."""
    rest = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return f"{counted(len(keys), 'cell')}: {', '.join(keys[:_NAMED])}{rest}"


def plan(devices: Mapping[str, Device], catalogue: Sequence[Exportable], selection: Selection) -> Plan:
    """Every cell of ``selection``, from the inventory and from every program that can be exported.

    Raises:
        UsageError: a name or word that matches nothing, or a selection without any cell.
        NotSupportedError: all selected cells are impossible; says why.
    """
    only = parse(selection.only)
    candidates = list(_candidates(devices, catalogue, selection, only))
    only.check(_universe(devices, catalogue))
    chosen = [cell for cell in candidates if only.fits(cell.words)]
    found = Plan(tuple(cell for cell in chosen if not cell.why_not), tuple(cell for cell in chosen if cell.why_not))
    if found.cells:
        return found
    if found.impossible:
        raise NotSupportedError(
            "The selected cells cannot run.",
            "; ".join(f"{why} ({named(keys)})" for why, keys in found.reasons().items()),
            "./inv targets, ./inv models",
        )
    raise UsageError(
        "No cell of the matrix is selected.",
        f"{len(candidates)} were looked at, and {only.text!r} fits none" if only.text else "",
        "./inv matrix --list --only 'linux-arm64 & mlp*'",
    )


def _candidates(
    devices: Mapping[str, Device], catalogue: Sequence[Exportable], selection: Selection, only: Expression
) -> Iterator[Cell]:
    models = tuple(dict.fromkeys(program.model for program in catalogue))
    schemes = tuple(dict.fromkeys(program.scheme for program in catalogue))
    names = [program.name for program in catalogue]
    if selection.models:
        models = _pick("model", selection.models, models)
    elif not (only.speaks_of("model", models) or only.speaks_of("program", names)):
        models = tuple(model for model in models if model in SMALL) or models
    languages = {program.model: program.scheme for program in reversed(catalogue) if program.text}
    usual: dict[str, str] = {}
    if selection.schemes:
        schemes = _pick("scheme", selection.schemes, schemes)
    elif not (
        only.speaks_of("scheme", [*schemes, *(p.also for p in catalogue if p.also)])
        or only.speaks_of("program", names, unless=[p.model for p in catalogue])
    ):
        schemes = tuple(scheme for scheme in schemes if scheme in SCHEMES)
        usual = languages
    known = grouped(((program.model, program.scheme, program.format), program) for program in catalogue)
    for device in (devices[name] for name in _pick("device", selection.devices or ("*",), devices)):
        # What an expression says of tags or targets does not ask for such a device; its name or its CPU does.
        named_it = only.speaks_of("device", [device.name]) or only.speaks_of("cpu", filter(None, [device.cpu]))
        if device.on_request and not selection.devices and not named_it:
            continue
        for target in _targets(device):
            at = device.model_copy(update={"target": target.name})
            for model in models:
                for scheme in (usual[model],) if model in usual else schemes:
                    for engine, why_engine in _engines(target, selection, only, model in languages):
                        kind = ENGINES.get(engine, "pte")
                        found = known.get((model, scheme, kind), [])
                        why = why_engine or ("" if found else _no_scheme(model, scheme, kind, catalogue))
                        for program in found or [Exportable(f"{model}-{scheme}", model, scheme, kind)]:
                            yield Cell(at, target.name, engine, program, why or program.why_not)


def _targets(device: Device) -> list[Target]:
    names = dict.fromkeys(host_target().name if name == HOST else name for name in (device.target, *device.targets))
    return [get_target(name) for name in names]


def _engines(target: Target, selection: Selection, only: Expression, text: bool) -> list[tuple[str, str]]:
    """The engines to try on a target, each with the reason why it does not work there (empty: it does)."""
    requested = selection.engines or (("all",) if only.speaks_of("engine", ENGINES) else (DEFAULT,))
    names: dict[str, None] = {}
    limits = selection.run.cpu_features
    for word in requested:
        if word == DEFAULT and text:
            names[LEAN] = None
        elif word == DEFAULT:
            usual = [name for name in target.working_engines if not why_no_limits(name, limits)]
            names |= dict.fromkeys(usual[:1] or target.working_engines[:1] or (DEFAULT,))
        else:
            names |= dict.fromkeys(ENGINES if word == "all" else _pick("engine", (word,), ENGINES))
    never = f"language models run on the engine {LEAN}"
    return [
        (name, never if text and name != LEAN else _no_engine(target, name) or why_no_limits(name, limits))
        for name in names
    ]


def _no_engine(target: Target, engine: str) -> str:
    if engine in target.working_engines:
        return ""
    if engine == DEFAULT:
        if target.embedded_engines:
            return f"no engine runs on {target.name}: {target.embedded_engines[0]} is in libslipway alone, for apps"
        needs = "; ".join(f"{name} needs {text}" for name, text in target.engines.items())
        return f"no engine runs on {target.name} yet" + (f": {needs}" if needs else "")
    if engine in target.embedded_engines:
        return f"{engine} on {target.name} is in libslipway alone, for apps"
    return f"{engine} on {target.name} needs {target.needs(engine)}"


def _no_scheme(model: str, scheme: str, kind: str, catalogue: Sequence[Exportable]) -> str:
    has = [program.scheme for program in catalogue if (program.model, program.format) == (model, kind)]
    return f"{model} has no scheme {scheme} as .{kind}: " + (f"it has {', '.join(has)}" if has else "it has none")


def _pick(kind: str, patterns: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """The names that fit any pattern, in the names' order.

    Raises:
        ConfigError: a pattern does not fit any.
    """
    known = list(names)
    for pattern in patterns:
        if not fnmatch.filter(known, pattern) and pattern != "all":
            raise ConfigError(
                f"There is no {kind} {pattern!r}.",
                f"{suggestion(pattern, known)}there are {', '.join(known)}",
                f"--{kind}s '{nearest(pattern, known) or known[0]}'",
                [pattern],
            )
    return tuple(name for name in known if any(p == "all" or fnmatch.fnmatchcase(name, p) for p in patterns))


def _universe(devices: Mapping[str, Device], catalogue: Sequence[Exportable]) -> Iterator[Words]:
    """All possible words, independent of the selection: a word that does not match here is misspelt."""
    for device in devices.values():
        for target in _targets(device):
            for engine in ENGINES:
                yield Cell(device, target.name, engine, catalogue[0]).words
    for program in catalogue:
        names = (program.scheme, program.also) if program.also else (program.scheme,)
        yield {"program": (program.name,), "model": (program.model,), "scheme": names}
