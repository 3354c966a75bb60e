"""Slipway's program with its exit codes: an error before, between or after tasks prints a message, too."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from invoke import exceptions
from invoke.vendor import yaml

from core import console
from core.cli.invoked import Slipway
from core.cli.task import interrupted, understood
from core.console.marks import failure
from core.errors import INTERRUPTED, ConfigError, SlipwayError, UsageError, nearest
from core.processes.interrupts import from_ctrl_c

_UNKNOWN = re.compile(r"No idea what (?P<quoted>'.*'|\".*\") is!", re.DOTALL)
_VALUELESS = re.compile(r"Flag <Argument: (?P<name>[^ >]+)")
_MISSING = re.compile(r"did not receive required positional arguments: (?P<names>.+)")


def options(context: Any) -> list[str]:
    """The long options of a task, as they are typed."""
    if context is None:
        return []
    return [flag for flag in (*context.flags, *context.inverse_flags) if flag.startswith("--")]


def refused(error: Exception, words: Sequence[str], tasks: Sequence[str], core: Any) -> UsageError:
    """The error for what Invoke's parser says.

    Args:
        error: its ``ParseError``.
        words: the command line.
        core: the context of the options that every task takes.
    """
    context = getattr(error, "context", None)
    task = str(getattr(context, "name", None) or "")
    said = " ".join(str(error).split())
    manual = f"./inv {task} --help" if task else "./inv --list, or ./inv TASK --help"
    if found := _UNKNOWN.search(str(error)):
        return _unknown(_unquoted(found["quoted"]), task, context, words, tasks, core)
    if found := _VALUELESS.search(said):
        return UsageError(f"--{found['name']} needs a value.", "", manual)
    if found := _MISSING.search(said):
        return UsageError(f"{task} needs {found['names']}.", _meaning(found["names"], context), manual)
    return UsageError(said, "", manual)


def _meaning(names: str, context: Any) -> str:
    """What the help says of the arguments that are missing."""
    arguments = getattr(context, "args", {})
    known = ((name, arguments.get(name)) for name in re.findall(r"[\w-]+", names))
    return "; ".join(f"{name} is {argument.help}" for name, argument in known if argument and argument.help)


def _unquoted(quoted: str) -> str:
    """The word that Invoke shows by ``repr``."""
    import ast

    try:
        return str(ast.literal_eval(quoted))
    except (SyntaxError, ValueError):
        return quoted[1:-1]


def _unknown(word: str, task: str, context: Any, words: Sequence[str], tasks: Sequence[str], core: Any) -> UsageError:
    cause, known = "", [*options(context), *options(core)]
    flags = [each.partition("=")[0] for each in words if each.startswith("--")]
    if wrong := [flag for flag in flags if task and flag not in known]:
        word = wrong[0]  # Invoke takes it for a positional value, and what follows for a task
    if word.startswith("-"):
        what = f"{task} has no option {word}." if task else f"There is no option {word}."
        meant = nearest(word, known, 0.6) if word.startswith("--") else ""
    else:
        meant = nearest(word, tasks, 0.6)
        what = f"There is no task {word!r}."
        before = words[: words.index(word)] if word in words else words
        if task and task in before:
            what = f"{task} takes no word {word!r}, and no task has this name."
            cause = "a value stands after the name of its option, as in --device pi"
    if meant:
        return UsageError(what, f"did you mean {meant}?", _corrected(words, word, meant))
    return UsageError(what, cause, f"./inv {task} --help" if task else "./inv --list, or ./inv TASK --help")


def _corrected(words: Sequence[str], word: str, meant: str) -> str:
    """The command as it was meant, with ``meant`` in place of ``word``."""
    typed = [meant + each[len(word) :] if each == word or each.startswith(f"{word}=") else each for each in words]
    return f"./inv {shlex.join(typed)}"


def _foreseen(error: BaseException, program: Slipway, words: list[str]) -> SlipwayError | None:
    """What the command line, ``invoke.yaml`` or a variable did wrong before a task began."""
    if isinstance(error, SlipwayError):
        return error
    if isinstance(error, exceptions.ParseError):
        collection = getattr(program, "collection", None)
        return refused(error, words, list(collection.task_names) if collection else [], program.initial_context)
    if isinstance(error, exceptions.CollectionNotFound):
        return UsageError("There are no tasks here.", str(error), "./inv, which finds them from any folder")
    settings = (exceptions.UncastableEnvVar, exceptions.AmbiguousEnvVar, exceptions.UnknownFileType)
    if isinstance(error, (*settings, yaml.YAMLError, ValueError, TypeError)) and not _in_a_task(error):
        if mark := getattr(error, "problem_mark", None):
            found = f"{getattr(error, 'problem', '')}; a bracket, a quote, a blank or a colon may be missing"
            return ConfigError(f"{mark.name} is not YAML, line {mark.line + 1}.", found, f"correct {mark.name}")
        return ConfigError(
            "An option, a variable INVOKE_... or a file invoke.yaml has a value of the wrong kind.",
            " ".join(str(error).split()),
            "./inv TASK --help, and look at env | grep INVOKE_ and ~/.invoke.yaml",
        )
    return None


def _in_a_task(error: BaseException) -> bool:
    """Whether Slipway's own code was running, not only Invoke's."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    rooms = {frame.f_globals.get("__name__", "").partition(".")[0] for frame in frames}
    return not rooms.isdisjoint(("tasks", "deploy", "tests", "slipway"))


def _own(words: list[str]) -> list[str]:
    """What the user typed: `inv` puts the checkout before it."""
    return words[2:] if words[:1] == ["--search-root"] else words


def _help_first(words: list[str]) -> list[str]:
    """``TASK --help`` the other way round: Invoke takes ``--help`` for a value that the task must have."""
    own = _own(words)
    root = words[: len(words) - len(own)]
    asks = len(own) == 2 and own[1] == "--help" and not own[0].startswith("-")
    return [*root, own[1], own[0]] if asks else words


def run(words: list[str]) -> int:
    """Run ``words`` as ``./inv`` does; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A file's name need not be UTF-8; showing it must not fail.
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    program, own, printed = Slipway(), _own(words), console.documents[0]
    try:
        if own[:2] == ["--complete", "--"]:
            print("\n".join(program.offers(own[2:])))  # noqa: T201
        else:
            program.run(["inv", *_help_first(words)])
    except exceptions.Exit as end:
        if end.message:
            print(failure(end.message, sys.stderr) if int(end.code) else end.message, file=sys.stderr)  # noqa: T201
        return int(end.code)
    except exceptions.UnexpectedExit as end:
        return int(end.result.exited)
    except BrokenPipeError:
        # The reader of our output closed it (./inv --list | head): not an error, but nothing may be flushed to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001  # the last resort
        if from_ctrl_c(error):
            interrupted()
            print("Interrupted.", file=sys.stderr)  # noqa: T201
            return INTERRUPTED
        failed = _foreseen(error, program, own) or understood(error)
        if "--json" in own and console.documents[0] == printed:
            console.print_json(failed.to_json())
        print(failure(str(failed), sys.stderr), file=sys.stderr)  # noqa: T201
        return failed.exit_code
    return 0
