"""What a command was told: one frozen object, made once of the command line and the settings, and passed whole.

A class is all that the command line knows of a command: its docstring is the help, and its options have their meaning,
default, heading, and the names that they take. Its own checks are in `Request._check`. No dataclass, which would take
milliseconds of every start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn

from core.cli import settings as agreement
from core.errors import UsageError

Names = Callable[[], Iterable[str]]
_MOST = 10**9
"""The largest accepted number of runs, threads, seconds or MiB; it also excludes ``inf`` and ``nan``."""


class Option(NamedTuple):
    """An option, of which a class that has it makes ``--its-name``."""

    meaning: str
    """For ``--help``."""
    default: str | bool = ""
    group: str = ""
    """The heading in ``--help``."""
    names: Names | None = None
    """What the Tab key offers; in lists with commas, for the part after the last comma."""
    setting: bool = False
    """Whether ``invoke.yaml`` and ``INVOKE_SLIPWAY_<NAME>`` have it, too."""
    typed: bool = True
    """Whether the command line has it; else it is only a setting."""
    positional: bool = False
    read: Callable[[str, Any], Any] | None = None
    """Makes the value, of the option's name and what was typed."""


def option(meaning: str, default: str | bool = "", **others: Any) -> Any:
    """Declare an option of a `Request`; see `Option`."""
    return Option(meaning, default, **others)


def whole(meaning: str, least: float, usual: int, **others: Any) -> Any:
    """Declare an option that takes a whole number."""
    typed = others.get("typed", True)
    return Option(meaning, read=lambda name, value: number(name, value, least, usual, typed=typed), **others)


def real(meaning: str, least: float, usual: float, **others: Any) -> Any:
    """Declare an option that takes any number."""
    return Option(meaning, read=lambda name, value: number(name, value, least, usual, whole=False), **others)


def setting(meaning: str) -> Any:
    """Declare what only ``invoke.yaml`` and ``INVOKE_SLIPWAY_<NAME>`` have."""
    return Option(meaning, setting=True, typed=False)


def one_of(*names: str) -> Names:
    """For `Option.names`."""
    return lambda: names


class Request:
    """A command's options with their values.

    Args:
        settings: what ``invoke.yaml`` and the environment have, for options that were not typed.
        typed: the options of the command line.

    Raises:
        UsageError: a senseless value, options that do not go together, or a setting that is code and not agreed to.
    """

    fields: ClassVar[Mapping[str, Option]] = {}
    letters: ClassVar[bool] = True
    """Whether options have short forms; where there are many, Invoke runs out of sensible letters."""
    resumes: ClassVar[str] = ""
    """The next step after Ctrl-C."""
    typed: frozenset[str]
    """Names of the options that the command line itself sets."""

    def __init_subclass__(cls) -> None:
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Option)}
        inherited: dict[str, Option] = {}
        for base in cls.__bases__:
            inherited |= getattr(base, "fields", {})
        cls.fields = own | {name: each for name, each in inherited.items() if name not in own}

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **typed: Any) -> None:
        if unknown := typed.keys() - self.fields.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(unknown)}")
        values = {"typed": frozenset(name for name, value in typed.items() if value not in ("", False))}
        for name, each in self.fields.items():
            value = typed.get(name, each.default)
            if each.setting and value == "" and settings:
                value = agreement.agreed(name, settings.get(name, ""))
            values[name] = each.read(name.replace("_", "-"), value) if each.read else value
        vars(self).update(values)
        self._check()

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def _check(self) -> None:
        """Refuse options that do not go together."""

    @classmethod
    def groups(cls) -> dict[str, list[str]]:
        """The headings of ``--help``, each with the options below it, as they are typed."""
        found: dict[str, list[str]] = {}
        for name, each in cls.typeable().items():
            found.setdefault(each.group, []).append(name.replace("_", "-"))
        return {} if "" in found else found

    @classmethod
    def typeable(cls) -> dict[str, Option]:
        """What the command line has."""
        return {name: each for name, each in cls.fields.items() if each.typed}

    @classmethod
    def only_settings(cls) -> dict[str, str]:
        """The variables of what the command line has not, with their meaning."""
        return {agreement.VARIABLE + name.upper(): one.meaning for name, one in cls.fields.items() if not one.typed}


class Reported(Request):
    """A command that prints a table, or JSON."""

    json: bool = option("print JSON for machines instead of a table", False, group="What is printed")


def words(value: str | Iterable[str]) -> tuple[str, ...]:
    """``"a, b"`` or ``["a", "b"]`` as ``("a", "b")``."""
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(part.strip() for part in parts if part.strip())


def number(
    name: str,
    value: Any,
    minimum: float,
    default: float | None = None,
    *,
    whole: bool = True,
    most: int = _MOST,
    typed: bool = True,
) -> Any:
    """Check a number from the command line or the environment (where it is text); ``default`` when none was given.

    Args:
        typed: whether it is an option; else it is only a `setting`.

    Raises:
        UsageError: not a number, below ``minimum``, or above ``most``.
    """
    if value in (None, "") and default is not None:
        return default
    try:
        parsed = int(value) if whole else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = None
    if parsed is None or not minimum <= parsed <= most:
        kind = "a whole number" if whole else "a number"
        above = f" and at most {most}" if most < _MOST else ""
        shown, then = (f"--{name}", " ") if typed else (f"INVOKE_SLIPWAY_{name.upper()}", "=")
        raise UsageError(
            f"{shown} {value!r} is not {kind} of at least {minimum:g}{above}.", "", f"{shown}{then}{minimum:g}"
        )
    return parsed
