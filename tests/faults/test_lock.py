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
from tests.support.processes import alive, ended, gone, marked, wait_for


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
    return sorted(path.name for path in (root / "lock").iterdir() if path.is_symlink())


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
        old = holder(root)
        os.kill(old, signal.SIGKILL)
        assert ended(lambda: alive(old))
        assert second.open([], soon()) is not None
        with pytest.raises(UnreachableError):
            first.lock.check()
        second.lock.check()


def hold(root: Path, **changes: str) -> None:
    """Leave the lock as a session that did not give it back does, with other words of its holder."""
    with session(root) as store:
        store.open([], soon(), make=True)
        (lock,) = (path for path in (root / "lock").iterdir() if path.is_symlink())
        names = ("node", "boot", "space", "pid", "start", "until", "who")
        words = {**dict(zip(names, str(lock.readlink()).split("|"), strict=True)), **changes}
        if "node" not in changes:
            (root / "lock" / f"{lock.name}.until").unlink()
    lock.unlink()
    lock.with_suffix(".free").unlink()
    lock.symlink_to("|".join(words.values()))


@pytest.mark.parametrize(
    "changes", [{"pid": "1", "start": "1"}, {"boot": "another"}, {"space": "another", "until": "1"}],
    ids=["process", "boot", "time"],
)  # fmt: skip
def test_a_lock_that_nobody_holds(root: Path, changes: dict[str, str]) -> None:
    hold(root, **changes)
    with session(root) as store:
        assert store.open([], soon()) is not None


@pytest.mark.parametrize("changes", [{"space": "another"}, {"node": "another", "boot": "another"}], ids=str)
def test_what_cannot_be_looked_at_is_believed_to_live(root: Path, changes: dict[str, str]) -> None:
    """Another namespace of processes; or another board, with which this one shares the root over a network."""
    hold(root, pid="1", start="1", who="ann@laptop", **changes)
    with session(root) as store, pytest.raises(DeviceBusyError, match="ann@laptop"):
        store.open([], soon(), wait=1)
    if "node" in changes:  # it was silent for long
        os.utime(root / "lock/1.until", (1, 1))
        with session(root) as store:
            assert store.open([], soon()) is not None


@pytest.mark.parametrize("beat", [0.2, 600.0], ids=["lives", "hangs"])
def test_a_session_that_says_nothing(root: Path, beat: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side hangs (a suspended laptop): its holder lives, and another ends it. While it beats, nobody does."""
    monkeypatch.setattr(lock_module, "BEAT", beat)
    monkeypatch.setattr(lock_module, "STALE", 2)
    with session(root) as first, session(root) as second:
        first.open([], soon(), make=True)
        old = holder(root)
        if beat < 1:
            with pytest.raises(DeviceBusyError):
                second.open([], soon(), wait=5)
            first.lock.check()
            return
        with pytest.raises(DeviceBusyError):
            second.open([], soon())
        assert second.open([], soon(), wait=20) is not None
        assert ended(lambda: alive(old))
        with pytest.raises(UnreachableError, match="dropped the lock"):
            first.lock.check()
        second.lock.check()


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
    assert (root / "lock/1.free").exists()


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
    slow = transport.start(["sh", "-c", text, "slipway", str(root), "slow", "slow", "60", "no", "0" * 32])
    while b"looked" not in slow.heard.stdout:
        assert slow.pump(0.1) is None
    with session(root) as second, session(root) as third:
        second.open([], soon())
        second.lock.release()
        third.open([], soon())
        assert generations(root) == ["2", "3"]
        (root / "lock/2").unlink()
        slow.send(b"\n", 1)
        wait_for(lambda: slow.pump(0.1) is not None, 20)  # else it took the lock, and stays
        assert b"busy\n" in slow.heard.stdout
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
