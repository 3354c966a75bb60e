"""A process for each device, which deploys one cell at a time; this module is its program, too.

Requests come on its standard input, a line of JSON each; events and results go to its standard output the same way. It
is a process of its own so that Ctrl-C ends its deploy as it ends any deploy (the device is left in order), and so that
no device can block or crash another's. It ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from core.cli.start import again
from core.errors import INTERRUPTED, HostError, SlipwayError
from core.formats.bundle import Bundle
from core.paths import cache_dir
from core.processes.commands import own_module
from deploy.devices.inventory import Device
from deploy.matrix.model import Problem
from deploy.run.events import Event
from deploy.run.pipeline import deploy
from deploy.run.result import Result, result_key
from deploy.run.settings import Settings

CLEANUP = 30.0
"""Seconds that a worker has, after Ctrl-C, to end what runs on its device and give back the lock."""


class Worker:
    """The process that deploys to one device. It is started when it is needed, and again if it dies."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.log = cache_dir("logs") / f"matrix-{result_key(device, str(os.getpid()), 'worker')}.log"
        self._child: subprocess.Popen[str] | None = None
        self._starting = threading.Lock()
        self._stopped = False

    def run(self, device: Device, bundle: Bundle, path: Path, settings: Settings) -> Iterator[str | Result | Problem]:
        """Deploy: yields progress in words, and finally the result or the problem; nothing after `interrupt`."""
        child = self._ready()
        if child is None:
            return
        request = {
            "device": device.model_dump(mode="json", exclude_defaults=True), "bundle": str(bundle.path.absolute()),
            "path": str(path.absolute()), "settings": settings.model_dump(mode="json"),
        }  # fmt: skip
        with contextlib.suppress(BrokenPipeError):
            _pipe(child.stdin).write(json.dumps(request) + "\n")
            _pipe(child.stdin).flush()
        for line in _pipe(child.stdout):
            try:
                answer = json.loads(line)
            except ValueError:
                break  # it was ended in the middle of a line
            if "result" in answer:
                yield Result.model_validate(answer["result"])
                return
            if "problem" in answer:
                yield Problem.model_validate(answer["problem"])
                return
            yield str(answer["text"])
        if not self._stopped:
            yield self._died(child)

    def interrupt(self) -> None:
        """Interrupt the deploy as Ctrl-C does; returns at once."""
        with self._starting:
            self._stopped = True
            if self._child is not None and self._child.poll() is None:
                self._child.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill it; the device cleans up by itself when the connection breaks."""
        child = self._child
        if child is not None and child.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end, and kill it if it does not end by itself. For the caller of `run`, after it."""
        child, self._stopped = self._child, True
        if child is None:
            return
        with contextlib.suppress(BrokenPipeError):
            _pipe(child.stdin).close()
        try:
            child.wait(CLEANUP)
        except subprocess.TimeoutExpired:
            self.kill()
            child.wait()
        _pipe(child.stdout).close()
        if child.returncode in {0, INTERRUPTED}:
            self.log.unlink(missing_ok=True)

    def _ready(self) -> subprocess.Popen[str] | None:
        with self._starting:
            if self._child is None and not self._stopped:
                with self.log.open("a", encoding="utf-8") as log:
                    self._child = subprocess.Popen(
                        own_module("deploy.matrix.devices"),
                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                        text=True, encoding="utf-8", start_new_session=True,
                    )  # fmt: skip
            return None if self._stopped else self._child

    def _died(self, child: subprocess.Popen[str]) -> Problem:
        """Why it ended; the next cell has another one."""
        code, self._child = child.wait(), None
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(BrokenPipeError):
                _pipe(pipe).close()
        said = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        what = f"The process that deploys to {self.device} ended (exit {code})."
        return Problem.of(HostError(what, "; ".join(said), f"less {self.log}"))


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None  # noqa: S101 - the process was started with it
    return pipe


def main() -> int:
    """Serve requests until there are none; the exit status is `INTERRUPTED` after SIGINT."""
    sys.unraisablehook = again
    signal.signal(signal.SIGINT, signal.default_int_handler)  # our parent may ignore it
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        for line in sys.stdin:
            _say(answers, _serve(json.loads(line), answers))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _serve(request: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    def heard(event: Event) -> None:
        if event.kind in {"start", "note"} and event.text:
            _say(answers, {"event": event.kind, "text": event.text})

    try:
        result = deploy(
            Device.model_validate(request["device"]),
            Bundle.load(Path(request["bundle"]), verify=False),
            Path(request["path"]),
            Settings.model_validate(request["settings"]),
            listeners=[heard],
        )
    except SlipwayError as error:
        return {"problem": error.to_json()}
    return {"result": json.loads(result.model_dump_json())}  # infinities as texts: JSON has none


def _say(answers: IO[str], value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
