"""What a command was told: one frozen object, made once of the command line and the settings, and passed whole.

A class is all that the command line knows of a command: its docstring is the help, and its options have their meaning,
default, heading, and the names that they take. Its own checks are in `Request._check`. No dataclass, which would take
milliseconds of every start.

Settings are ``slipway`` in ``invoke.yaml``, and the variables ``INVOKE_SLIPWAY_...``: only names that exist. The
checkout's file, the user's own (``~/.invoke.yaml``), the environment and the command line are the user's word. The
current folder's file may come from anyone: only what is below ``slipway`` counts there, none of Invoke's settings, and
a value that is Python code is used once the user agreed to that file, as it is now.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

from core.errors import ConfigError, UsageError, nearest
from core.paths import INSTALLED

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
                value = agreed(name, settings.get(name, ""))
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
        return {VARIABLE + name.upper(): one.meaning for name, one in cls.fields.items() if not one.typed}


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


VARIABLE = "INVOKE_SLIPWAY_"
FILES = ("invoke.yaml", "invoke.yml")
_ALLOWED = "allowed.json"
"""In the user's configuration folder: each file that the user agreed to, and its SHA-256 then."""
_code: dict[str, tuple[str, Path]] = {}
"""Settings of the current folder that are Python code: the value, and the file that has it."""


def check_settings(found: Any, known: Iterable[str], environ: Mapping[str, str]) -> None:
    """Refuse settings that nothing reads.

    Args:
        found: what all files and variables have under ``slipway``.
        known: the names of settings.

    Raises:
        ConfigError: a name that is unknown, with the nearest that is.
    """
    names = list(known)
    if not isinstance(found, Mapping):
        raise ConfigError(
            "slipway in invoke.yaml is not a table of settings.", f"it is {found!r}",
            "write slipway: with lines such as '  device: pi' below",
        )  # fmt: skip
    for name in found:
        if name not in names:
            raise _unknown(f"the setting {str(name)!r}", "", str(name), names, "in invoke.yaml below slipway:")
    for variable in environ:
        name = variable.removeprefix(VARIABLE).lower()
        if variable.startswith(VARIABLE) and name not in names:
            raise _unknown(f"the variable {variable}", VARIABLE, name, names, "in the environment")


def _unknown(what: str, prefix: str, name: str, names: list[str], where: str) -> ConfigError:
    def shown(one: str) -> str:
        return prefix + one.upper() if prefix else one

    meant = nearest(name, names, 0.6)
    return ConfigError(
        f"Slipway does not know {what}.",
        f"did you mean {shown(meant)}?" if meant else f"the settings are {', '.join(map(shown, names))}",
        f"rename it {where}" if meant else f"remove it {where}",
        [name],
    )


def settings_here(root: Path) -> Path | None:
    """The current folder, if it has an ``invoke.yaml`` of its own beside the checkout's."""
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return None
    return None if here == root or _file(here) is None else here


def _file(folder: Path) -> Path | None:
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def settings_of(folder: Path, found: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """What counts of ``found``, the settings that ``folder`` has; a folder in the checkout is as the checkout.

    Values that are code are kept in mind for `agreed`.
    """
    file = _file(folder)
    if file is None or (not INSTALLED and folder.is_relative_to(root)):
        return dict(found)
    table = found.get("slipway")
    if isinstance(table, Mapping):
        values = {name: value for name, value in table.items() if isinstance(value, str) and ".py" in value}
        _code.update({name: (value, file) for name, value in values.items()})
    return {"slipway": table} if "slipway" in found else {}


def agreed(name: str, value: Any) -> Any:
    """``value`` of the setting ``name``, if the user agreed to run it, or need not.

    Raises:
        UsageError: it is code that the current folder's file names, the user did not agree to that file yet, and there
            is no terminal, or the answer was no.
    """
    text, file = _code.get(name, ("", None))
    if file is None or value != text:
        return value
    import platformdirs

    from core.files import keep_text, locked, sha256_file

    kept = Path(platformdirs.user_config_dir("slipway", appauthor=False)) / _ALLOWED
    digest = sha256_file(file)
    with locked("allowed"):
        allowed = _allowed(kept)
        if allowed.get(str(file)) != digest:
            _ask(name, text, file)
            keep_text(kept, json.dumps({**allowed, str(file): digest}, indent=1) + "\n", 0o600)
    return value


def _allowed(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _ask(name: str, value: str, file: Path) -> None:
    what = f"{file} sets {name}: {value}, which is Python code and would run with your rights."
    if sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"{what}\nRun what this file names, until the file changes? (yes/no) ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() == "yes":
            return
    raise UsageError(
        what,
        "a folder's settings run no code before you agreed to them once, in a terminal",
        f"if you trust it: the same command with --{name} {shlex.quote(value)}, or export {VARIABLE}{name.upper()}",
        [value],
    )
