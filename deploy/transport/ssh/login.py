"""What a login's shell is given to run: sshd hands it each command as text, whatever shell it is.

Two things may come between. The shell's own files may print (``echo`` in ``.bashrc``, ``.zshenv``, ``.cshrc``): every
command prints a mark first, and what comes before it is no answer. And the shell may not be a POSIX one. csh ends a
quote at the line's end and would run the rest of a script as commands of its own; fish drops backslashes. The first
two lines make both leave at once, with nothing done. Then the same command comes once more in words that mean the same
to every shell: on one line, without a backslash that counts, a quote or an exclamation mark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deploy.transport.ssh.sessions import Sessions
from deploy.transport.supervise import marked, quoted

_LEAVE = 'test -z "$shell"||exec sh -c "exit 97"\ntest -z "$FISH_VERSION"||exec sh -c "exit 97"\nexec '
"""``$shell`` is csh's own. csh goes on behind ``exit``, and drops a line with a variable that is not set."""
_CODED = re.compile(r"[^A-Za-z0-9 @%+=:,./_\"$(){}<>|&;*?\[\]~#^`-]")
_PIECE = re.compile(r"(?:\\0[0-7]{3}|[^\\]){1,180}")
"""A word that a csh with room for 1,024 letters takes."""

ROOM = 120
"""Bytes by which a line is longer than the command, for a POSIX shell."""


def line(argv: Sequence[str], sessions: Sessions) -> str:
    """``argv`` with the mark, for a POSIX shell as long as none is known to be another; any other leaves at once."""
    return portable(argv) if sessions.not_posix else _LEAVE + quoted(marked(argv))


def portable(argv: Sequence[str]) -> str:
    """``argv`` with the mark, for any shell; a process more, and a fifth longer."""
    code = _CODED.sub(lambda match: "".join(f"\\0{byte:03o}" for byte in match[0].encode()), quoted(marked(argv)))
    words = " ".join(f"'{piece}'" for piece in _PIECE.findall(f"exec {code}"))
    return f"""sh -c 'eval "$(printf %b "$@")"' slipway {words}"""
