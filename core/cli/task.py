"""The `task` decorator: Invoke's, with Slipway's errors caught once for all tasks."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import invoke

from core import console, environment
from core.cli import settings
from core.cli.unforeseen import interrupted, understood
from core.errors import INTERRUPTED, ConfigError, UsageError
from core.processes.interrupts import from_ctrl_c

_MOST = 10**9
"""The largest accepted number of runs, threads, seconds or MiB; it also excludes ``inf`` and ``nan``."""
JSON = "print JSON for machines instead of a table"
"""The ``--help`` text of ``--json``."""


class _Task(invoke.Task):  # type: ignore[misc]  # Invoke carries no types
    """Invoke's own, which keeps its help texts: Invoke's takes them away from the second caller that asks for them."""

    groups: Mapping[str, Sequence[str]] = {}
    """Headings of ``--help``, each with the options below it; the others come last."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Any]:
        kept: dict[str, str] = dict(self.help)  # type: ignore[has-type]  # Invoke sets it untyped
        try:
            found: list[Any] = super().get_arguments(ignore_unknown_help=ignore_unknown_help)
        finally:
            self.help = kept
        return found


def task(
    *,
    help: dict[str, str],  # noqa: A002 - Invoke's name
    positional: Iterable[str] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    resumes: str = "",
    **options: Any,
) -> Callable[[Callable[..., None]], Any]:
    """Declare a task. A `SlipwayError` in it becomes three lines on stderr and its class's exit code.

    So does any other exception: `core.cli.unforeseen` names the cause.

    With ``--json`` the error is also printed as JSON on stdout, so that a machine never parses prose. If the task has
    already printed its own document, which names what failed, there is no second one.

    ``groups`` has headings for ``--help``, each with the names of options. ``resumes`` is the next step after Ctrl-C.
    """

    def declare(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            printed = console.documents[0]
            try:
                environment.enter()
                _check(args, kwargs)
                function(*args, **kwargs)
            except (invoke.exceptions.Exit, invoke.exceptions.UnexpectedExit):
                raise
            except BrokenPipeError:
                # The reader of our output closed it (./inv targets | head): that is not an error.
                sys.stderr.close()
                raise SystemExit(0) from None
            except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  # all become a SlipwayError, unforeseen ones too
                if from_ctrl_c(error):
                    interrupted()
                    hint = f"\nTry: {resumes}" if resumes else ""
                    raise invoke.exceptions.Exit(f"Interrupted.{hint}", INTERRUPTED) from None
                failed = understood(error)
                if kwargs.get("json") and console.documents[0] == printed:
                    console.print_json(failed.to_json())
                raise invoke.exceptions.Exit(str(failed), failed.exit_code) from None

        declared = invoke.tasks.task(help=help, positional=positional, klass=_Task, **options)(guarded)
        declared.groups = groups or {}
        return declared

    return declare


def _check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments and variables that no task can use.

    Raises:
        UsageError: ``--dry``, or a word that is not UTF-8. ConfigError: such a variable.
    """
    if args and isinstance(args[0], invoke.Context) and args[0].config.run.dry:
        raise UsageError(
            "--dry is refused: the task would do all of its work.",
            "Invoke's --dry only holds back commands that go through Invoke's shell, and Slipway uses none",
            "the same without --dry; ./inv TASK --help says what a task does",
        )
    for name, value in kwargs.items():
        if isinstance(value, str) and _not_utf8(value):
            raise UsageError(f"--{name.replace('_', '-')} is not UTF-8: {value!r}.", "", "rename the file")
    for name in ("HOME", "TMPDIR", *(name for name in os.environ if name.startswith("SLIPWAY_"))):
        if _not_utf8(os.environ.get(name, "")):
            raise ConfigError(f"The variable {name} is not UTF-8.", "", f"set {name} to a path that is")


def _not_utf8(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def setting(context: Any, name: str, given: Any = None) -> Any:
    """A value from the command line or, when not given there, from ``invoke.yaml`` / ``INVOKE_SLIPWAY_<NAME>``."""
    if given is not None and given != "":
        return given
    return settings.agreed(name, context.config.slipway.get(name))


class Words(dict[str, Any]):
    """The arguments of a task, each from the command line or, when not given there, from the configuration.

    Args:
        given: the task's ``locals()``.
        own: arguments that the configuration does not set, although it has values of the same name.
    """

    def __init__(self, context: Any, given: Mapping[str, Any], own: Iterable[str] = ()) -> None:
        self.given = {name: value for name, value in given.items() if name != "c"}
        """Only what the command line itself gives."""
        config = context.config.slipway
        super().__init__(
            {
                name: config[name] if value == "" and name in config and name not in own else value
                for name, value in self.given.items()
            }
        )

    def __getitem__(self, name: str) -> Any:
        """The value; a setting that is code is agreed to when it is used, not before."""
        found = super().__getitem__(name)
        return found if self.given.get(name) else settings.agreed(name, found)

    def get(self, name: str, default: Any = None) -> Any:
        """The same, or ``default``."""
        return self[name] if name in self else default  # noqa: SIM401 - that would be this method


def number(
    name: str, value: Any, minimum: float, default: float | None = None, *, whole: bool = True, most: int = _MOST
) -> Any:
    """Check a number from the command line or the environment (where it is text); ``default`` when none was given.

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
        raise UsageError(
            f"--{name} {value!r} is not {kind} of at least {minimum:g}{above}.", "", f"--{name} {minimum:g}"
        )
    return parsed
