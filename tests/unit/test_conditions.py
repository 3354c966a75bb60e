"""The device around a run: what is read, what is set, and that it is set back whatever happens."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from core.errors import DeadlineError, UsageError
from deploy.devices import conditions
from deploy.devices.conditions import Snapshot, mask_of, signs, snapshot, wrapped
from deploy.scripts import script
from deploy.transport.base import Completed, run
from deploy.transport.deadline import Deadline
from deploy.transport.local import LocalTransport

TEXT = """\
@@before
cpu 0 600000 ondemand
cpu 1 700000 ondemand
zone 48312 cpu-thermal
zone 51000 cpu-thermal
zone -274000 broken
Temperature{mValue=33.4, mType=3, mName=skin, mStatus=0}
Temperature{mValue=NaN, mType=0, mName=cpu, mStatus=0}
cooling 0 cpufreq-cpu0
cooling 3 fan
throttled=0x50000
load 0.25
MemAvailable:    1000 kB
@@end
note governor set
load 386.894 ms, says the program itself
@@after
cpu 0 1500000 performance
zone 60000 cpu-thermal
cooling 2 cpufreq-cpu0
throttled=0x50008
"""


def test_what_the_device_tells() -> None:
    before = snapshot(TEXT, "before")
    assert before.governors == ("ondemand",)
    assert before.frequencies_khz == {"0": 600_000, "1": 700_000}
    assert before.temperatures_c == {"cpu-thermal": 48.312, "cpu-thermal#2": 51.0, "skin": 33.4}
    assert (before.hottest_c, before.cooling, before.throttled_bits) == (51.0, 0, 0x50000)
    assert (before.load1, before.memory_available) == (0.25, 1_024_000)
    assert snapshot("", "before") == Snapshot()
    found = conditions.conditions(TEXT, "performance", "0-1", 3.21)
    assert (found.governor, found.affinity, found.cooled_seconds) == ("performance", "", 3.2)
    assert found.throttled == ("soft temperature limit", "cooling by lower clocks")
    assert len(found.notes) == 1


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"throttled_bits": 0x50005}, {"throttled_bits": 0x50000}, 0),  # long ago
        ({"throttled_bits": 0x10000}, {"throttled_bits": 0x50000}, 1),  # in between, and over
        ({"throttle_count": 7}, {"throttle_count": 9}, 1),
        ({"throttle_count": 7}, {"throttle_count": 7}, 0),
        ({}, {}, 0),
    ],
)
def test_signs_of_throttling(before: dict[str, int], after: dict[str, int], words: int) -> None:
    assert len(signs(Snapshot.model_validate(before), Snapshot.model_validate(after))) == words


def test_cores_and_governors_are_checked() -> None:
    assert [mask_of(cores) for cores in ("", "0", "0,2-3", "63", "64")] == [
        "",
        "1",
        "d",
        "8" + "0" * 15,
        "1" + "0" * 16,
    ]
    for wrong in ("a", "3-1", "1;2", "-1"):
        with pytest.raises(UsageError, match="is not a list of cores"):
            mask_of(wrong)
    assert conditions.governor("performance") == "performance"
    with pytest.raises(UsageError, match="is not a governor"):
        conditions.governor("$(reboot)")


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cores of one policy, as the kernel lays them out."""
    cpu = tmp_path / "sys/devices/system/cpu"
    policy = cpu / "cpufreq/policy0"
    policy.mkdir(parents=True)
    (policy / "scaling_governor").write_text("powersave\n")
    (policy / "scaling_cur_freq").write_text("600000\n")
    for core in (0, 1):
        (cpu / f"cpu{core}").mkdir()
        (cpu / f"cpu{core}/cpufreq").symlink_to("../cpufreq/policy0")
    monkeypatch.setattr(conditions, "SYSFS", str(tmp_path / "sys"))
    return policy / "scaling_governor"


def go(tmp_path: Path, script: str, seconds: float = 20, cores: str = "") -> Completed:
    argv = wrapped(["sh", "-c", script], str(tmp_path / "note"), "performance", cores)
    return run(LocalTransport(), argv, deadline=Deadline.after(seconds), cwd=str(tmp_path), check=False)


def test_cores_are_set_and_what_the_program_says_is_not_the_devices_state(tmp_path: Path) -> None:
    argv = wrapped(["echo", "load 4711"], str(tmp_path / "note"), "", "")
    done = run(LocalTransport(), argv, deadline=Deadline.after(20))
    assert "load 4711" in done.text
    assert snapshot(done.text, "before").load1 not in {None, 4711.0}
    core = min(os.sched_getaffinity(0))
    argv = wrapped(["sh", "-c", "grep Cpus_allowed_list /proc/self/status"], str(tmp_path / "note"), "", str(core))
    done = run(LocalTransport(), argv, deadline=Deadline.after(20))
    assert f"Cpus_allowed_list:\t{core}\n" in done.text
    assert conditions.conditions(done.text, "", str(core), 0).affinity == str(core)


def test_what_came_with_the_end_is_taken_whole_or_not_at_all() -> None:
    files = conditions.Files(marker="m", most=100)
    data = b"\x00@@data\n\n@@files m\n"
    head = b"said\n@@end\nran 1.00 2.50\n@@files m\n"
    told = head + f"{len(data)} output0.npy\n2 result.json\n".encode() + b"@@data\n" + data + b"{}"
    assert files.brought(told) == {"output0.npy": data, "result.json": b"{}"}
    assert files.brought(told[:-1]) == {}
    assert files.brought(told + b"x") == {}
    assert files.brought(head + b"a output0.npy\n@@data\n") == {}
    assert files.brought(b"\n@@files other\n1 a\n@@data\nx") == {}
    assert conditions.conditions(told.decode(), "", "", 0).ran_seconds == 1.5
    assert conditions.conditions("ran  \n", "", "", 0).ran_seconds is None


@pytest.mark.parametrize("code", [0, 3, 137])
def test_the_governor_is_set_for_the_run_alone(sysfs: Path, tmp_path: Path, code: int) -> None:
    end = "kill -KILL $$" if code == 137 else f"exit {code}"
    done = go(tmp_path, f"cat {sysfs} >seen; {end}")
    assert done.code == code
    assert (tmp_path / "seen").read_text() == "performance\n"
    assert sysfs.read_text() == "powersave\n"
    assert not (tmp_path / "note").exists()
    found = conditions.conditions(done.text, "performance", "", 0)
    assert (found.before.governors, found.after.governors) == (("powersave",), ("performance",))
    assert (found.governor, found.notes) == ("performance", ())


def test_it_is_set_back_when_the_time_is_over_and_what_cannot_be_set_is_said(sysfs: Path, tmp_path: Path) -> None:
    with pytest.raises(DeadlineError):
        go(tmp_path, "sleep 4242", seconds=1)
    assert sysfs.read_text() == "powersave\n"
    assert not (tmp_path / "note").exists()
    sysfs.unlink()
    found = conditions.conditions(go(tmp_path, "exit 0").text, "performance", "", 0)
    assert found.governor == ""
    assert "not set at all" in found.notes[0]


def test_the_next_session_sets_back_what_a_killed_one_left(sysfs: Path, tmp_path: Path) -> None:
    def kill() -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.02)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    helper = threading.Thread(target=kill)
    helper.start()
    go(tmp_path, "echo $PPID >pid; sleep 42")
    helper.join()
    assert sysfs.read_text() == "performance\n"
    run(LocalTransport(), ["sh", "-c", script("unpin"), "slipway", str(tmp_path / "note")], deadline=Deadline.after(9))
    assert sysfs.read_text() == "powersave\n"
    assert not (tmp_path / "note").exists()
