"""``./inv devices.run``: push any executable to a device, run it there, and bring back its streams and exit status.

It uses the same store, run folder, supervisor and deadline as a deploy; files that are there are not pushed again.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import PreflightError, UsageError
from core.formats.bundle import Needs
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.devices.probe import device_root, probe
from deploy.lab.labgrid import borrowed
from deploy.run.connect import machine_of, open_device, ready
from deploy.run.preflight import of_device
from deploy.store.store import Blob, Store, Survey
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from toolchains.inspect import needs as inspect


@dataclass(frozen=True)
class Executed:
    """An executable that ran to its end."""

    device: str
    argv: tuple[str, ...]
    code: int
    """Exit status; 128 + n when signal n ended it."""
    stdout: bytes
    stderr: bytes
    seconds: float
    """Seconds from its start on the device to its end, as measured here."""
    uploaded: int
    """Bytes that the device lacked."""

    def to_json(self) -> dict[str, object]:
        """For ``--json``; bytes that are not UTF-8 are replaced."""
        texts = {"stdout": self.stdout.decode(errors="replace"), "stderr": self.stderr.decode(errors="replace")}
        return {**vars(self), "argv": list(self.argv), **texts}


def execute(
    device: Device,
    executable: Path,
    arguments: Sequence[str] = (),
    files: Sequence[Path] = (),
    timeout: float = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Executed:
    """Lock ``device`` and run ``executable`` on it, in a folder of its own, which is removed afterwards.

    Args:
        files: files for its working folder, under their own names.
        timeout: seconds from the first attempt to connect to the end; 0 takes the device's own.
        say: called with what is waited for: a lab's device that others use is, for ``timeout`` seconds more.

    Raises:
        UsageError: a file is missing, or two have the same name. PreflightError: it cannot run on the device.
        SlipwayError: what connecting, uploading and running raise.
    """
    blobs = _blobs(executable, files)
    target = target_of(device, executable)
    ready(device, target)
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(borrowed(device, timeout or device.timeout, say))
        deadline = Deadline.after(timeout or device.timeout)
        transport = stack.enter_context(open_device(held, deadline))
        needs = needs_of(executable, files)
        machine = machine_of(device, target)
        facts = machine.facts(probe(transport, device_root(device), needs, deadline), needs)
        check(executable, needs, facts, device.name)
        with Store(transport, facts.root) as store:
            sent = _upload(store, blobs, deadline)
            words = [f"{store.run_folder}/{executable.name}", *arguments]
            begun = time.monotonic()
            done = run(
                transport,
                machine.argv(words, store.root, store.run_folder, needs),
                cwd=store.run_folder,
                env={"TMPDIR": store.run_folder},
                pidfile=store.pidfile,
                deadline=deadline,
                doing=f"running {executable.name} on {transport.name}",
                check=False,
            )
            took = round(time.monotonic() - begun, 3)
    return Executed(device.name, (executable.name, *arguments), done.code, done.stdout, done.stderr, took, sent)


def split(text: str) -> list[str]:
    """Arguments as a shell would split them.

    Raises:
        UsageError: a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"--args {text!r} cannot be split.", str(error), "quote each argument as for a shell"
        ) from error


def _blobs(executable: Path, files: Sequence[Path]) -> dict[str, Blob]:
    everything = [executable, *files]
    missing = [str(file) for file in everything if not file.is_file()]
    names = [file.name for file in everything]
    if missing:
        raise UsageError(f"There is no file {', '.join(missing)}.", "", "give the path of an executable", missing)
    if len(set(names)) != len(names):
        raise UsageError("Two of the files have one name.", ", ".join(names), "rename one of them", names)
    return {file.name: Blob.of(file, executable=file == executable) for file in everything}


def needs_of(executable: Path, beside: Sequence[Path] = ()) -> Needs | None:
    """What an ELF file requires of a device besides the files that come with it; ``None`` for scripts and others."""
    with executable.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
    binary = inspect.read(executable)
    brought = {file.name for file in beside}
    return Needs(
        os="linux",
        machine=binary.machine,
        loader=binary.interpreter,
        libraries=tuple(name for name in binary.needed if name not in brought and not name.startswith("ld-")),
        glibc=binary.versions.get("GLIBC", ""),
        glibcxx=binary.versions.get("GLIBCXX", ""),
    )


def target_of(device: Device, executable: Path) -> str:
    """The target of ``device`` whose programs are for the machine of ``executable``; its own for scripts and others."""
    if not (device.cpu or device.wine):
        return device.target
    from core.errors import BuildError
    from toolchains.targets import get_target

    with contextlib.suppress(BuildError):
        machine = inspect.read(executable).machine
        return next((name for name in (device.target, *device.targets) if get_target(name).machine == machine), "")
    return device.target


def check(executable: Path, needs: Needs | None, facts: DeviceFacts, name: str) -> None:
    """Check that the device can run an executable.

    Raises:
        PreflightError: another machine, or a loader, library or version that the device lacks.
    """
    bad = [one for one in of_device(needs, facts) if one.verdict == "bad"] if needs else []
    wrong = [f"{one.check}: needs {one.needs}; has {one.has}" for one in bad]
    if not needs and facts.noexec:
        wrong = [f"{facts.root} is mounted noexec"]
    if wrong:
        raise PreflightError(
            f"{executable.name} cannot run on {name}; nothing was uploaded.",
            "\n".join(wrong),
            "build it for the device's target, statically linked: ./inv devices.list shows which",
            [needs.machine] if needs is not None else [],
        )


def _upload(store: Store, blobs: dict[str, Blob], deadline: Deadline) -> int:
    names = [f"store/{blob.sha256}" for blob in blobs.values()]
    survey = store.open(names, deadline, wait=deadline.left(), make=True) or Survey()
    store.discard(survey.stale, deadline)
    there = [f"store/{blob.sha256}" for blob in blobs.values() if survey.has(f"store/{blob.sha256}", blob)]
    # A run links its files, which changes their looks: their digests are computed each time.
    whole = {digest for digest, _ in store.verify(there, deadline).values()} if there else set()
    missing = {blob.sha256: blob for blob in blobs.values() if blob.sha256 not in whole}
    store.upload(missing.values(), lambda _: None, deadline)
    store.arrange(f"runs/{store.owner}", blobs, deadline)
    return sum(blob.size for blob in missing.values())
