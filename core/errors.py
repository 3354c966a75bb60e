"""Errors that a user can meet, each class with one exit code.

A message has three parts: what happened, the likely cause, and the next command to type.
``tasks.py`` catches `SlipwayError` once, at the top, so that a user's mistake never shows a traceback.
The table in ``docs/troubleshooting.md`` is generated from these classes.
"""

from __future__ import annotations

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
    transient: ClassVar[bool] = False
    """Whether the same step may succeed if it is tried again a little later."""

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


class UsageError(SlipwayError):
    """The command line makes no sense: a missing or contradictory argument."""

    exit_code = 2
    kind = "usage"


class ConfigError(SlipwayError):
    """A name or a configuration file is wrong: unknown target, device, model, key."""

    exit_code = 3
    kind = "config"


class HostError(SlipwayError):
    """This machine lacks something: Python, a tool, the network, disk space."""

    exit_code = 4
    kind = "host"


class BuildError(SlipwayError):
    """Compiling, linking or checking a bundle failed."""

    exit_code = 5
    kind = "build"


class ExportError(SlipwayError):
    """A model could not be turned into a program."""

    exit_code = 6
    kind = "export"


class NotSupportedError(SlipwayError):
    """The target, engine or combination is not supported yet; the message says what it needs."""

    exit_code = 7
    kind = "not-supported"


class ProgramError(SlipwayError):
    """A program file is truncated, damaged or of a version that the engine does not read."""

    exit_code = 10
    kind = "program"


class BundleError(SlipwayError):
    """A bundle is incomplete, or its files do not match the digests in its manifest."""

    exit_code = 11
    kind = "bundle"


class PreflightError(SlipwayError):
    """The bundle cannot run on the device: architecture, float ABI, C library, CPU features, memory."""

    exit_code = 12
    kind = "preflight"


class MissingOperatorError(PreflightError):
    """The program needs operators or backends that the bundle does not offer."""

    exit_code = 13
    kind = "missing-operator"


class UnreachableError(SlipwayError):
    """The device cannot be reached, or the connection broke."""

    exit_code = 20
    kind = "unreachable"
    transient = True


class AuthenticationError(SlipwayError):
    """The device refused the key."""

    exit_code = 21
    kind = "authentication"


class HostKeyError(SlipwayError):
    """The device's host key is unknown, changed or revoked."""

    exit_code = 22
    kind = "host-key"


class DeviceFullError(SlipwayError):
    """No space left on the device."""

    exit_code = 23
    kind = "device-full"


class TransferError(SlipwayError):
    """A file arrived with a wrong digest, or the device refused to store it."""

    exit_code = 24
    kind = "transfer"


class AnswerError(TransferError):
    """The device's answer is invalid: too long, unreadable, or of the wrong kind."""

    exit_code = 26
    kind = "answer"


class DeviceBusyError(SlipwayError):
    """Another deploy uses the device, or took it over."""

    exit_code = 25
    kind = "device-busy"
    transient = True


class RootError(SlipwayError):
    """The device's root is not Slipway's: it holds other files, or other users may write to it."""

    exit_code = 27
    kind = "root"


class RunError(SlipwayError):
    """The runner failed on the device."""

    exit_code = 30
    kind = "run"


class DeadlineError(SlipwayError):
    """A step or a run exceeded its time; Slipway ended it on the device."""

    exit_code = 31
    kind = "deadline"


class CrashError(SlipwayError):
    """The runner crashed: a defect of Slipway, of the engine or of the device, never the user's file or inputs."""

    exit_code = 35
    kind = "crash"


class MismatchError(SlipwayError):
    """The outputs do not agree with the reference."""

    exit_code = 32
    kind = "mismatch"


class MatrixError(SlipwayError):
    """Cells of a matrix failed; the report names each one with its error."""

    exit_code = 33
    kind = "matrix"


class RegressionError(SlipwayError):
    """Every cell of a matrix passed, but some figures are worse than the baseline allows."""

    exit_code = 34
    kind = "regression"


class UncertainError(SlipwayError):
    """Figures look worse than the baseline allows, and the measurement cannot tell whether they are."""

    exit_code = 36
    kind = "uncertain"


class DefectError(SlipwayError):
    """Slipway itself failed in an unforeseen way; a file in the cache has the traceback."""

    exit_code = 70
    kind = "defect"


INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""
