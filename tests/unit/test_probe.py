"""What a device says of itself and of a run, which target it gets, and that what was set is set back."""

from __future__ import annotations

import os

import pytest

from core.errors import NotSupportedError, TransferError, UsageError
from deploy.devices import conditions
from deploy.devices.conditions import Snapshot, mask_of, signs, snapshot, wrapped
from deploy.devices.facts import DeviceFacts, choose_target
from deploy.devices.probe import parse
from deploy.run.settings import Settings
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from deploy.transport.local import LocalTransport
from toolchains.targets import load_targets

PI = """Welcome to the board, printed by a login script.

@@system
Linux
aarch64
6.6.31+rpt-rpi-v8
raspberrypi

@@home
/home/pi
@@root
/home/pi/.slipway
@@near
/home/pi
@@writable
yes
@@df
/dev/mmcblk0p2        30000000 9000000  20000000      31% /
@@mounts
/dev/mmcblk0p2 / ext4 rw,noatime 0 0
tmpfs /home tmpfs rw,noexec 0 0
/dev/sda1 /home/pi ext4 rw,nosuid 0 0
@@cpuinfo
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU part\t: 0xd08

Model\t\t: Raspberry Pi 4 Model B Rev 1.4
@@board
Raspberry Pi 4 Model B Rev 1.4\0
@@cores
4
@@memory
MemTotal:        3885396 kB
MemFree:          100000 kB
MemAvailable:    3500000 kB
@@loaders
/lib/ld-linux-aarch64.so.1
@@libraries
libc.so.6 /lib/aarch64-linux-gnu/libc.so.6
@@glibc
GLIBC_2.17
GLIBC_2.9
GLIBC_2.36
@@glibcxx
GLIBCXX_3.4.9
GLIBCXX_3.4.30
@@tools
sha256sum
stat
@@end
"""


def test_a_pi() -> None:
    facts = parse(PI)
    assert (facts.system, facts.machine, facts.hostname) == ("Linux", "aarch64", "raspberrypi")
    assert (facts.board, facts.cpu, facts.cores) == ("Raspberry Pi 4 Model B Rev 1.4", "Cortex-A72", 4)
    assert facts.cpu_features == ("fp", "asimd", "evtstrm", "crc32", "cpuid")
    assert (facts.libc, facts.glibc, facts.glibcxx) == ("glibc", "2.36", "3.4.30")
    assert facts.libraries == ("libc.so.6",)
    assert (facts.root, facts.free, facts.writable) == ("/home/pi/.slipway", 20_000_000 * 1024, True)
    assert (facts.memory_total, facts.memory_available) == (3885396 * 1024, 3500000 * 1024)
    assert (facts.android, facts.api_level, facts.abis) == ("", None, ())


def test_noexec_and_what_is_not_told() -> None:
    assert not parse(PI).noexec
    assert parse(PI.replace("@@near\n/home/pi\n", "@@near\n/home\n")).noexec
    assert not parse(PI.replace("@@near\n/home/pi\n", "@@near\n/homestead\n")).noexec
    assert parse(PI.replace("/dev/sda1 /home/pi", "tmpfs /home/pi tmpfs rw,noexec 0 0\nx /y")).noexec
    facts = parse("\n@@system\nLinux\nx86_64\n6.1\n@@root\n/x\n@@end\n")
    assert (facts.free, facts.glibc, facts.libc, facts.cpu_features, facts.cores) == (None, "", "", (), 1)
    facts = parse(PI.replace("ld-linux-aarch64.so.1", "ld-linux-armhf.so.3"))
    assert (facts.machine, facts.loaders) == ("aarch64", ("/lib/ld-linux-armhf.so.3",))


@pytest.mark.parametrize(
    ("glibc", "glibcxx"),
    [
        ("ld.so (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.", "/usr/lib/libstdc++.so.6.0.30"),
        ("/lib/aarch64-linux-gnu/libc-2.36.so", "GLIBCXX_3.4.9\nGLIBCXX_3.4.30\nGLIBCXX_3.4.30_NOT_A_VERSION"),
        ("GLIBC_2.4\nGLIBC_2.36\nGLIBC_2.9", "GLIBCXX_3.4.30"),
    ],
)
def test_versions_however_they_are_told(glibc: str, glibcxx: str) -> None:
    head, _, rest = PI.partition("@@glibc\n")
    _, _, tail = rest.partition("@@tools")
    facts = parse(f"{head}@@glibc\n{glibc}\n@@glibcxx\n{glibcxx}\n@@tools{tail}")
    assert (facts.glibc, facts.glibcxx, facts.libc) == ("2.36", "3.4.30", "glibc")


@pytest.mark.parametrize("text", ["", "This account is not available.\n", PI.replace("@@end", ""), PI.replace(
    "/home/pi/.slipway", "relative/.slipway")])  # fmt: skip
def test_no_answer(text: str) -> None:
    with pytest.raises(TransferError, match="did not answer the probe"):
        parse(text)


PHONE = PI.replace(
    "@@end",
    """@@android
[ro.build.version.release]: [14]
[ro.build.version.sdk]: [34]
[ro.product.cpu.abilist]: [arm64-v8a,armeabi-v7a,armeabi]
[ro.product.manufacturer]: [Acme]
[ro.product.model]: [A [5]: x]
[ro.empty]: []
@@end""",
)


def test_a_phone() -> None:
    facts = parse(PHONE)
    assert (facts.android, facts.api_level, facts.board) == ("14", 34, "Acme A [5]: x")
    assert facts.abis == ("arm64-v8a", "armeabi-v7a", "armeabi")
    old = PHONE.replace(
        "[ro.product.cpu.abilist]: [arm64-v8a,armeabi-v7a,armeabi]",
        "[ro.product.cpu.abi]: [armeabi-v7a]\n[ro.product.cpu.abi2]: [armeabi]",
    )
    assert parse(old).abis == ("armeabi-v7a", "armeabi")


def device(machine: str, *loaders: str, **more: object) -> DeviceFacts:
    return DeviceFacts.model_validate(
        {"system": "Linux", "machine": machine, "kernel": "6", "root": "/x", "loaders": loaders, **more}
    )


@pytest.mark.parametrize(
    ("facts", "target"),
    [
        (device("aarch64", "/lib/ld-linux-aarch64.so.1"), "linux-arm64"),
        (device("aarch64", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux-armhf.so.3"), "linux-arm64"),
        (device("aarch64", "/lib/ld-linux-armhf.so.3"), "linux-armv7"),
        (device("aarch64"), "linux-arm64"),
        (device("armv7l", "/lib/ld-linux-armhf.so.3", cpu_features=["neon", "vfp"]), "linux-armv7"),
        (device("armv7l", "/lib/ld-linux-armhf.so.3", cpu_features=["vfp"]), "linux-armv6"),
        (device("armv6l", "/lib/ld-linux.so.3", cpu_features=["vfp"]), "linux-armv6"),
        (device("x86_64", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2"), "linux-x86_64"),
        (device("x86_64", "/lib/ld-linux.so.2"), "linux-x86"),
        (device("i686", "/lib/ld-linux.so.2"), "linux-x86"),
        (device("aarch64", abis=["arm64-v8a", "armeabi-v7a"]), "android-arm64"),
        (device("aarch64", abis=["armeabi-v7a", "armeabi"]), "android-armv7"),
        (device("x86_64", abis=["riscv64", "x86_64", "x86", "arm64-v8a"]), "android-x86_64"),
        (device("i686", abis=["x86"]), "android-x86"),
    ],
)
def test_target(facts: DeviceFacts, target: str) -> None:
    assert choose_target(facts) == target
    assert target in load_targets()


@pytest.mark.parametrize(
    "facts",
    [
        *(device("riscv64"), device("armv6l"), device("riscv64", abis=["riscv64"]), device("mips64")),
        device("x86_64", "/lib64/ld-linux-x86-64.so.2", system="FreeBSD"),
    ],
)
def test_none(facts: DeviceFacts) -> None:
    with pytest.raises(NotSupportedError, match="No target") as caught:
        choose_target(facts)
    assert facts.system == "Linux" or facts.system in caught.value.cause


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
note affinity not set
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
    found = conditions.conditions(TEXT, "0-1", 3.21)
    assert (found.affinity, found.cooled_seconds) == ("", 3.2)
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
    masks = {"": "", "0": "1", "0,2-3": "d", "63": "8" + "0" * 15, "64": "1" + "0" * 16}
    assert {cores: mask_of(cores) for cores in masks} == masks
    for wrong in ("a", "3-1", "1;2", "-1"):
        with pytest.raises(UsageError, match="is not a list of cores"):
            mask_of(wrong)
    with pytest.raises(UsageError, match="INVOKE_SLIPWAY_RETRIES 'x' is not a whole number") as error:
        Settings.parse({"cpu_threads": 0, "retries": "x"})
    assert error.value.hint == "INVOKE_SLIPWAY_RETRIES=0", "it is no option"
    assert Settings.parse({"cpu_threads": 0, "retries": "3"}).retries == 3


def test_cores_are_set_and_what_the_program_says_is_not_the_devices_state() -> None:
    done = run(LocalTransport(), wrapped(["echo", "load 4711"], ""), deadline=Deadline.after(20))
    assert "load 4711" in done.text
    assert snapshot(done.text, "before").load1 not in {None, 4711.0}
    core = min(os.sched_getaffinity(0))
    argv = wrapped(["sh", "-c", "grep Cpus_allowed_list /proc/self/status"], str(core))
    done = run(LocalTransport(), argv, deadline=Deadline.after(20))
    assert f"Cpus_allowed_list:\t{core}\n" in done.text
    assert conditions.conditions(done.text, str(core), 0).affinity == str(core)


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
    assert conditions.conditions(told.decode(), "", 0).ran_seconds == 1.5
    assert conditions.conditions("ran  \n", "", 0).ran_seconds is None
