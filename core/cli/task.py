"""The `task` decorator: Invoke's, with Slipway's errors caught once for all tasks."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import invoke

from core import console
from core.cli.request import Request
from core.errors import INTERRUPTED, ConfigError, DefectError, HostError, SlipwayError, UsageError
from core.processes.interrupts import from_ctrl_c


def _kept(error: BaseException) -> str:
    """Path of the file with the traceback; empty if it cannot be written."""
    from core.paths import cache_dir

    text = "".join(traceback.format_exception(error))
    name = f"defect-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    folders: list[Callable[[], Path]] = [lambda: cache_dir("logs"), lambda: Path(tempfile.mkdtemp(prefix="slipway-"))]
    for folder in folders:
        with contextlib.suppress(OSError, SlipwayError):
            file = folder() / name
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
            return str(file)
    return ""


def understood(error: BaseException) -> SlipwayError:
    """``error`` as one of Slipway's own; a `DefectError` if neither the machine nor the user caused it."""
    if isinstance(error, SlipwayError):
        return error
    if isinstance(error, OSError):
        from core.files import of_the_machine

        if found := of_the_machine(error):
            return found
    if isinstance(error, MemoryError):
        return HostError(
            "This machine has too little free memory.", "", "end other programs, then the same command again"
        )
    file = _kept(error)
    traceback_note = f"the traceback is in {file}" if file else "its traceback could not be written to a file"
    last = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return DefectError(f"This is a defect of Slipway: {last}", traceback_note, "report it with that file")


def interrupted() -> None:
    """After a Ctrl-C: nothing is printed of objects that it left half made, and that cannot end, such as paramiko's."""
    sys.unraisablehook = lambda _unraisable: None


AnyRequest = TypeVar("AnyRequest", bound=Request)


class _Task(invoke.Task):  # type: ignore[misc]  # Invoke carries no types
    """Invoke's own, with the options of a request."""

    request: type[Request]

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Any]:
        # Invoke's takes the help texts away from the second caller that asks for them.
        self.help = {name: option.meaning for name, option in self.request.typeable().items()}
        found: list[Any] = super().get_arguments(ignore_unknown_help)
        for argument in found:
            argument.offered = self.request.fields[argument.attr_name or argument.name].names
        return found


def task(request: type[AnyRequest], name: str = "", **others: Any) -> Callable[[Callable[[AnyRequest], None]], Any]:
    """Declare a task, with the help and the options of ``request``.

    A `SlipwayError` in it, or what `understood` makes of another exception, becomes three lines on stderr and its
    class's exit code. With ``--json`` it is also printed as JSON, unless the task has printed its own document already.
    """

    def declare(function: Callable[[AnyRequest], None]) -> Any:
        def guarded(context: Any, **typed: Any) -> None:
            printed = console.documents[0]
            try:
                from core import environment

                environment.enter()
                _check(context, typed)
                function(request(context.config.get("slipway", {}), **typed))
            except (invoke.exceptions.Exit, invoke.exceptions.UnexpectedExit):
                raise
            except BrokenPipeError:
                # The reader of our output closed it (./inv targets | head): that is not an error.
                sys.stderr.close()
                raise SystemExit(0) from None
            except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  # all become a SlipwayError, unforeseen ones too
                if from_ctrl_c(error):
                    interrupted()
                    hint = f"\nTry: {request.resumes}" if request.resumes else ""
                    raise invoke.exceptions.Exit(f"Interrupted.{hint}", INTERRUPTED) from None
                failed = understood(error)
                if typed.get("json") and console.documents[0] == printed:
                    console.print_json(failed.to_json())
                raise invoke.exceptions.Exit(str(failed), failed.exit_code) from None

        guarded.__doc__, guarded.__name__, guarded.__module__ = request.__doc__, function.__name__, function.__module__
        guarded.__signature__ = _signature(request)  # type: ignore[attr-defined]
        positional = [name for name, option in request.typeable().items() if option.positional]
        declared = _Task(guarded, name or None, positional=positional, auto_shortflags=request.letters, **others)
        declared.request = request
        return declared

    return declare


def _signature(request: type[Request]) -> inspect.Signature:
    """What Invoke makes the options of."""
    kind, needed = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    options = [
        inspect.Parameter(name, kind, default=needed if each.positional else each.default)
        for name, each in request.typeable().items()
    ]
    return inspect.Signature([inspect.Parameter("context", kind), *options], __validate_parameters__=False)


def _check(context: Any, typed: Mapping[str, Any]) -> None:
    """Refuse arguments and variables that no task can use.

    Raises:
        UsageError: ``--dry``, or a word that is not UTF-8. ConfigError: such a variable.
    """
    if context.config.run.dry:
        raise UsageError(
            "--dry is refused: the task would do all of its work.",
            "Invoke's --dry only holds back commands that go through Invoke's shell, and Slipway uses none",
            "the same without --dry; ./inv TASK --help says what a task does",
        )
    for name, value in typed.items():
        if isinstance(value, str) and _not_utf8(value):
            shown = f"--{name.replace('_', '-')}"
            raise UsageError(f"{shown} is not UTF-8: {value!r}.", "", "text in UTF-8; if it names a file, rename that")
    for name in ("HOME", "TMPDIR", *(name for name in os.environ if name.startswith("SLIPWAY_"))):
        if _not_utf8(os.environ.get(name, "")):
            raise ConfigError(f"The variable {name} is not UTF-8.", "", f"set {name} to a path that is")


def _not_utf8(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
