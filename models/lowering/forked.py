"""Run a module's ``main`` in a copy of this process, which has loaded already what the module needs."""

from __future__ import annotations

import faulthandler
import gc
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
import warnings
import weakref

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def can_fork(runtime: str) -> bool:
    """Whether a copy of this process can work: on Linux, while the extension module ``runtime`` is not loaded here.

    A copy has only the thread that made it, so a runtime that has started its threads would wait for them for ever.
    macOS's own libraries do not work in a copy.
    """
    return sys.platform == "linux" and runtime not in sys.modules and not multiprocessing.current_process().daemon


def _serve(module: str, stdin: int, stdout: int, log: int, others: tuple[int, ...]) -> None:
    """What the copy does. It ends without what this process does at its end: files here are not the copy's."""
    code = 1
    try:
        # A session of its own: only the first process receives Ctrl-C, and ends the copy.
        os.setsid()
        for one in _ENDING:
            signal.signal(one, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        for descriptor in others:
            os.close(descriptor)
        for descriptor, number in ((stdin, 0), (stdout, 1), (log, 2)):
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # a model's file may have put others there
        faulthandler.disable()  # it would write to the first process's terminal
        if (torch := sys.modules.get("torch")) is not None:
            # The first process's threads are not in the copy: a loop over a large tensor would wait for them for ever.
            torch.set_num_threads(1)
        gc.freeze()  # a look for cycles would copy all pages of the first process
        importlib.import_module(module).main()
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is, it must not run the first process's own ends
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


class Forked:
    """A copy of this process that runs ``module``'s ``main``, with `subprocess.Popen`'s names for what it offers.

    Args:
        module: its ``main`` reads requests from descriptor 0 and answers to descriptor 1.
        log: the descriptor that the copy's errors go to.
    """

    def __init__(self, module: str, log: int) -> None:
        requests, ask = os.pipe()
        answers, answer = os.pipe()
        self.stdin = os.fdopen(ask, "w", encoding="utf-8")
        self.stdout = os.fdopen(answers, encoding="utf-8")
        _all.add(self)
        # A copy that kept these open would keep other copies waiting for requests.
        ours = tuple(end.fileno() for one in _all for end in (one.stdin, one.stdout) if not end.closed)
        self._process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(module, requests, answer, log, ours), daemon=True
        )
        # Blocked until the copy has its own handlers: ours would run in both.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of threads: ours draw progress, and hold nothing that the copy uses.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(requests)
            os.close(answer)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it still runs after ``timeout`` seconds.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("forked", timeout or 0.0)
        return self._process.exitcode

    def kill(self) -> None:
        """End it by SIGKILL, if it still runs."""
        self._process.kill()


_all: weakref.WeakSet[Forked] = weakref.WeakSet()
