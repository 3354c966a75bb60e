"""What Invoke's parser refuses, in Slipway's words: the nearest name that exists, and the command that was meant."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence
from typing import Any

from core.cli import completion
from core.cli.near import nearest
from core.errors import UsageError

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
        tasks: names of all tasks.
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
    manual = f"./inv {task} --help" if task else "./inv --list"
    if word.startswith("-"):
        what = f"{task} has no option {word}." if task else f"There is no option {word}."
        meant = nearest(word, [*options(context), *options(core)], 0.6) if word.startswith("--") else ""
    elif flag := _taken_for_a_value(word, context, words):
        typed = [each for each in words if each not in (flag, f"{flag}={word}", word)]
        return UsageError(
            f"{task} has no option {flag}.", "its value is given without an option's name",
            f"./inv {shlex.join([*typed, word])}",
        )  # fmt: skip
    elif task and task in words[: _index(words, word)]:
        option = _option_of(word, context)
        meant = "" if option else nearest(word, tasks, 0.6)
        what = f"{task} takes no word {word!r}, and no task has this name."
        if not meant:
            tried = _corrected(words, word, f"--{option}", word) if option else manual
            return UsageError(what, "a value stands after the name of its option, as in --device pi", tried)
    else:
        meant = nearest(word, tasks, 0.6)
        what = f"There is no task {word!r}."
        if word == "help":
            task = next((each for each in words[_index(words, word) + 1 :] if each in tasks), "")
            return UsageError(what, "help is an option", f"./inv {task} --help".replace("  ", " "))
    if not meant:
        return UsageError(what, "", manual)
    return UsageError(what, f"did you mean {meant}?", _corrected(words, word, meant))


def _taken_for_a_value(word: str, context: Any, words: Sequence[str]) -> str:
    """The unknown option before ``word``; empty if there is none.

    Invoke takes it for the positional value: ``--device`` in ``devices.stop --device pi``.
    """
    if not any(argument.positional for argument in getattr(context, "positional_args", ())):
        return ""
    for before, each in itertools.pairwise(words):
        if each == word and before.startswith("--") and before not in options(context):
            return before
    for each in words:
        flag, _, value = each.partition("=")
        if value == word and flag.startswith("--") and flag not in options(context):
            return flag
    return ""


def _option_of(word: str, context: Any) -> str:
    """The option of the task that takes ``word``: ``target`` for ``linux-arm64``; empty if there is none."""
    arguments = context.args.values() if context is not None else ()
    return next((str(each.name) for each in arguments if word in completion.names(each)), "")


def _index(words: Sequence[str], word: str) -> int:
    return words.index(word) if word in words else len(words)


def _corrected(words: Sequence[str], word: str, *meant: str) -> str:
    """The command as it was meant, with the words ``meant`` in place of ``word``."""
    typed: list[str] = []
    for each in words:
        if each == word:
            typed.extend(meant)
        elif each.startswith(f"{word}="):
            typed.append(meant[-1] + each[len(word) :])
        else:
            typed.append(each)
    return f"./inv {shlex.join(typed)}"
