"""The `task` decorator: Invoke's, with Slipway's errors caught once for all tasks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import invoke

from core import console, environment
from core.errors import INTERRUPTED, SlipwayError, UsageError

JSON = "print JSON for machines instead of a table"
"""What ``--help`` says of ``--json``."""


def task(
    *,
    help: dict[str, str],  # noqa: A002 - Invoke's name
    positional: Iterable[str] | None = None,
    **options: Any,
) -> Callable[[Callable[..., None]], Any]:
    """Declare a task. A `SlipwayError` in it becomes three lines on stderr and its class's exit code.

    With ``--json`` the error is printed as JSON on stdout too, so that a machine never parses prose; unless the task
    printed its own document already, in which what failed stands: nobody reads two.
    """

    def declare(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            printed = console.documents[0]
            try:
                environment.enter()
                function(*args, **kwargs)
            except SlipwayError as error:
                if kwargs.get("json") and console.documents[0] == printed:
                    console.print_json(error.to_json())
                raise invoke.exceptions.Exit(str(error), error.exit_code) from None
            except KeyboardInterrupt:
                raise invoke.exceptions.Exit("Interrupted.", INTERRUPTED) from None
            except BrokenPipeError:
                # The reader of our output went away (./inv targets | head): that is no failure of ours.
                sys.stderr.close()
                raise SystemExit(0) from None

        return invoke.tasks.task(help=help, positional=positional, **options)(guarded)

    return declare


def setting(context: Any, name: str, given: Any = None) -> Any:
    """A value from the command line or, when not given there, from ``invoke.yaml`` / ``INVOKE_SLIPWAY_<NAME>``."""
    if given is not None and given != "":
        return given
    return context.config.slipway.get(name)


def number(name: str, value: Any, minimum: float, default: float | None = None, *, whole: bool = True) -> Any:
    """Check a number from the command line or the environment (where it is text); ``default`` when none was given.

    Raises:
        UsageError: not a number, or below ``minimum``.
    """
    if value in (None, "") and default is not None:
        return default
    try:
        parsed = int(value) if whole else float(value)
    except (TypeError, ValueError):
        parsed = None
    if parsed is None or parsed < minimum:
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"--{name} {value!r} is not {kind} of at least {minimum:g}.", "", f"--{name} {minimum:g}")
    return parsed
