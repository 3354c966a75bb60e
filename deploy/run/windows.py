"""A deploy to Windows: everything is uploaded into a folder of the deploy's own, read back, run, and removed again.

Nothing is kept there, so nothing can be rolled back or change unseen, and each deploy uploads all of it. Deploys of
this machine take turns; those of other machines do not wait for them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from core.console.units import amount
from core.errors import AnswerError, TransferError
from core.files import locked, sha256_bytes, sha256_file
from core.plain import one_line, plain, says
from deploy.devices.facts import DeviceFacts
from deploy.devices.probe import TOOLS
from deploy.run import collect, generate, runner
from deploy.run.job import Sized
from deploy.run.result import Result, Upload, Verified, now
from deploy.run.session import Session
from deploy.run.settings import Settings
from deploy.store.store import Blob
from deploy.store.vouch import Vouched
from deploy.transport.hearing import natural
from deploy.transport.ssh.windows import FOLDER, WindowsTransport

_SET = "api-ms-win-"
"""Begin of libraries' names that stand for no file: since version 10 Windows knows itself who has their functions."""
_MACHINES = {"AMD64": "x86_64", "x86": "i686", "ARM64": "aarch64"}
_BEYOND = 255
"""Windows' own status of a program that crashed or did not start is above."""
_CRASHED = 10
"""The runner's own exit code for it."""


class WindowsSession(Session):
    """One deploy over one connection."""

    def go(self, settings: Settings, attempts: int = 1) -> Result:
        """See `Session.go`."""
        there = self.transport
        assert isinstance(there, WindowsTransport)  # noqa: S101 - only it has no POSIX shell
        needs = self.bundle.manifest.needs
        turn = sha256_bytes(str(there.address).encode())[:16]
        with locked(f"windows-{turn}", f"waiting: another deploy uses {self.device.name}"), ExitStack() as stack:
            with self.steps.step("probe", "probing the device"):
                facts = facts_of(stack.enter_context(there.opened(needs.libraries, self.deadline)), needs.libraries)
            files = self._files_there(there.runner)
            with self.steps.step("preflight") as step:
                found = self._preflight(facts, list(files.values()), step)
            upload = self._send(there, files)
            answer = self._call(there, settings, self.job)
            collect.check_read(answer, self.job, self.device.name)
            outputs, kept = self._outputs(answer, settings, there.folder, partial(self._call, there))
        evidence = (Vouched(how="digest now", since=now(), files=len(each)) for each in (self.job.files, self.parts))
        verified = Verified(program=next(evidence), bundle=next(evidence))
        return self._written(attempts, facts, found, upload, verified, answer, outputs, kept)

    def _files_there(self, runner_name: str) -> dict[str, Blob]:
        """The files of the folder, by their names in it."""
        parts = {path.rpartition("/")[2]: blob for path, blob in self.parts.items()}
        return {**{runner_name if name.startswith("pte_runner") else name: blob for name, blob in parts.items()},
                **self.job.files}  # fmt: skip

    def _send(self, there: WindowsTransport, files: dict[str, Blob]) -> Upload:
        """Upload ``files``, and read them back.

        Raises:
            TransferError: one is not what was uploaded.
        """
        total = sum(blob.size for blob in files.values())
        with self.steps.step("upload", f"uploading {len(files)} files to {self.device.name}") as step:
            progress = step.counter(total)
            with tempfile.TemporaryDirectory() as folder:
                back = Path(folder) / "back"
                for name, blob in files.items():
                    there.put(blob.source, f"{there.folder}/{name}", progress, self.deadline)
                    there.get(f"{there.folder}/{name}", back, blob.size, self.deadline)
                    if sha256_file(back) != blob.sha256:
                        raise TransferError(
                            f"{blob.source.name} arrived damaged on {self.device.name}.",
                            "it changed while it was read, or on a failing disk; it was not kept",
                            "the same command again",
                            (blob.source.name,),
                        )
            step.outcome = f"uploaded {len(files)} files, {amount(total)}"
        names = tuple(blob.source.name for blob in files.values())
        return Upload(files=len(files), bytes=total, names=names, present_files=0, present_bytes=0)

    def _call(self, there: WindowsTransport, settings: Settings, case: Sized) -> runner.RunnerResult:
        doing = f"running {self.job.name} on {self.device.name}"
        with self.steps.step("run", doing) as step:
            if settings.cpu_affinity:
                step.note("not kept to cores: Windows has no taskset")
            argv = self._argv(settings, case, there.runner, "")
            hear = generate.hearing(there, there.folder, settings.text, self.steps.tell, self.deadline)
            done = there.call(argv, self.deadline, doing, hear)
            said = collect.read_result(there, there.folder, {}, self.deadline)
            if done.code == 0:
                return runner.parse_result(said)
            code, text = done.code, done.stderr.decode(errors="replace")
            if code > _BEYOND:
                code, text = _CRASHED, f"{text}\nWindows' status of it is 0x{code:08X}"
            raise runner.failure(code, text, runner.error_in(said), self.device.name)


def facts_of(text: str, libraries: Sequence[str] = ()) -> DeviceFacts:
    """The facts in what a Windows device says of itself; of the needed ``libraries`` it always has the API sets.

    Raises:
        AnswerError: it printed something else.
    """
    said: dict[str, list[str]] = {}
    for line in plain(text).splitlines():
        if found := re.match(r"slipway ([a-z]+) +(.*)", line):
            said.setdefault(found[1], []).append(one_line(found[2].strip(), 200))
    machine = (" ".join(said.get("machine", [])).split() or [""])[0]
    version = re.search(r"Windows \[?([^\]\n]*[0-9][^\]\n]*)", text)
    if not machine:
        raise AnswerError(
            "The device did not say what it is.", says("the device", text[:200]), "the same command again"
        )
    return DeviceFacts(
        system="Windows",
        machine=_MACHINES.get(machine, machine),
        kernel=one_line(version[1], 60) if version else "",
        hostname=said.get("host", [""])[0],
        cpu=said.get("cpu", [""])[0],
        cores=natural(said.get("cores", [""])[0], 1 << 16) or 1,
        libraries=(*said.get("library", []), *(name for name in libraries if name.startswith(_SET))),
        tools=TOOLS,  # what they do elsewhere is not needed
        root=FOLDER,
    )
