"""Invoke's program with Slipway's exit codes: an error before, between or after tasks prints a message too."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import invoke
from invoke import exceptions
from invoke.program import Program
from invoke.vendor import yaml

from core.errors import INTERRUPTED, ConfigError, SlipwayError, UsageError
from core.surprise import understood


class _Front(Program):  # type: ignore[misc]  # Invoke carries no types
    """Invoke's own, whose errors are left to `run`."""

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: A002, ARG002  # Invoke's names
        self.create_config()
        self.parse_core(argv)
        self.parse_collection()
        self.parse_tasks()
        self.parse_cleanup()
        self.update_config()
        self.execute()


def _foreseen(error: Exception) -> SlipwayError | None:
    """What the command line, ``invoke.yaml`` or a variable did wrong before a task began."""
    if isinstance(error, SlipwayError):
        return error
    if isinstance(error, exceptions.ParseError):
        return UsageError(str(error), "", "./inv --list, or ./inv TASK --help")
    if isinstance(error, exceptions.CollectionNotFound):
        return UsageError("There are no tasks here.", str(error), "./inv, which finds them from any folder")
    settings = (exceptions.UncastableEnvVar, exceptions.AmbiguousEnvVar, exceptions.UnknownFileType)
    if isinstance(error, (*settings, yaml.YAMLError, ValueError, TypeError)) and not _in_a_task(error):
        cause = " ".join(str(error).split())
        return ConfigError(
            "An option, a variable INVOKE_... or a file invoke.yaml has a value of the wrong kind.",
            cause,
            "./inv TASK --help, and look at env | grep INVOKE_ and ~/.invoke.yaml",
        )
    return None


def _in_a_task(error: BaseException) -> bool:
    """Whether Slipway's own code was running, not only Invoke's."""
    trace, inside = error.__traceback__, False
    while trace is not None:
        inside |= trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in ("tasks", "deploy", "tests")
        trace = trace.tb_next
    return inside


def _help_first(words: list[str]) -> list[str]:
    """``TASK --help`` the other way round: Invoke takes ``--help`` for a value that the task must have."""
    root, own = (words[:2], words[2:]) if words[:1] == ["--search-root"] else ([], words)
    asks = len(own) == 2 and own[1] == "--help" and not own[0].startswith("-")
    return [*root, own[1], own[0]] if asks else words


def run(words: list[str]) -> int:
    """Run ``words`` as ``./inv`` does; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A file's name need not be UTF-8; showing it must not fail.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    program: Any = _Front(name="Invoke", version=invoke.__version__, binary="inv[oke]", binary_names=["inv", "invoke"])
    try:
        program.run(["inv", *_help_first(words)])
    except exceptions.Exit as end:
        if end.message:
            print(end.message, file=sys.stderr)  # noqa: T201  # as Invoke does
        return int(end.code)
    except exceptions.UnexpectedExit as end:
        return int(end.result.exited)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output closed it (./inv --list | head): not an error, but nothing may be flushed to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  # the last resort
        failed = _foreseen(error) or understood(error)
        print(failed, file=sys.stderr)  # noqa: T201
        return failed.exit_code
    return 0
