"""Run programs on this machine's upstream runtimes, in a process of their own. Without torch.

A runtime may crash on a program that lowering got wrong. The process is a copy of this one where torch is loaded here
already: to load it again takes 3 s of a processor. Else it is ``python -m models.reference.host``. It answers one
request a line.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ExportError, HostError
from core.formats.program import BY_ONNX, Method, TensorFile
from core.paths import IMPORTS, ROOT
from core.processes.commands import ANSWER
from models.lowering.progress import trace

if TYPE_CHECKING:
    from typing_extensions import Self

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


_GRACE = 3.0  # seconds for the process to end by itself

MODULES = {"pte": "models.reference.host", "onnx": "models.onnx.host"}
"""The other end for programs of each format."""
_RUNTIME = "executorch.extension.pybindings._portable_lib"


class Host:
    """Upstream's Python runtime; starts with `start` or the first request, ends with the ``with`` block."""

    def __init__(self, log: Path, format: str = "pte") -> None:  # noqa: A002
        self.log = log
        """The file that the runtime's output is appended to."""
        self.delegates = True
        """Whether the program may have delegates: who has asked for none is not advised to."""
        self._module = MODULES[format]
        self._child: subprocess.Popen[str] | Forked | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            child.stdin.close()  # type: ignore[union-attr]  # a pipe was asked for
        with contextlib.suppress(subprocess.TimeoutExpired):
            if kind is None:
                child.wait(_GRACE)
        child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]  # a pipe was asked for

    def start(self) -> None:
        """Start the process if its start can overlap with the caller's own work; does not wait for it to be ready."""
        if not self._forks():
            self._running()

    def _forks(self) -> bool:
        return self._module == MODULES["pte"] and can_fork(_RUNTIME)

    def _running(self) -> subprocess.Popen[str] | Forked:
        if self._child is None:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            path = [os.fspath(IMPORTS), *filter(None, [os.environ.get("PYTHONPATH")])]
            with self.log.open("a", encoding="utf-8") as log:
                if self._forks() and "torch" in sys.modules:
                    self._child = Forked(self._module, log.fileno())
                    return self._child
                # A session of its own: only we receive Ctrl-C, and we end it.
                self._child = subprocess.Popen(
                    [sys.executable, "-m", self._module],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        return self._child

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request and its answer; the caller and the module at the other end define their contents.

        Raises:
            ExportError: the runtime refuses the program or crashes; with names where it knows what to do about those
                inputs or outputs.
            HostError: the runtime is missing. OSError: a full disk.
        """
        child = self._running()
        assert child.stdin is not None and child.stdout is not None  # noqa: S101  # pipes were asked for
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps({**request, "log": os.fspath(self.log)}) + "\n")
            child.stdin.flush()
        line = child.stdout.readline(ANSWER)
        if len(line) == ANSWER:
            child.kill()
            raise HostError(
                "Upstream's runtime printed more than an answer.",
                "something else in its process prints",
                f"read {self.log}",
            )
        if not line:
            code = child.wait()
            self.__exit__(HostError, None, None)
            if code > 0:
                raise HostError(
                    "Upstream's runtime did not start.", f"its process ended with {code}", f"read {self.log}"
                )
            hint = "export it again, or check the file with onnx.checker"
            if self._module == MODULES["pte"]:
                hint = (
                    "export with the default partitioner options, or with --partitioners none"
                    if self.delegates
                    else BY_ONNX
                )
            raise ExportError(
                "Upstream's runtime crashes on the program.",
                f"its process ended with {signal.Signals(-code).name}: the exporter accepted what it cannot run",
                hint,
            )
        answer: dict[str, Any] = json.loads(line)
        if answer.get("errno"):
            raise OSError(answer["errno"], answer["error"])  # a full disk: the caller knows what was being written
        if "error" in answer:
            raise ExportError(
                "Upstream's runtime does not run the program on this machine.",
                "\n".join(str(answer["error"]).splitlines()[-6:]),
                answer.get("fix") or f"read what it printed in {self.log}",
                answer.get("names", ()),
            )
        return answer

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of these backends and operators that this machine's runtime lacks."""
        return list(self.request({"names": list(names)})["missing"])

    def run_often(
        self,
        folder: Path,
        file: str,
        inputs: Sequence[TensorFile],
        executions: Sequence[int],
        method: str = "forward",
        end: str = "",
        first: Sequence[Method] = (),
    ) -> dict[int, list[TensorFile]]:
        """Run it several times without loading it again; outputs by the number of the execution, as ``outputN-K.npy``.

        Args:
            executions: those whose outputs are kept, in ascending order.
            end: of the names of the first execution's outputs, ``output0<end>.npy``.
            first: methods that are executed once before.

        Raises:
            ExportError: the runtime refuses it or crashes.
            HostError: the runtime is missing.
        """
        request = {
            "folder": os.fspath(folder),
            "file": file,
            "method": method,
            "inputs": [one.model_dump() for one in inputs],
            "executions": list(executions),
            "end": end,
            "first": [[one.name, [each.model_dump() for each in one.inputs]] for one in first],
        }
        found = [[TensorFile.model_validate(one) for one in each] for each in self.request(request)["executions"]]
        return dict(zip(executions, found, strict=True))


_SAID = re.compile(r"^\[(?!cpuinfo)[\w.]+:\d+\] (.+)", re.MULTILINE)
"""A line of the runtime's own log."""


def _run(request: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Execute a program on the inputs beside it; write its outputs beside it, as ``outputN.npy``.

    Outputs of a later execution are ``outputN-EXECUTION.npy``.
    """
    from executorch.runtime import Runtime

    from models.loading import reference

    folder, keep = Path(request["folder"]), request.get("executions") or [1]
    tensors = [reference.load(folder, TensorFile.model_validate(one)) for one in request["inputs"]]
    program = Runtime.get().load_program(folder / request["file"])
    earlier = [(program.load_method(name), files) for name, files in request.get("first", ())]
    method = program.load_method(request["method"])
    # All of them are loaded before one runs: a load gives the state its first values.
    for one, files in earlier:
        one.execute([reference.load(folder, TensorFile.model_validate(file)) for file in files])
    found = []
    for number in range(1, max(keep) + 1):
        values = method.execute(tensors)
        if number in keep:
            outputs = reference.flat(values)
            end = f"-{number}" if number > 1 else request.get("end", "")
            found.append(
                [reference.save(folder, f"output{index}{end}", one).model_dump() for index, one in enumerate(outputs)]
            )
    return found


def _said(log: Path, begin: int) -> list[str]:
    """What the runtime said first, which is the cause, and at which operator; of the log from ``begin`` on."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = _SAID.findall(file.read().decode(errors="replace"))
    return list(dict.fromkeys([*lines[:1], *[one for one in lines if " operator " in one][:1]]))


Answer = dict[str, Any]


def serve(
    requests: Iterable[str], run: Callable[[Answer], Answer], explain: Callable[[Exception, Answer, int], Answer]
) -> None:
    """Answer requests until there are no more; what is printed meanwhile goes to each request's log.

    Args:
        explain: the answer after a failure, with the place in the log where the request began.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # the runtime's output must not mix with the answers
    for request in map(json.loads, requests):
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        begin = os.lseek(log, 0, os.SEEK_END)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        try:
            answer = run(request)
        except OSError as error:
            answer = {"errno": error.errno, "error": str(error)}
        except Exception as error:  # noqa: BLE001  # whatever the runtime raises is the answer
            answer = explain(error, request, begin)
            trace(error)
        answers.write(json.dumps(answer) + "\n")


def _requested(request: Answer) -> Answer:
    """The executions of a program, or those of some backends and operators that this wheel's runtime lacks."""
    if "names" not in request:
        return {"executions": _run(request)}
    from executorch.runtime import Runtime

    runtime = Runtime.get()
    have = {*runtime.backend_registry.registered_backend_names, *runtime.operator_registry.operator_names}
    return {"missing": [name for name in request["names"] if name not in have]}


def _explained(error: Exception, request: Answer, begin: int) -> Answer:
    said = _said(Path(request["log"]), begin)
    found = {"error": "\n".join([f"{type(error).__name__}: {error}", *said])}
    if any(" operator " in one for one in said):
        found["fix"] = f"{BY_ONNX}: that runtime has kernels of its own"
    return found


def _requests() -> Iterator[str]:
    importlib.import_module("executorch.runtime")
    importlib.import_module("executorch.kernels.quantized")  # registers its kernels with the runtime
    yield from os.fdopen(os.dup(0), encoding="utf-8")


def main() -> None:
    """Answer with upstream's runtime."""
    serve(_requests(), _requested, _explained)
    gc.freeze()  # Python's last look for cycles takes a second with all of torch in memory


if __name__ == "__main__":
    main()
