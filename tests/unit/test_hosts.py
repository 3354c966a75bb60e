"""Other hosts than this one: what the choice of words and tools is there, and virtual devices by KVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import HostError
from deploy.virtual import machines
from deploy.virtual.image import Image
from deploy.virtual.spec import get_spec
from deploy.virtual.state import Folder
from deploy.virtual.supervisor import Launch
from toolchains import doctor
from toolchains.debian import packages as debian
from toolchains.debian.host import host_arch
from toolchains.emulation import emulators, kvm, wine
from toolchains.targets import get_target


@pytest.fixture
def macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac with Apple's processor and nothing but Python."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setenv("PATH", str(tmp_path))
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


@pytest.fixture
def with_kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A 64-bit Arm machine with KVM; returns its device."""
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(kvm, "DEVICE", device)
    monkeypatch.setenv(kvm.VARIABLE, "on")
    return device


def test_a_device_of_this_machines_architecture_has_its_processor(
    with_kvm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = get_spec("pi")
    words = kvm.machine_argv("pi", spec.arch, spec.qemu)
    assert words[:2] == ["-accel", "kvm"]
    assert words[words.index("-cpu") + 1] == "host"
    assert words[words.index("-M") + 1] == "virt,gic-version=host"
    assert words[2:].count("-smp") == 1
    assert "cortex-a72" in spec.qemu, "the table stays as it is"
    words = launched(monkeypatch)
    assert words[:3] == ["qemu", "-accel", "kvm"]
    assert "-plugin" not in words
    machines._check_kvm(get_spec("pi"), Folder.of("pi"), running=True)
    monkeypatch.delenv(kvm.VARIABLE)
    words = launched(monkeypatch)
    monkeypatch.setenv(kvm.VARIABLE, "on")
    with pytest.raises(HostError, match="runs already, emulated") as caught:
        machines._check_kvm(get_spec("pi"), Folder.of("pi"), running=True)
    assert "./inv devices.stop pi" in caught.value.hint
    assert words[:3] == ["qemu", "-plugin", "counts"]
    assert words[words.index("-cpu") + 1] == "cortex-a72"
    assert "-accel" not in words


@pytest.mark.parametrize(
    ("name", "cause"), [("pi2", "this machine is arm64, the device armhf"), ("pi-zero", "the device armel")]
)
def test_other_devices_are_refused_in_words(with_kvm: Path, name: str, cause: str) -> None:
    spec = get_spec(name)
    with pytest.raises(HostError, match=f"{name} cannot run by KVM here") as caught:
        kvm.machine_argv(name, spec.arch, spec.qemu)
    assert cause in caught.value.cause
    assert caught.value.hint.startswith("unset SLIPWAY_KVM")


def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that start the virtual Pi."""
    monkeypatch.setattr(
        emulators, "system_argv", lambda arch, suite, *, count: ["qemu", *(["-plugin", "counts"] if count else [])]
    )
    folder = Folder.of("pi")
    machines._launch(get_spec("pi"), Image(Path("vmlinuz"), Path("initrd"), None), folder)
    return list(Launch.read(folder).argv)
