"""The shell scripts that run on a device: POSIX sh, run by dash, busybox, mksh with toybox, and bash.

File names come as arguments, never inside a script's text; ``$1`` of most is the store's root. The files are functions.
A device gets the lines of a function ``command_NAME`` behind the other functions that these need, in one command.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_HERE = Path(__file__).parent
_FUNCTION = re.compile(r"^([a-z_]+)\(\) \{(?: ([^\n]*) \}|\n(.*?)^\})$", re.MULTILINE | re.DOTALL)
"""A function: on one line, or up to the first line that is a brace."""
_WORD = re.compile(r"(?<![\w$/.{-])[a-z_]+(?![\w=/*.])")
_COMMAND = "command_"


@functools.cache
def script(name: str, mac: bool = False) -> str:
    """The command ``name`` as a device gets it; for a Mac the functions of ``mac.sh`` come in place of their namesakes.

    Indentation and comments are left out: dropbear takes no long commands, and slow devices read every byte.
    """
    functions = _functions(mac)
    body = functions[_COMMAND + name]
    needed: set[str] = set()
    texts = [body]
    while texts:
        for word in _WORD.findall(texts.pop()):
            if word in functions and word not in needed:
                needed.add(word)
                texts.append(functions[word])
    return "".join(f"{each}() {{\n{text}}}\n" for each, text in functions.items() if each in needed) + body


@functools.cache
def for_mac() -> dict[str, str]:
    """Each script as other devices get it, to what a Mac gets."""
    return {script(name): script(name, mac=True) for name in names()}


def names() -> list[str]:
    """Of all commands."""
    return sorted(name.removeprefix(_COMMAND) for name in _functions(mac=False) if name.startswith(_COMMAND))


@functools.cache
def _functions(mac: bool) -> dict[str, str]:
    """The lines of every function, by its name."""
    found: dict[str, str] = {}
    for file in [*sorted(set(_HERE.glob("*.sh")) - {_HERE / "mac.sh"}), *([_HERE / "mac.sh"] if mac else [])]:
        for name, one, more in _FUNCTION.findall(file.read_text(encoding="utf-8")):
            lines = (line.strip() for line in (one or more).splitlines())
            found[name] = "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))
    return found
