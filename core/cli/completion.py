"""What the shell's Tab key offers: tasks, options, and the names that an option takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import SlipwayError, UsageError

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
