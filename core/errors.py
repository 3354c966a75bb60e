"""Errors that a user can meet, each class with one exit code.

A message has three parts: what happened, the likely cause, and the next command to type.
``tasks.py`` catches `SlipwayError` once, at the top, so that a user's mistake never shows a traceback.
The table in ``docs/troubleshooting.md`` is generated from these classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

from core.plain import plain


class SlipwayError(Exception):
    """Base of every foreseen failure.

    Args:
        what: what happened, one sentence.
        cause: the likely cause, one sentence, or empty when ``what`` says it.
        hint: the next command to type or step to take.
        names: the things concerned (operators, files, findings), for machines and for the message.

    Any of them may quote a device or a file: they are made `plain` here, once for every output.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "error"
    """For machines: ``missing-operator`` of `MissingOperatorError`."""
    transient: ClassVar[bool] = False
    """Whether the same step may succeed if it is tried again a little later."""

    def __init_subclass__(cls, exit_code: int = 0, transient: bool = False) -> None:
        cls.transient = transient or cls.transient
        if exit_code:  # else it is one of those that it is derived from
            cls.exit_code = exit_code
            cls.kind = re.sub(r"(?<!^)([A-Z])", r"-\1", cls.__name__.removesuffix("Error")).lower()

    def __init__(self, what: str, cause: str = "", hint: str = "", names: tuple[str, ...] | list[str] = ()) -> None:
        super().__init__(plain(what))
        self.what = plain(what)
        self.cause = plain(cause)
        self.hint = plain(hint)
        self.names = tuple(plain(name) for name in names)

    def __str__(self) -> str:
        parts = [self.what]
        if self.cause:
            parts.append(f"Cause: {self.cause}")
        if self.hint:
            parts.append(f"Try: {self.hint}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, object]:
        """The error as ``--json`` prints it."""
        return {
            "error": self.kind,
            "exit_code": self.exit_code,
            "what": self.what,
            "cause": self.cause,
            "try": self.hint,
            "names": list(self.names),
        }


class UsageError(SlipwayError, exit_code=2):
    """The command line makes no sense: a missing or contradictory argument."""


class ConfigError(SlipwayError, exit_code=3):
    """A name or a configuration file is wrong: unknown target, device, model, key."""


class HostError(SlipwayError, exit_code=4):
    """This machine lacks something: Python, a tool, the network, disk space."""


class BuildError(SlipwayError, exit_code=5):
    """Compiling, linking or checking a bundle failed."""


class ExportError(SlipwayError, exit_code=6):
    """A model could not be turned into a program."""


class NotSupportedError(SlipwayError, exit_code=7):
    """The target, engine or combination is not supported yet; the message says what it needs."""


class ProgramError(SlipwayError, exit_code=10):
    """A program file is truncated, damaged or of a version that the engine does not read."""


class BundleError(SlipwayError, exit_code=11):
    """A bundle is incomplete, or its files do not match the digests in its manifest."""


class PreflightError(SlipwayError, exit_code=12):
    """The bundle cannot run on the device: architecture, float ABI, C library, CPU features, memory."""


class MissingOperatorError(PreflightError, exit_code=13):
    """The program needs operators or backends that the bundle does not offer."""


class UnreachableError(SlipwayError, exit_code=20, transient=True):
    """The device cannot be reached, or the connection broke."""


class AuthenticationError(SlipwayError, exit_code=21):
    """The device refused the key."""


class HostKeyError(SlipwayError, exit_code=22):
    """The device's host key is unknown, changed or revoked."""


class DeviceFullError(SlipwayError, exit_code=23):
    """No space left on the device."""


class TransferError(SlipwayError, exit_code=24):
    """A file arrived with a wrong digest, or the device refused to store it."""


class AnswerError(TransferError, exit_code=26):
    """The device's answer is invalid: too long, unreadable, or of the wrong kind."""


class DeviceBusyError(SlipwayError, exit_code=25, transient=True):
    """Another deploy uses the device, or took it over."""


class RootError(SlipwayError, exit_code=27):
    """The device's root is not Slipway's: it holds other files, or other users may write to it."""


class RunError(SlipwayError, exit_code=30):
    """The runner failed on the device."""


class DeadlineError(SlipwayError, exit_code=31):
    """A step or a run exceeded its time; Slipway ended it on the device."""


class CrashError(SlipwayError, exit_code=35):
    """The runner crashed: a defect of Slipway, of the engine or of the device, never the user's file or inputs."""


class MismatchError(SlipwayError, exit_code=32):
    """The outputs do not agree with the reference."""


class MatrixError(SlipwayError, exit_code=33):
    """Cells of a matrix failed; the report names each one with its error."""


class RegressionError(SlipwayError, exit_code=34):
    """Every cell of a matrix passed, but some figures are worse than the baseline allows."""


class UncertainError(SlipwayError, exit_code=36):
    """Figures look worse than the baseline allows, and the measurement cannot tell whether they are."""


class DefectError(SlipwayError, exit_code=70):
    """Slipway itself failed in an unforeseen way; a file in the cache has the traceback."""


INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""


def near(name: str, names: Iterable[str], most: int = 3, least: float = 0.5) -> list[str]:
    """The names that look like ``name``, the most similar first.

    Args:
        least: similarity, 0 to 1; 0 takes even what looks different.
    """
    import difflib  # every module imports this one, and few names are wrong

    return difflib.get_close_matches(name, list(names), most, least)


def nearest(name: str, names: Iterable[str], least: float = 0.5) -> str:
    """The most similar name; empty if all look different."""
    return next(iter(near(name, names, 1, least)), "")


def did_you_mean(found: Sequence[str]) -> str:
    """``did you mean a, b or c?`` for an error's cause; empty without names."""
    *others, last = found or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


def suggestion(name: str, names: Iterable[str]) -> str:
    """The same with a blank behind it, for a cause that goes on with all names; two names at most."""
    return f"{did_you_mean(near(name, names, 2))} ".lstrip()
