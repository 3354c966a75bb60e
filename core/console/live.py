"""One live line for each step on a terminal: what is done, how far, for how long, and how long the last time.

Elsewhere (a pipe, a file, ``TERM=dumb``) a step is at most one plain line. A first deploy has a bar over all of it
(`Whole`), which begins before anything is installed. So nothing is imported from rich before a line is shown.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TextIO

from core.console import marks
from core.console.units import clock, size, took
from core.plain import json_text, plain

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress, TaskID

FIRST = "SLIPWAY_FIRST"
"""Set by ``inv`` while it makes the environment: the time, and the command that comes after."""
SECONDS = {"packages": 20.0, "exporter": 50.0, "weights": 6.0, "runner": 45.0, "export": 25.0, "run": 15.0}
"""What each part takes on two cores with 8 MB/s. ``exporter`` is installed beside ``weights`` and ``runner``."""
_PRIOR = 20.0
"""Seconds for which the table counts, beside what was measured since."""
_MOST = 0.95
"""Of a part that has not ended, and does not say how far it is, at most so much is taken as done."""


class Whole:
    """The parts of a first deploy. Every method may be called from any thread.

    Args:
        ago: seconds since it began with Slipway's own packages; None: they were here.
    """

    def __init__(self, ago: float | None = None) -> None:
        self._begun = time.monotonic() - (ago or 0.0)
        self._since: dict[str, float] = {}
        self._done = {"packages": 1.0} if ago is None else {}
        self._total = self._rest()
        self._share = 0.0

    @classmethod
    def resumed(cls) -> Whole | None:
        """The one that ``inv`` began, if a deploy comes after."""
        begun, _, command = os.environ.get(FIRST, "").partition(" ")
        ago = time.time() - float(begun) if begun.isdecimal() else -1.0
        return cls(ago) if command == "deploy" and 0 <= ago < 3600 else None

    def begin(self, part: str) -> None:
        """The part begins."""
        self._since[part] = time.monotonic()

    def far(self, part: str, done: float) -> None:
        """So much of the part is done, from 0 to 1."""
        self._done[part] = done

    def end(self, part: str) -> None:
        """The part has ended."""
        self._done[part] = 1.0

    def _rest(self) -> float:
        now = time.monotonic()
        left = {}
        for part, seconds in SECONDS.items():
            done = self._done.get(part)
            if done is None:
                done = min(_MOST, (now - self._since.get(part, now)) / seconds)
            left[part] = seconds * (1 - done)
        beside = max(left["exporter"], left["weights"] + left["runner"])
        return left["packages"] + beside + left["export"] + left["run"]

    def left(self) -> float:
        """Seconds that the rest takes: as the table says, by as much slower or faster as it was until now."""
        rest, passed = self._rest(), time.monotonic() - self._begun
        return rest * (passed + _PRIOR) / (self._total - rest + _PRIOR)

    def share(self) -> float:
        """What is done of all of it, from 0 to 1; never less than before."""
        passed = time.monotonic() - self._begun
        self._share = max(self._share, passed / (passed + self.left() + 1e-9))
        return self._share

    def __str__(self) -> str:
        left = round(self.left())
        return f"{self.share():4.0%}, about {left // 60}:{left % 60:02} left"


_LEAST = 0.5
"""Seconds from which a step's time is kept for the next time's estimate: shorter ones need none."""
_WORTH = 2.0
"""Seconds from which an estimate is shown."""
_KEPT = 500
"""Steps whose times are kept; the oldest make room."""
_KEY = 200
"""Characters of a step's key."""
_LOOK = 0.25
"""Seconds between two looks at a folder that another program downloads into."""


class Step:
    """A step that is shown. Every method may be called from any thread, and often."""

    def __init__(self, text: str, console: Console, key: str, announce: bool) -> None:
        self.text = text
        self.outcome = ""
        """What came of it, shown at its end instead of ``text``: ``uploaded 3 files, 14.2 MB``."""
        self.detail = ""
        self.done = 0
        self.total: int | None = None
        self.unit: Literal["", "bytes", "part"] = ""
        self.begun = time.monotonic()
        self.before: float | None = None
        """Seconds that it took the last time, if that is known."""
        self._console = console
        self._key = key
        self._announce = announce
        self._shown: tuple[Progress, TaskID] | None = None

    @property
    def live(self) -> bool:
        """Whether a line of it is on a terminal now."""
        return self._shown is not None

    @property
    def words(self) -> str:
        """What is being done."""
        return f"{self.text}: {self.detail}" if self.detail else self.text

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begun

    def now(self, detail: str) -> None:
        """Say what of the step is being done."""
        self.detail = detail

    def count(self, done: int, total: int | None = None) -> None:
        """Say how many of its things are done."""
        self._set(done, total, "")

    def one(self, count: int = 1) -> None:
        """Say that one more of its things is done."""
        self._set(self.done + count, self.total, "")

    def bytes(self, done: int, total: int | None = None) -> None:
        """Say how many bytes are through: the line has them with their rate."""
        self._set(done, total, "bytes")

    def part(self, done: float) -> None:
        """Say how much of it is done, from 0 to 1."""
        self._set(round(100 * done), 100, "part")

    def end(self, *, ok: bool = True) -> None:
        """Take its line away, say what came of it, and keep its time for the next one."""
        seconds, live = self.seconds, self.live
        said = self.outcome if ok else ""
        if live:
            _hide(self._console, self)
            if self._announce or said:
                _say(self._console, f"{said or self.text} ({took(seconds)})", "ok" if ok else "FAILED")
        elif said:
            _say(self._console, f"{said} ({took(seconds)})")
        if ok and self._key and seconds >= _LEAST:
            remember(self._key, seconds)

    def _set(self, done: int, total: int | None, unit: Literal["", "bytes", "part"]) -> None:
        self.done, self.total, self.unit = done, total or None, unit
        if self._shown is not None:
            progress, task = self._shown
            with contextlib.suppress(KeyError):
                progress.update(task, completed=done, total=self.total)


@contextlib.contextmanager
def step(text: str, key: str = "", *, announce: bool = True) -> Iterator[Step]:
    """Show the block as one step on stderr; see `begin`."""
    made = begin(text, key, announce=announce)
    try:
        yield made
    except BaseException:
        made.end(ok=False)
        raise
    made.end()


def begin(text: str, key: str = "", *, announce: bool = True, stream: TextIO | None = None) -> Step:
    """Begin to show a step on stderr, until its `Step.end`.

    On a terminal it is one live line, which its end replaces by a line with a mark and the time. Elsewhere it is one
    plain line when it begins; without ``announce``, when it ends and has an `Step.outcome`.

    Args:
        text: a verb and an object: ``building linux-arm64``.
        key: by which the time of the last one is found (``build linux-arm64 lean``); empty: no estimate.
        announce: without it a step that has no outcome leaves no line behind.
        stream: instead of stderr, for a caller who has redirected that.
    """
    console = _console(stream)
    made = Step(text, console, key[:_KEY], announce)
    if console.is_terminal and not console.is_dumb_terminal:
        before = recall(key) if key else None
        made.before = before if before and before >= _WORTH else None
        _show(console, made)
    elif announce:
        _say(console, text)
    return made


@contextlib.contextmanager
def first() -> Iterator[Whole]:
    """While the block, a first deploy, runs, a terminal shows one bar over all of it; the steps only name it."""
    made = Whole.resumed() or Whole()
    made.end("packages")
    os.environ.pop(FIRST, None)
    _whole.append(made)
    try:
        with step("", announce=False):
            yield made
    finally:
        _whole.clear()


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """The block is a part of a first deploy, if this is one."""
    for made in _whole:
        made.begin(name)
    yield
    for made in _whole:
        made.end(name)


def share(name: str, done: float) -> None:
    """So much of a part is done, if this is a first deploy."""
    for made in _whole:
        made.far(name, done)


_whole: list[Whole] = []


@contextlib.contextmanager
def growing(made: Step, folder: Path) -> Iterator[None]:
    """Show the bytes of the wheels that pip downloads into ``folder`` while the block runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK):
            # A file may be renamed while we look.
            with contextlib.suppress(OSError):
                made.bytes(sum(file.lstat().st_size for file in folder.rglob("*.whl")))

    watcher = threading.Thread(target=watch, daemon=True)
    if made.live:
        watcher.start()
    try:
        yield
    finally:
        over.set()
        if made.live:
            watcher.join()


def _console(stream: TextIO | None) -> Console:
    if stream is None:
        return marks.err()
    from rich.console import Console

    with _lock:
        for known in _screens:
            if known.file is stream:
                return known
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _say(console: Console, text: str, word: str = "") -> None:
    console.print(marks.marked(text, word), soft_wrap=True)


# What is shown now, by console: one display with a line for each step.
_lock = threading.RLock()
_screens: dict[Console, tuple[Progress, list[Step]]] = {}
_pauses: list[object] = []
"""Blocks of `paused` that are open."""


def _show(console: Console, made: Step) -> None:
    with _lock:
        if console not in _screens:
            _screens[console] = (_progress(console), [])
        progress, steps = _screens[console]
        # The first step of a first deploy is the whole of it.
        made._shown = (progress, progress.add_task("", total=made.total, step=made, visible=not (_whole and steps)))
        steps.append(made)
        if len(steps) == 1 and not _pauses:
            progress.start()


def _hide(console: Console, made: Step) -> None:
    with _lock:
        progress, steps = _screens[console]
        if made._shown is not None:
            progress.remove_task(made._shown[1])
        made._shown = None
        steps.remove(made)
        if not steps:
            progress.stop()
            del _screens[console]


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Take the live lines away while another program writes to the terminal, those of steps that begin then, too."""
    with _lock:
        _pauses.append(None)
        for progress, _ in _screens.values():
            progress.stop()
    try:
        yield
    finally:
        with _lock:
            _pauses.pop()
            for progress, _ in () if _pauses else _screens.values():
                progress.start()


def _progress(console: Console) -> Progress:
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task
    from rich.progress_bar import ProgressBar
    from rich.table import Column
    from rich.text import Text

    class What(ProgressColumn):
        max_refresh = None

        def render(self, task: Task) -> Text:
            made: Step = task.fields["step"]
            if made.text:
                return Text(plain(made.words))
            _, steps = _screens[console]
            return Text(plain("; ".join(filter(None, [one.words for one in steps[1:]]))))

    class Bar(BarColumn):
        def render(self, task: Task) -> Any:
            if _whole:
                return ProgressBar(1.0, _whole[0].share(), 16)
            return super().render(task) if task.total else Text("")

    class Far(ProgressColumn):
        max_refresh = None

        def render(self, task: Task) -> Text:
            return Text(str(_whole[0]) if _whole else far(task.fields["step"], task.speed))

    return Progress(
        SpinnerColumn(),
        What(table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        Bar(16, table_column=Column(no_wrap=True)),
        Far(table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        expand=True,
        redirect_stdout=False,  # a result on stdout must not end up on stderr
        redirect_stderr=console.stderr,
    )


def far(made: Step, rate: float | None) -> str:
    """How far a step is: ``3.1 of 14 MB, 2.2 MB/s, 0:02 of about 0:06``."""
    parts = []
    if made.unit == "bytes" and made.done:
        parts.append(f"{size(made.done)} of {size(made.total)}" if made.total else size(made.done))
        if rate:
            parts.append(f"{size(rate)}/s")
    elif made.unit == "part":
        parts.append(f"{made.done}%")
    elif made.total and not made.unit:
        parts.append(f"{made.done}/{made.total}")
    passed = made.seconds
    left = (made.total - made.done) / rate if made.unit == "bytes" and made.total and rate else None
    expected = made.before if left is None else passed + left
    if expected is None:
        parts.append(clock(passed))
    elif passed <= expected + 1:
        parts.append(f"{clock(passed)} of about {clock(expected)}")
    else:
        parts.append(f"{clock(passed)}, the last time {clock(expected)}")
    return ", ".join(parts)


def _file() -> Path:
    from core.paths import cache_dir

    return cache_dir("times") / "steps.json"


def _times() -> dict[str, float]:
    """The seconds that steps took the last time; nothing if that cannot be read: it is an estimate only."""
    from core.errors import SlipwayError
    from core.strict_json import parse_json

    try:
        found = parse_json(_file().read_bytes())
    except (OSError, ValueError, SlipwayError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: float(took) for key, took in found.items() if isinstance(took, int | float) and 0 < took < 1e6}


def recall(key: str) -> float | None:
    """The seconds that the step took the last time."""
    return _times().get(key[:_KEY])


def remember(key: str, seconds: float) -> None:
    """Keep a step's time. Two at once: one of them is kept. Nothing waits for the disk, for it is an estimate only."""
    from core.errors import SlipwayError

    times = _times()
    times.pop(key[:_KEY], None)
    times[key[:_KEY]] = round(seconds, 2)
    with contextlib.suppress(OSError, SlipwayError):
        file = _file()
        temporary = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        temporary.write_text(json_text(dict(list(times.items())[-_KEPT:])) + "\n", encoding="utf-8")
        temporary.replace(file)
