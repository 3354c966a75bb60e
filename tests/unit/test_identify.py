"""Which target a device gets from what it says of itself."""

from __future__ import annotations

import pytest

from core.errors import NotSupportedError
from deploy.devices.facts import DeviceFacts
from deploy.devices.identify import choose_target
from toolchains.targets import load_targets


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
    "facts", [device("riscv64"), device("armv6l"), device("riscv64", abis=["riscv64"]), device("mips64")]
)
def test_none(facts: DeviceFacts) -> None:
    with pytest.raises(NotSupportedError, match="No target"):
        choose_target(facts)


def test_another_system_is_none() -> None:
    with pytest.raises(NotSupportedError, match="No target") as caught:
        choose_target(device("x86_64", "/lib64/ld-linux-x86-64.so.2").model_copy(update={"system": "FreeBSD"}))
    assert "FreeBSD" in caught.value.cause
