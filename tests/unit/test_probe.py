"""What a device says of itself, as a Pi, a phone and a hostile one do, and which target it gets for that."""

from __future__ import annotations

import pytest

from core.errors import NotSupportedError, TransferError
from deploy.devices.facts import DeviceFacts, choose_target
from deploy.devices.probe import Mac, parse, parse_mac
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
    bare = "\n@@system\nLinux\nx86_64\n6.1\n@@root\n/x\n@@end\n"
    facts = parse(bare)
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


INTEL = """\
machdep.cpu.brand_string: Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz
machdep.cpu.features: FPU VME SSE SSE2 SSE3 SSSE3 FMA SSE4.1 SSE4.2 POPCNT AVX1.0 F16C
machdep.cpu.leaf7_features: BMI1 AVX2 BMI2
machdep.cpu.extfeatures: SYSCALL LZCNT
hw.optional.arm64: 0
hw.memsize: 17179869184
"""


def test_an_intel_mac_an_arm_one_and_nonsense() -> None:
    mac = parse_mac(INTEL.splitlines())
    assert (mac.cpu[:17], mac.memory_total) == ("Intel(R) Core(TM)", 17_179_869_184)
    assert {"sse2", "pni", "ssse3", "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "abm"} <= set(mac.features)
    assert "asimd" not in mac.features
    lines = ["hw.optional.arm64: 1", "hw.optional.arm.FEAT_I8MM: 1", "hw.optional.arm.FEAT_SME2: 0"]
    assert parse_mac(lines).features == ("fp", "asimd", "i8mm")
    assert parse_mac([]) == Mac()
    assert parse_mac(["no colon", "hw.memsize: -1", "hw.optional.arm.FEAT_NEW: 1"]) == Mac()
