"""What a transport must offer: run a command, put a file, get a file.

Everything above (probe, store, run) is written once against `Transport`; a driver supplies `Transport.start` (a
`Channel`). Files go through the input and the output of ``cat``. `run` brings a command to its end, and ends it when
its deadline passes or Ctrl-C comes.

On the device every command runs under a shell script, the supervisor. It gives the command a session (hence process
group) of its own and ends that whole group when

- its standard input closes: this side closes it to end the command, and it closes by itself when the
  connection breaks or this side dies;
- its time is over, in case the connection hangs half-open.

It exits only when no process of the group is left, so an exit status means that all of them ended.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from core.errors import DeviceFullError, RunError, SlipwayError, TransferError, UnreachableError
from core.plain import says
from deploy.scripts import for_mac, script
from deploy.transport.deadline import NEVER, Deadline
from deploy.transport.hearing import MARK, MAX_OUTPUT, PIECE, Heard, receiving

if TYPE_CHECKING:
    from typing_extensions import Self

Progress = Callable[[int], None]
"""Called with the number of bytes that went through since the last call."""

_TICK = 0.2
_SILENCE = 60.0
"""Seconds in which a device must take a piece of a file."""
_MESSAGE = 4096
"""Bytes of output that an error looks at."""
_SLOW = 12.0
"""Seconds beyond the grace that a slow or busy device may take to end a group; once it has ended, nothing waits."""


@dataclass(frozen=True)
class Completed:
    """A command that ended on the device."""

    argv: tuple[str, ...]
    code: int
    """Exit status; 128 + n when signal n ended it, as shells have it."""
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are replaced."""
        return self.stdout.decode(errors="replace")

    @property
    def message(self) -> str:
        """The last lines of standard error, else of standard output; quote them as the device's own words."""
        for stream in (self.stderr, self.stdout):
            if lines := stream[-_MESSAGE:].decode(errors="replace").strip().splitlines():
                return "\n".join(lines[-8:])
        return ""


class Channel(Protocol):
    """A command running on the device; its output collects in ``heard``, within limits."""

    heard: Heard

    def pump(self, seconds: float) -> int | None:
        """Collect a piece of output, for at most ``seconds``; the exit status once the command ended.

        Raises:
            UnreachableError: the connection broke. AnswerError: it said more than ``heard`` may hold.
        """

    def send(self, data: bytes, seconds: float) -> None:
        """Write to the command's standard input.

        Raises:
            OSError: the command takes nothing any more, the connection broke, or it took longer than ``seconds``.
        """

    def end_input(self) -> None:
        """Close the command's standard input: the supervisor's sign to end it."""

    def close(self) -> None:
        """Release it in any state."""


class Transport(Protocol):
    """A connection to one device. Close it by leaving its ``with`` block."""

    name: str
    posix: bool = True
    """Whether it has a POSIX shell, as all but Windows have."""

    @property
    def longest(self) -> int:
        """Bytes of a command, quoted for a shell, that the device takes."""

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> Channel:
        """Start ``argv`` on the device as it is, unsupervised.

        Raises:
            DeadlineError: the device did not confirm it in time. UnreachableError: the connection broke.
        """

    def put(self, local: Path, remote: str, progress: Progress, deadline: Deadline, offset: int = 0) -> None:
        """Write the file ``local`` to the path ``remote``, which must not exist; no link there is followed.

        Args:
            offset: ``remote`` holds so many bytes of ``local`` already, and no more: only what follows them is
                sent (and reported to ``progress``).

        Raises:
            DeviceFullError: no space. TransferError: refused. UnreachableError: the connection broke. DeadlineError
        """
        doing = f"uploading {local.name} to {self.name}"
        deadline.check(doing)
        text = 'exec cat >>"$1"' if offset else 'set -C; exec cat >"$1"'
        code, lost = None, None
        started = self.start(["sh", "-c", text, "slipway", remote], deadline)
        with contextlib.closing(started) as channel, local.open("rb") as source:
            channel.heard.doing = doing
            source.seek(offset)
            while code is None and (piece := source.read(PIECE)):
                deadline.check(doing)
                try:
                    channel.send(piece, deadline.left(_SILENCE))
                except OSError as error:
                    lost = error  # the command's end says why, or the deadline
                    break
                progress(len(piece))
                code = channel.pump(0)
            if code is None:
                channel.end_input()
                code = finished(channel, (), deadline).code
            said = Completed((), code, b"", bytes(channel.heard.stderr))
        if said.code != 0:
            raise refusal(self.name, local.name, remote, said.message)
        if lost is not None:
            raise broken(self.name, f"it took no more of {local.name}", lost)

    def get(self, remote: str, local: Path, limit: int, deadline: Deadline) -> None:
        """Read the file ``remote``, at most ``limit`` bytes of it, to ``local``.

        Raises:
            TransferError: missing or unreadable. AnswerError: longer than ``limit``. HostError: no space here.
            UnreachableError: the connection broke. DeadlineError
        """
        doing = f"fetching {local.name} from {self.name}"
        deadline.check(doing)
        # A pipe of that name would keep `cat` waiting there for ever, connection or not.
        text = 'if [ -f "$1" ]; then exec cat <"$1"; else echo no ordinary file >&2; exit 1; fi'
        with receiving(local, limit, self.name) as take:
            with contextlib.closing(self.start(["sh", "-c", text, "slipway", remote], deadline)) as channel:
                channel.heard.doing = doing
                done = finished(channel, ("cat",), deadline, take, keep=False)
            if done.code != 0:
                raise refusal(self.name, local.name, remote, done.message)

    def close(self) -> None:
        """Close the connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def broken(name: str, cause: str, error: BaseException | None) -> UnreachableError:
    """The error for a connection that broke."""
    detail = f" ({error})" if error is not None and str(error) else ""
    return UnreachableError(
        f"The connection to {name} broke.",
        f"{cause}{detail}",
        "the same command again: what arrived whole is kept, the rest is cleaned up",
    )


def is_full(text: str) -> bool:
    """Whether a device's words say that its disk is full."""
    return "no space" in text.lower() or "quota" in text.lower()


def refusal(name: str, file: str, remote: str, text: str) -> SlipwayError:
    """The error for what the device said when it did not take or give a file."""
    if is_full(text):
        return DeviceFullError(
            f"No space left on {name} while uploading {file}.",
            f"the file system that holds {remote}",
            "free some space there, or set another root for the device in devices.toml",
        )
    return TransferError(
        f"{file} could not be moved to or from {name}.",
        f"{remote}: {says(name, text)}",
        "the same command again; if it stays, another root for the device in devices.toml",
    )


def finished(
    channel: Channel,
    words: Sequence[str],
    deadline: Deadline,
    hear: Callable[[bytes], None] = lambda _: None,
    keep: bool = True,
) -> Completed:
    """What a command says, to its end.

    Args:
        words: what it is called in the result.
        hear: called with each piece of its standard output, as it comes.
        keep: whether the result has its standard output, too.

    Raises:
        DeadlineError: the time was over. UnreachableError: the connection broke. AnswerError: it said too much.
    """
    heard, given, code = channel.heard, 0, None
    while code is None:
        code = channel.pump(deadline.left(_TICK))
        if len(heard.stdout) > given:
            hear(bytes(heard.stdout[given:]))
            if not keep:
                heard.stdout.clear()
            given = len(heard.stdout)
        if code is None:
            deadline.check(heard.doing)
    return Completed(tuple(words), code, bytes(heard.stdout), bytes(heard.stderr))


def run(
    transport: Transport,
    argv: Sequence[str],
    *,
    deadline: Deadline,
    cwd: str = "",
    env: Mapping[str, str] | None = None,
    pidfile: str = "",
    doing: str = "",
    check: bool = True,
    most: int = 0,
    hear: Callable[[bytes], None] = lambda _: None,
) -> Completed:
    """Run ``argv`` on the device to its end, in a process group of its own.

    Whatever ends this function (deadline, Ctrl-C, broken connection), the group is ended on the device.

    Args:
        cwd: absolute folder on the device, made when only it is not there; or the login folder.
        env: added to the device's environment.
        pidfile: file on the device that gets the group's number while it runs.
        doing: completes "... while" in errors.
        check: raise `RunError` when the exit status is not 0.
        most: bytes that it may print; `MAX_OUTPUT` when 0.
        hear: called with each piece of its standard output, as it comes.

    Raises:
        DeadlineError: the time was over. UnreachableError: the connection broke. RunError: see ``check``.
        AnswerError: it said more than ``most``.
    """
    words = tuple(argv)
    doing = doing or f"running {words[0]}"
    deadline.check(doing)
    what = supervised(words, seconds=deadline.left(), cwd=cwd, env=env, pidfile=pidfile)
    with contextlib.closing(transport.start(what, deadline)) as channel:
        channel.heard.limit, channel.heard.doing = most or MAX_OUTPUT, doing
        try:
            done = finished(channel, words, deadline, hear)
        except BaseException:
            with uninterrupted():
                _end(transport, channel)
            raise
    if check and done.code != 0:
        raise RunError(
            f"{transport.name} failed while {doing} (exit {done.code}).",
            says(transport.name, done.message),
            f"./inv devices.verify {transport.name}, then the same command again",
        )
    return done


def _end(transport: Transport, channel: Channel) -> None:
    """End the supervised command of ``channel`` and wait for it.

    A connection on which nothing comes is closed: the end of its input reaches the device's supervisor with that, or
    the supervisor's own timer ends the group.
    """
    patience = Deadline.after(GRACE + _SLOW)
    channel.heard.forget()
    with contextlib.suppress(SlipwayError):
        channel.end_input()
        while not patience.over:
            if channel.pump(patience.left(_TICK)) is not None:
                return
        transport.close()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C for a short, bounded clean-up: a second one must not interrupt it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)


@contextlib.contextmanager
def interrupted_after() -> Iterator[None]:
    """Delay a first Ctrl-C to the block's end, so that its work is completed; a second one takes effect at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []

    def note(_number: int, frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
        if came and callable(before):
            before(signal.SIGINT, came[0])


GRACE = 3
"""Seconds between TERM and KILL."""
_PAUSES = "0.1 0.1 0.2 0.3 0.5 0.8 1"
"""Pauses between two checks whether the group is gone, `GRACE` in all; they grow, as checks cost a slow device much."""

_LONGEST = 24 * 3600
_EXTRA = 5.0
"""Seconds the device's own timer waits longer than this side: this side's message is better."""


def supervised(
    argv: Sequence[str], *, seconds: float, cwd: str = "", env: Mapping[str, str] | None = None, pidfile: str = ""
) -> list[str]:
    """``argv`` under the supervisor, as an argv for a device's own execve; for the arguments see `run`.

    The device ends the command itself after ``seconds``, and a little.
    """
    words = [f"{name}={value}" for name, value in (env or {}).items()]
    prefix = ["env", *words] if words else []
    limit = math.ceil(min(seconds + _EXTRA, _LONGEST))
    return ["sh", "-c", script("supervise"), "slipway", pidfile, str(limit), _PAUSES, cwd or ".", *prefix, *argv]


def marked(argv: Sequence[str]) -> list[str]:
    """``argv``, which prints the mark on both streams before all else."""
    mark = MARK.decode().strip()
    says = f"echo {mark};echo {mark} >&2\n"
    if list(argv[:2]) == ["sh", "-c"]:
        return ["sh", "-c", says + argv[2], *argv[3:]]
    return ["sh", "-c", f'{says}exec "$@"', "slipway", *argv]


class MacTransport(Transport):
    """A Mac: it gets the scripts that know its programs. Others stay as short as dropbear needs them."""

    def __init__(self, inner: Transport) -> None:
        self.name = inner.name
        self.inner = inner

    @property
    def longest(self) -> int:
        return self.inner.longest

    def start(self, argv: Sequence[str], deadline: Deadline = NEVER, /) -> Channel:
        return self.inner.start([for_mac().get(word, word) for word in argv], deadline)

    def close(self) -> None:
        self.inner.close()
