"""labgrid's own client session (`labgrid.remote.client.ClientSession`), for callers without an event loop.

A process has one session with a coordinator, however many threads use it: gRPC gives all channels of a process to one
address the same TCP connection, and the coordinator tells sessions apart by that connection, so that a second session
would fail (``peer not in self.clients``). All sessions run in one event loop, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

from core.environment import ensure
from core.errors import ConfigError, UnreachableError
from deploy.transport.deadline import NEVER, Deadline

VARIABLE = "LG_COORDINATOR"
"""labgrid's own environment variable for its coordinator."""
PROXY = "LG_PROXY"
"""labgrid's own environment variable for the SSH host through which coordinator and devices are reached."""
DEFAULT = "127.0.0.1:20408"
SECONDS = 15.0
"""Seconds within which the coordinator must answer."""
_GRACE = 5.0

_Answer = TypeVar("_Answer")


def client() -> Any:
    """The module `labgrid.remote.client`, installed if need be. Its import takes about a second."""
    ensure("labgrid")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own messages would go to the terminal
    # What gRPC does at a fork, while its threads run, ends one of ten children with SIGABRT before they begin.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    hook = sys.excepthook
    import labgrid.remote.client as module

    sys.excepthook = hook  # labgrid sets one of its own
    if proxy := os.environ.get(PROXY):
        module.proxymanager.force_proxy(proxy)  # it read the variable when it was imported
    return module


class _Complaints(logging.Handler):
    """The last complaint of a session about its coordinator, which labgrid only logs, to the root logger."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        if record.threadName == _THREAD:
            self.last = record.getMessage()


def _reason(complaint: str) -> str:
    """What went wrong, out of a text in which gRPC and labgrid tell how they tried."""
    for pattern in (_OF_SSH, _OF_NAMES, _OF_CONNECTIONS):
        if found := pattern.search(complaint):
            return found[1].strip()
    return complaint


_OF_SSH = re.compile(r"args \[.*\], returncode=\d+ .*b['\"](ssh: .*?)(?:\\r|\\n)*['\"]$", re.DOTALL)
_OF_NAMES = re.compile(r"errors resolving .*(?:address lookup failed for) (.*?)\]*$", re.DOTALL)
_OF_CONNECTIONS = re.compile(r"last error: \w+: (?:ipv[46]:\S+: )?(.*)$", re.DOTALL)
_THREAD = "labgrid"
_complaints = _Complaints()
_guard = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all sessions; it is started the first time. The caller holds the guard."""
    if not _loops:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
        logging.getLogger().addHandler(_complaints)
        atexit.register(loop.call_soon_threadsafe, loop.stop)
        _loops.append(loop)
    return _loops[0]


class Lab:
    """A session with a coordinator, shared by everything in this process that uses it.

    ``session`` is labgrid's. Only its coroutines may change it; reading its places and resources is safe anywhere.
    """

    _open: ClassVar[dict[str, Lab]] = {}

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, module: Any, session: Any) -> None:
        self.address, self.module, self.session = address, module, session
        self.name = f"{session.gethostname()}/{session.getuser()}"
        """``host/user``, as labgrid's client calls itself; ``LG_HOSTNAME`` and ``LG_USERNAME`` count here."""
        self.alive = True
        self._loop = loop
        self._users = 0

    @classmethod
    def join(cls, address: str, hint: str, deadline: Deadline = NEVER) -> Lab:
        """The session with the coordinator at ``address``; every `join` needs a `leave`.

        Args:
            hint: the next step if it cannot be reached.

        Raises:
            UnreachableError: it does not answer.
        """
        module = client()
        with _guard:
            lab = cls._open.get(address)
            if lab is None or lab.session.stopping.is_set():
                lab = cls._open[address] = cls._begin(address, module, hint, deadline)
            lab._users += 1
            return lab

    @classmethod
    def _begin(cls, address: str, module: Any, hint: str, deadline: Deadline) -> Lab:
        loop, seconds = _loop(), deadline.left(SECONDS)
        _complaints.last = ""

        async def begin() -> Any:
            session = module.ClientSession(reached, loop)
            try:
                await asyncio.wait_for(session.start(), seconds)
            except BaseException:
                await _end(session)
                raise
            return session

        try:
            # By ssh, if there is a proxy: outside of the loop, because it blocks.
            reached = module.proxymanager.get_grpc_address(address, default_port=20408)
            session = asyncio.run_coroutine_threadsafe(begin(), loop).result(seconds + _GRACE)
        except (
            module.Error, module.ExecutionError, asyncio.TimeoutError, concurrent.futures.TimeoutError, OSError,
            ValueError,
        ) as error:  # fmt: skip
            why = _reason(_complaints.last or str(error)) or f"no answer within {seconds:.0f} s"
            proxy = os.environ.get(PROXY)
            raise UnreachableError(
                f"The labgrid coordinator {address} cannot be reached" + (f" through {proxy}." if proxy else "."),
                why,
                f"ssh {proxy} true    ({PROXY}); then see that the coordinator runs" if proxy else hint,
            ) from error
        return cls(address, loop, module, session)

    def leave(self) -> None:
        """End the session if nobody else in this process uses it."""
        with _guard:
            self._users -= 1
            if self._users or not self.alive:
                return
            self.alive = False
            if Lab._open.get(self.address) is self:
                del Lab._open[self.address]
        with contextlib.suppress(concurrent.futures.TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(_end(self.session), self._loop).result(_GRACE)

    def call(self, coroutine: Coroutine[Any, Any, _Answer], seconds: float = SECONDS) -> _Answer:
        """Run a coroutine of the session, for ``seconds`` at most.

        Raises:
            UnreachableError: the coordinator has gone, or does not answer. Errors of gRPC are passed on.
        """
        # Its own limit first: a coroutine that is given up must not go on.
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, seconds), self._loop)
        try:
            return future.result(seconds + _GRACE)
        except (asyncio.TimeoutError, concurrent.futures.TimeoutError) as error:
            raise self.silent(f"no answer within {seconds:.0f} s") from error

    def ask(self, method: str, **words: Any) -> Any:
        """A request of the coordinator's protocol: ``ask("AcquirePlace", placename="pi")``.

        Raises:
            UnreachableError: it has gone. grpc's ``AioRpcError``: it refuses.
        """
        messages = self.module.labgrid_coordinator_pb2
        request = getattr(messages, f"{method}Request")(**words)

        async def send() -> Any:
            return await getattr(self.session.stub, method)(request, timeout=SECONDS)

        try:
            return self.call(send(), SECONDS + _GRACE)
        except self.module.grpc.aio.AioRpcError as error:
            if error.code() in (self.module.grpc.StatusCode.UNAVAILABLE, self.module.grpc.StatusCode.DEADLINE_EXCEEDED):
                raise self.silent(str(error.details())) from error
            raise

    def sync(self) -> None:
        """Wait until this side knows what the coordinator knows.

        Raises:
            UnreachableError: the coordinator has gone.
        """
        # labgrid would wait for ever after the session's end
        if self.session.stopping.is_set() or not self.call(self.session.sync_with_coordinator()):
            raise self.silent(_complaints.last or "it ended the session")

    def place(self, name: str) -> Any:
        """The place called ``name``, as the coordinator has it now.

        Raises:
            ConfigError: it was deleted.
        """
        found = self.session.places.get(name)
        if found is None:
            raise ConfigError(
                f"The labgrid coordinator {self.address} no longer has the place {name!r}.",
                "somebody deleted it",
                f"labgrid-client -x {self.address} places",
            )
        return found

    def silent(self, why: str) -> UnreachableError:
        """The error for a coordinator that was there and does not answer any more."""
        return UnreachableError(
            f"The labgrid coordinator {self.address} cannot be reached.",
            why,
            f"labgrid-client -x {self.address} places",
        )


async def _end(session: Any) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(session.stop(), _GRACE)
    await session.close()
