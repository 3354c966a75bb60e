"""The lock on a device: one holder, given back whatever happens, never taken from one that lives."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import DeviceBusyError, TransferError, UnreachableError
from deploy.scripts import script
from deploy.store import lock as lock_module
from deploy.store.lock import DeviceLock
from deploy.store.store import Store
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.transport.local import LocalTransport
from deploy.virtual.supervisor import Process
from tests.support.processes import ended, gone, marked, wait_for


def soon() -> Deadline:
    return Deadline.after(30)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "it's a $(device)"
    assert gone(str(tmp_path))


def session(root: Path) -> Store:
    return Store(LocalTransport(), str(root))


def holder(root: Path) -> int:
    """Number of the holder's process on the device."""
    return next(pid for pid, argv in marked(str(root)).items() if "slipway" in argv)


def generations(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "lock").iterdir())


def test_one_at_a_time(root: Path) -> None:
    with session(root) as first, session(root) as second:
        assert first.open([], soon()) is None, "nothing is made for a look"
        assert not root.exists()
        assert first.open([], soon(), make=True) is not None
        with pytest.raises(DeviceBusyError, match=rf"in use by \S+@\S+, process {os.getpid()}") as caught:
            second.open([], soon())
        assert caught.value.exit_code == 25
        assert not second.lock.held
        first.lock.release()
        assert second.open([], soon()) is not None
        second.lock.check()


def test_waiting_for_its_end(root: Path) -> None:
    told: list[str] = []
    with session(root) as second:
        with session(root) as first:
            first.open([], soon(), make=True)
            begun = time.monotonic()
            threading.Timer(1.0, first.lock.release).start()
            assert second.open([], soon(), wait=20, waiting=told.append) is not None
        assert 0.8 < time.monotonic() - begun < 10
        assert len(told) == 1


def test_a_holder_that_was_killed_is_followed_at_once(root: Path) -> None:
    with session(root) as first, session(root) as second:
        first.open([], soon(), make=True)
        os.kill(holder(root), signal.SIGKILL)
        assert second.open([], soon()) is not None
        with pytest.raises((UnreachableError, DeviceBusyError)):
            first.lock.check()
        second.lock.check()


def test_a_restarted_device_has_no_holder(root: Path) -> None:
    with session(root) as store:
        store.open([], soon(), make=True)
    (released,) = root.glob("lock/*/released")
    lines = released.read_text().splitlines()
    lines[1] = "of another boot"
    lines[3] = "1 1"
    released.rename(released.with_name("holder")).write_text("\n".join(lines) + "\n")
    with session(root) as store:
        assert store.open([], soon()) is not None


@pytest.mark.parametrize("line", [0, 2], ids=["machine", "pid namespace"])
def test_what_cannot_be_looked_at_is_believed_to_live(root: Path, line: int) -> None:
    with session(root) as store:
        store.open([], soon(), make=True)
    (released,) = root.glob("lock/*/released")
    lines = released.read_text().splitlines()
    lines[line], lines[3] = "another", "1 1"
    released.rename(released.with_name("holder")).write_text("\n".join(lines) + "\n")
    with session(root) as store, pytest.raises(DeviceBusyError):
        store.open([], soon(), wait=1)


def test_a_heart_that_stands_still(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side hangs (a suspended laptop): its holder lives, and is told that it lost the device."""
    monkeypatch.setattr(lock_module, "BEAT", 600)
    monkeypatch.setattr(lock_module, "STALE", 1.0)
    with session(root) as first, session(root) as second:
        first.open([], soon(), make=True)
        old = holder(root)
        assert second.open([], soon(), wait=20) is not None
        assert ended(lambda: Process.of(old).start_time)
        with pytest.raises((UnreachableError, DeviceBusyError)):
            first.lock.check()
        second.lock.check()


def test_a_beating_heart_is_not_stolen_from(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "BEAT", 0.05)
    monkeypatch.setattr(lock_module, "STALE", 4.0)
    with session(root) as first, session(root) as second:
        first.open([], soon(), make=True)
        with pytest.raises(DeviceBusyError):
            second.open([], soon(), wait=6)
        first.lock.check()


def _check_until(lock: DeviceLock, seconds: float) -> None:
    """As a deploy does again and again: the next beat brings the answer."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lock.check()
        time.sleep(0.02)


def test_a_loser_that_wakes_up_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "BEAT", 0.1)
    with session(root) as first:
        first.open([], soon(), make=True)
        (root / "lock/99").mkdir()
        with pytest.raises(DeviceBusyError, match="taken over"):
            _check_until(first.lock, 30)


def test_the_runs_folder_and_its_processes_go_with_the_lock(root: Path) -> None:
    with session(root) as store:
        store.open([], soon(), make=True)
        folder = Path(store.run_folder)
        folder.mkdir()
        # It writes its number itself, once it has left the supervisor's group.
        escapes = "echo $$ >.pid.part; mv .pid.part .pid; exec sleep 4242"
        script = f"setsid sh -c '{escapes}' >/dev/null 2>&1 & while [ ! -e .pid ]; do sleep 0.02; done"
        run(LocalTransport(), ["sh", "-c", script], cwd=str(folder), deadline=soon())
        assert marked(str(folder)), "it escaped the supervisor"
    assert not folder.exists()
    assert list(root.glob("lock/*/released")) != []


def test_many_at_once_take_turns(root: Path) -> None:
    """Twelve sessions, each adding one to a number without any care of its own."""
    count = root.parent / "count"
    problems: list[Exception] = []
    count.write_text("0")

    def work() -> None:
        try:
            with session(root) as store:
                assert store.open([], Deadline.after(100), wait=90, make=True) is not None
                number = int(count.read_text())
                time.sleep(0.02)
                count.write_text(str(number + 1))
        except Exception as error:  # noqa: BLE001 - threads cannot raise
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert count.read_text() == "12"
    assert len(generations(root)) == 1


def test_a_slow_contender_undoes_nobody(root: Path) -> None:
    """It looked, fell asleep, and makes its number when that was used and forgotten: a higher one is there."""
    text = script("lock").replace("mine=$((last + 1))\n", "mine=$((last + 1)); echo looked; read -r go\n")
    assert text != script("lock")
    with session(root) as first:
        first.open([], soon(), make=True)
    transport = LocalTransport()
    slow = transport.start(["sh", "-c", text, "slipway", str(root), "slow", "slow", "", "no", "0" * 32])
    while b"looked" not in slow.heard.stdout:
        assert slow.pump(0.1) is None
    with session(root) as second, session(root) as third:
        second.open([], soon())
        second.lock.release()
        third.open([], soon())
        wait_for(lambda: generations(root) == ["3"])  # it forgets those before it once it has said that it is ready
        slow.send(b"\n", 1)
        wait_for(lambda: slow.pump(0.1) is not None, 20)  # else it took the lock, and stays
        assert b"busy 3:" in slow.heard.stdout
        third.lock.check()
        assert generations(root) == ["3"]
    slow.close()


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with session(tmp_path / "file/below") as store:
        assert store.open([], soon()) is None
        with pytest.raises(TransferError, match="making the store's folders"):
            store.open([], soon(), make=True)
    assert isinstance(store.lock, DeviceLock)
