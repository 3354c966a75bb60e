"""The site's page of commands: every task with its options, as ``tasks.py`` declares them."""

from __future__ import annotations

import inspect
import os
from typing import Any

from core.paths import ROOT
from verify.site.text import cell

_HEAD = """# Commands

Defaults in brackets can be changed: in `invoke.yaml` of the current folder or of the checkout, or in the environment
(`INVOKE_SLIPWAY_DEVICE=pi`). A command that fails has one of the [exit codes](troubleshooting.md#exit-codes).

"""


def collection() -> Any:
    """The tasks, loaded as Invoke loads them: no package imports ``tasks.py``."""
    from invoke import Collection
    from invoke.loader import FilesystemLoader

    module, _ = FilesystemLoader(start=os.fspath(ROOT)).load("tasks")
    return Collection.from_module(module)


def markdown() -> str:
    """The page."""
    found = collection()
    names = sorted(found.task_names)
    lines = [_HEAD, "| command | what it does |\n", "|---|---|\n"]
    lines += [f"| [`{name}`](#{name.replace('.', '')}) | {cell(_first(found[name]))} |\n" for name in names]
    lines += [_section(name, found[name]) for name in names]
    return "".join(lines)


def _first(task: Any) -> str:
    return (inspect.getdoc(task) or "").split("\n", 1)[0]


def _section(name: str, task: Any) -> str:
    text = inspect.getdoc(task) or ""
    prose, _, example = text.partition("\n\nExample: ")
    arguments = task.get_arguments()
    words = "".join(f" {argument.name.upper()}" for argument in arguments if argument.positional)
    parts = [f"\n## {name}\n\n", f"`./inv {name}{words}`\n\n" if words else "", f"{_prose(prose)}\n"]
    if example:
        parts.append(f"\n```console\n$ {example.strip()}\n```\n")
    rows = [_row(argument) for argument in arguments if not argument.positional or argument.help]
    if rows:
        parts += ["\n| option | what it is |\n|---|---|\n", *rows]
    return "".join(parts)


def _prose(text: str) -> str:
    """A docstring as Markdown: its options and paths as code."""
    return "\n".join(cell(line, table=False) for line in text.splitlines())


def _row(argument: Any) -> str:
    name = argument.name.replace("_", "-")
    value = f" {_kind(argument)}" if argument.takes_value else ""
    shown = name.upper() if argument.positional else f"--{name}{value}"
    return f"| `{shown}` | {cell(argument.help or '')} |\n"


def _kind(argument: Any) -> str:
    return "N" if argument.kind is int else "VALUE"
