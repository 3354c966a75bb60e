"""What the tests of virtual devices share: a machine of the test's own, and what every device must do."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import DeadlineError, PreflightError
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import FILE, Device, get_device
from deploy.devices.probe import device_root, probe
from deploy.run.connect import open_device
from deploy.run.execute import Executed, execute
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline
from deploy.virtual import machines as virtual
from tests.support.processes import gone
from tests.support.small_program import small_program


@contextlib.contextmanager
def own_devices(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Virtual devices started inside have a state of their own, and are ended with it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = factory.mktemp("devices")
        patch.setenv("SLIPWAY_DEVICES", str(folder))
        patch.delenv(virtual.IDLE_VARIABLE, raising=False)
        try:
            yield
        finally:
            assert virtual.stop_all()
            assert virtual.stop_all() == []
            assert gone(str(folder))


def facts_of(device: Device, transport: Transport) -> DeviceFacts:
    return probe(transport, device_root(device), None, Deadline.after(120))


def ask(transport: Transport, script: str, *words: str) -> str:
    return run(transport, ["sh", "-c", script, "test", *words], deadline=Deadline.after(120)).text


def left_over(transport: Transport, device: Device, facts: DeviceFacts) -> list[str]:
    """Unfinished files and run folders in the device's store, and processes of the small program."""
    files = ask(transport, 'cd "$1" && find incoming runs -mindepth 1; true', facts.root).split()
    script = (
        'for f in /proc/[0-9]*/comm; do read -r name <"$f" && [ "$name" = small ] && echo "$f"; done 2>/dev/null; true'
    )
    return files + ask(transport, script).splitlines()


def runs_programs(name: str, target: str, tmp_path: Path) -> None:
    """Push a static program of ``target`` to the device ``name`` and see streams, exit status, files, and an end."""
    device = get_device(name, FILE)
    assert device.target == target
    small = small_program(target)

    def go(*words: str, files: tuple[Path, ...] = (), timeout: float = 300) -> Executed:
        return execute(device, small, words, files, timeout)

    words = ["two words", "$HOME `id` 'quoted\"", "*", "-n", "ü"]
    first = go("echo", *words)
    assert (first.code, first.stdout.decode().splitlines(), first.stderr) == (0, words, b"done\n")
    assert first.uploaded == small.stat().st_size
    data = tmp_path / "a file's name, with $(odd) things"
    data.write_bytes(bytes(range(256)) * 300)
    second = go("cat", data.name, files=(data,))
    assert (second.code, second.stdout, second.uploaded) == (0, data.read_bytes(), data.stat().st_size)
    begun = time.monotonic()
    assert go("signal", "11").code == 139
    usual = time.monotonic() - begun

    with open_device(device) as transport:
        facts = facts_of(device, transport)
        with pytest.raises(DeadlineError, match="while running small"):
            go("sleep", timeout=10 + 2 * usual)  # on a busy host everything before takes longer too
        assert left_over(transport, device, facts) == []
        where = go("where")
        folder, temporary = where.stdout.decode().splitlines()
        assert folder.startswith(f"{facts.root}/runs/")
        assert temporary == folder
        assert (where.code, where.uploaded) == (0, 0)
        assert left_over(transport, device, facts) == []


def refuses(name: str, target: str) -> None:
    """A program of another kind is refused before anything is pushed."""
    with pytest.raises(PreflightError, match="nothing was uploaded"):
        execute(get_device(name, FILE), small_program(target))
