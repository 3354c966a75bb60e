"""Other hosts than this one: what the choice of words and tools is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import HostError
from deploy.virtual import machines
from deploy.virtual.spec import get_spec
from toolchains import doctor
from toolchains.debian import packages as debian
from toolchains.debian.host import host_arch
from toolchains.emulation import emulators, wine
from toolchains.targets import get_target


@pytest.fixture
def macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac with Apple's processor and nothing but Python."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SLIPWAY_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    monkeypatch.setattr(doctor, "_said", lambda _: (True, "version 1.0"))


@pytest.fixture
def arm64(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Debian on 64-bit Arm."""
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(doctor, "_said", lambda _: (True, "version 1.0"))


def test_a_mac_is_told_what_works_there(macos: None) -> None:
    found = {check.name: check for check in doctor.checks()}
    assert {name for name, check in found.items() if not check.ok and not check.optional} <= {"disk", "pip"}
    assert "signatures checked" in found["Debian packages"].detail
    assert found["linux-arm64 with zig"].ok, "zig with the libraries of Debian's archive"
    assert found["macos-arm64 with zig"].ok
    assert not found["running linux-arm64"].ok
    assert "docs/build.md" in found["running linux-arm64"].fix
    assert "not run here" in found["running windows-x86_64"].detail
    with pytest.raises(HostError, match="virtual device pi does not run on Darwin") as caught:
        machines.ensure("pi")
    assert "devices.add" in caught.value.hint
    with pytest.raises(HostError, match="no qemu-aarch64"):
        emulators.user_argv(get_target("linux-arm64"))
    with pytest.raises(HostError, match="no qemu-system-aarch64"):
        emulators.system_argv("arm64")
    with pytest.raises(HostError, match="Debian's programs do not run"):
        host_arch()
    assert not wine.runs(get_target("windows-x86_64"))


def test_a_debian_on_64_bit_arm_is_native_there(arm64: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def tree(*words: object, **_: object) -> Path:
        asked.append(words)
        return Path("/tree")

    monkeypatch.setattr(debian, "tree", tree)
    assert emulators.user_argv(get_target("linux-arm64")) == []
    assert emulators.describe(get_target("linux-arm64")) == "native"
    assert emulators.user_argv(get_target("linux-x86_64"))[0] == "/tree/usr/bin/qemu-x86_64"
    assert asked == [("trixie", "arm64", ["qemu-user"])]
    assert not wine.runs(get_target("windows-x86_64"))
    found = {check.name: check for check in doctor.checks()}
    assert found["running linux-arm64"].family == "natively"
    assert found["running linux-x86_64"].family == "QEMU"
    assert get_spec("pi").arch == host_arch() == "arm64"
