"""Slipway's own Invoke program: its version, its lists and help texts, completion, and settings checked."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from invoke import exceptions
from invoke.config import merge_dicts
from invoke.program import Program

from core.cli.request import check_settings, settings_here, settings_of
from core.errors import SlipwayError, UsageError
from core.paths import INSTALLED, ROOT

_BASH = """\
_slipway() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]/#\\~/$HOME}" --complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _slipway inv invoke slipway
"""
_ZSH = """\
#compdef inv invoke slipway
_slipway() {
    local -a found
    found=("${(@f)$("${words[1]/#\\~/$HOME}" --complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
compdef _slipway inv invoke slipway
"""
_FISH = """\
function __slipway_complete
    set -l before (commandline -opc)
    set -l program (string replace -r '^~' $HOME -- $before[1])
    set -l found ($program --complete -- $before[2..-1] (commandline -ct) 2>/dev/null)
    if test -n "$found[1]"
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c inv -f -a '(__slipway_complete)'
complete -c invoke -f -a '(__slipway_complete)'
complete -c slipway -f -a '(__slipway_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(shell: str) -> str:
    """What a shell must read once: ``source <(./inv --print-completion-script bash)``.

    Raises:
        UsageError: another shell.
    """
    if shell not in SCRIPTS:
        raise UsageError(
            f"There is no completion for the shell {shell!r}.", f"there is one for {', '.join(SCRIPTS)}",
            "./inv --print-completion-script bash",
        )  # fmt: skip
    return SCRIPTS[shell]


def names(argument: Any) -> list[str]:
    """The names that an option takes; empty if it takes anything, or if they cannot be read (the task says why)."""
    source = getattr(argument, "offered", None)
    try:
        return sorted(source()) if source else []
    except SlipwayError:
        return []


def _values(argument: Any, typed: str) -> list[str]:
    done, comma, part = typed.rpartition(",")
    return [f"{done}{comma}{name}" for name in names(argument) if name.startswith(part)]


def _joined(words: Sequence[str]) -> tuple[list[str], str]:
    """Bash takes ``--device=pi`` and ``cpu:max`` for three words each; here they are two words, and one.

    Returns:
        The words; and the beginning of the last one, to its last colon, that bash takes for words of their own.
    """
    found: list[str] = []
    colon, before = False, ""
    for word in (word for place, word in enumerate(words) if word != "=" or place == 0):
        if word == ":" and found:
            found[-1] += word
            colon, before = True, found[-1]
        elif colon:
            found[-1] += word
            colon = False
        else:
            found.append(word)
            before = ""
    return found, before


def offers(words: Sequence[str], tasks: Mapping[str, Any], core: Any) -> list[str]:
    """What may stand in place of the last word.

    Args:
        words: those typed so far, without the program's name; the last one is where the cursor is.
        tasks: for each task's name, Invoke's context with its options.
        core: the context of the options that every task takes.
    """
    if words and words[-1] == "=":
        words = [*words, ""]
    words, apart = _joined(words)
    return [word.removeprefix(apart) for word in _offered(words or [""], tasks, core)]


def _offered(words: Sequence[str], tasks: Mapping[str, Any], core: Any) -> list[str]:
    *before, current = words
    context, waiting, given = core, None, 0
    for word in before:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            flag = _flag(word, context, core)
            waiting = flag if flag is not None and flag.takes_value and "=" not in word else None
        elif context is not core and given < len(context.positional_args):
            given += 1
        elif word in tasks:
            context, given = tasks[word], 0
    if waiting is not None:
        return _values(waiting, current)
    if current.startswith("-"):
        option, equals, typed = current.partition("=")
        if equals:
            flag = _flag(option, context, core)
            return [f"{option}={each}" for each in _values(flag, typed)] if flag else []
        flags = {*context.flags, *context.inverse_flags} | ({"--help"} if context is not core else set())
        return sorted(flag for flag in flags if flag.startswith(current) and len(flag) > 2)
    if context is not core and given < len(context.positional_args):
        return _values(context.positional_args[given], current)
    return sorted(name for name in tasks if name.startswith(current))


def _flag(word: str, *contexts: Any) -> Any:
    name = word.partition("=")[0]
    return next((context.flags[name] for context in contexts if name in context.flags), None)


_VERSION = re.compile(r'^version = "([^"]+)"', re.MULTILINE)
_WHAT = "Slipway builds an on-device inference runtime, puts it on a device with a model, and runs it there."
_OTHER = "Other options"
_OPTIONS = (
    ("--help, -h [TASK]", "this page, or what a task does and its options; the same as ./inv TASK --help"),
    ("--list, -l", "the tasks"),
    ("--version, -V", "Slipway's version"),
    ("--print-completion-script SHELL", "what bash, zsh or fish must read, so that the Tab key completes"),
    ("--config, -f FILE", "settings from this file, besides invoke.yaml"),
)
"""Those of Invoke's own options that say something here."""
TASKS: dict[str, tuple[str, ...]] = {}
"""The tasks below their headings, in the order of the list; the tasks put them in. What has no heading comes last."""


def version() -> str:
    """Slipway's version, as ``pyproject.toml`` has it."""
    found = _VERSION.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return found[1] if found else "unknown"


class Slipway(Program):  # type: ignore[misc]  # Invoke carries no types
    """Invoke's own, whose errors are left to `core.cli.main`."""

    def __init__(self) -> None:
        super().__init__(name="Slipway", version=version(), binary="./inv", binary_names=["inv", "invoke"])

    def run(self, argv: list[str] | None = None, exit: bool = True) -> None:  # noqa: A002, ARG002  # Invoke's names
        """Do what ``argv`` says; what is wrong with it raises."""
        self.create_config()
        self.parse_core(argv)
        self.parse_collection()
        self.parse_tasks()
        self.parse_cleanup()
        self.update_config()
        if known := self.collection.configuration().get("slipway"):
            check_settings(self.config.get("slipway", {}), known, os.environ)
        self.execute()

    def parse_core_args(self) -> None:
        """Take the options that every task has, and print the script for a shell if it is wanted."""
        super().parse_core_args()
        if shell := self.args["print-completion-script"].value:
            sys.stdout.write(script(shell))
            raise exceptions.Exit

    def load_collection(self) -> None:
        """Load the tasks, and settings of the current folder over those of the checkout."""
        super().load_collection()
        if INSTALLED and sys.path[0] == str(ROOT):
            del sys.path[0]  # Invoke's, for tasks.py; a user's own core/ or deploy/ must not meet ours
        if here := settings_here(ROOT):
            outer = self.config._project  # Invoke reads one folder's file, and we two
            self.config.set_project_location(here)
            self.config.load_project(merge=False)
            inner = settings_of(here, self.config._project or {}, ROOT)
            self.config._set(_project=merge_dicts(dict(outer or {}), inner))
            self.config.merge()

    def offers(self, words: Sequence[str]) -> list[str]:
        """What may stand in place of the last of ``words``, for the shell's completion."""
        self.create_config()
        self.parse_core([self.binary, "--search-root", str(ROOT)])
        self.parse_collection()
        contexts = {str(name): context for name, context in self._make_parser().contexts.items()}
        return offers(words, contexts, self.initial_context)

    def no_tasks_given(self) -> None:
        """Say what this is, and list the tasks."""
        print(f"{_folded(_WHAT)}\n")  # noqa: T201
        self.list_tasks()
        print(  # noqa: T201
            "./inv TASK --help explains a task.\nThe main one: ./inv deploy --device pi --model mobilenet_v2"
        )
        raise exceptions.Exit

    def print_help(self) -> None:
        """Print how a command is put together, the tasks, and the options that need none."""
        print(f"Usage: ./inv TASK [options of the task]\n\n{_folded(_WHAT)}\n")  # noqa: T201
        self.load_collection()  # Invoke comes here before it does
        self.list_root = self.list_depth = None
        self.list_format, self.scoped_collection = "flat", self.collection
        self.list_tasks()
        print("Options without a task:\n")  # noqa: T201
        self.print_columns(_OPTIONS)

    def list_flat(self) -> None:
        """List the tasks below their headings; the tasks of a group that is named, as Invoke does."""
        if self.list_root or self.list_depth:
            super().list_flat()
            return
        left = {name: (name, text) for name, text in sorted(self._make_pairs(self.collection))}
        own = [left.pop(name) for name in list(left) if name.startswith("self.")]
        headed = {heading: [left.pop(name) for name in names if name in left] for heading, names in TASKS.items()}
        for heading, rows in {**headed, "Others": list(left.values())}.items():
            if rows:
                print(f"{heading}:")  # noqa: T201
                _columns(rows)
        if own:
            print("./inv --list self shows the tasks that prove and measure Slipway itself.")  # noqa: T201
        print()  # noqa: T201

    def print_task_help(self, name: str) -> None:
        """Print what a task does and its options, in groups if the task has them."""
        context, body = self.parser.contexts[name], self.collection[name]
        words = "".join(f" {each.name.upper()}" for each in context.positional_args)
        print(f"Usage: ./inv {name}{words}{' [options]' if context.flags else ''}\n")  # noqa: T201
        for paragraph in (inspect.getdoc(body) or "").split("\n\n"):
            print(textwrap.indent(_folded(paragraph), "  "), end="\n\n")  # noqa: T201
        for heading, rows in _groups(context, body.request.groups()).items():
            print(f"{heading}:\n")  # noqa: T201
            self.print_columns(rows)
        if others := list(body.request.only_settings().items()):
            print("Settings, in the environment or without INVOKE_SLIPWAY_ in invoke.yaml:\n")  # noqa: T201
            self.print_columns(others)


def _width() -> int:
    """Columns for text: the terminal's, at most 120, which is where lines become hard to read."""
    return min(shutil.get_terminal_size().columns, 120)


def _folded(paragraph: str) -> str:
    """A paragraph of a docstring in the terminal's width; an indented one, such as a list, stays as it is."""
    indented = any(line.startswith(" ") for line in paragraph.splitlines())
    return paragraph if indented else textwrap.fill(paragraph, _width() - 3, break_long_words=False)


def _columns(rows: Sequence[tuple[str, str]], column: int = 18) -> None:
    """Names and sentences side by side, without empty lines between them."""
    for name, text in rows:
        folded = textwrap.wrap(text or "", max(_width() - column - 5, 30)) or [""]
        first = f"  {name:<{column}}  {folded[0]}".rstrip() if len(name) <= column else f"  {name}"
        rest = folded[1:] if len(name) <= column else folded
        print("\n".join([first, *(f"{'':{column + 4}}{line}" for line in rest)]))  # noqa: T201


def _groups(context: Any, groups: Mapping[str, Sequence[str]]) -> dict[str, list[tuple[str, str]]]:
    """The options of a task below their headings, in the order of the headings; each option once."""
    left = {_typed(argument): argument for argument in context.args.values()}
    found: dict[str, list[tuple[str, str]]] = {}
    for heading, names in groups.items():
        if rows := [_row(left.pop(name)) for name in names if name in left]:
            found[heading] = rows
    if left:
        found[_OTHER if found else "Options"] = [_row(each) for _, each in sorted(left.items())]
    return found


def _row(argument: Any) -> tuple[str, str]:
    """``-d, --device=DEVICE`` and its help."""
    name = _typed(argument)
    value = "" if argument.kind is bool else f"={name.rpartition('-')[2].upper()}"
    short = [f"-{letter}" for letter in argument.names if len(letter) == 1]
    return ", ".join([*short, f"--{name}{value}"]), argument.help or ""


def _typed(argument: Any) -> str:
    """An option's name as it is typed."""
    return str(argument.name).replace("_", "-")
