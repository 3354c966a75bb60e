"""Virtual devices by KVM: which machine may, and with which options."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import HostError
from deploy.virtual import machines
from deploy.virtual.image import Image
from deploy.virtual.spec import get_spec
from deploy.virtual.state import Folder
from deploy.virtual.supervisor import Launch
from toolchains.emulation import emulators, kvm


@pytest.fixture
def arm64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A 64-bit Arm machine with KVM; returns its device."""
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(kvm, "DEVICE", device)
    monkeypatch.setenv(kvm.VARIABLE, "on")
    return device


def test_a_device_of_this_machines_architecture_has_its_processor(
    arm64: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = get_spec("pi")
    words = kvm.machine_argv("pi", spec.arch, spec.qemu)
    assert words[:2] == ["-accel", "kvm"]
    assert words[words.index("-cpu") + 1] == "host"
    assert words[words.index("-M") + 1] == "virt,gic-version=host"
    assert words[2:].count("-smp") == 1
    assert "cortex-a72" in spec.qemu, "the table stays as it is"
    words = launched(tmp_path, monkeypatch)
    assert words[:3] == ["qemu", "-accel", "kvm"]
    assert "-plugin" not in words
    machines._check_kvm(get_spec("pi"), Folder.of("pi"), running=True)
    monkeypatch.delenv(kvm.VARIABLE)
    words = launched(tmp_path, monkeypatch)
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
def test_other_devices_are_refused_in_words(arm64: Path, name: str, cause: str) -> None:
    spec = get_spec(name)
    with pytest.raises(HostError, match=f"{name} cannot run by KVM here") as caught:
        kvm.machine_argv(name, spec.arch, spec.qemu)
    assert cause in caught.value.cause
    assert caught.value.hint.startswith("unset SLIPWAY_KVM")


def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words that start the virtual Pi."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        emulators, "system_argv", lambda arch, suite, *, count: ["qemu", *(["-plugin", "counts"] if count else [])]
    )
    folder = Folder.of("pi")
    machines._launch(get_spec("pi"), Image(Path("vmlinuz"), Path("initrd"), None), folder)
    return list(Launch.read(folder).argv)
