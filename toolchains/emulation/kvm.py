"""Virtual devices on this machine's own processor, by KVM, where it is of the device's architecture.

Only on request: the device's processor is then this machine's own instead of the one that the device is described with,
and instructions are not counted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from core.errors import ConfigError, HostError
from toolchains.debian.sources import host_arch

VARIABLE = "SLIPWAY_KVM"
"""Environment variable: ``on`` runs virtual devices by KVM, or says why that does not work."""

DEVICE = Path("/dev/kvm")


def wanted() -> bool:
    """Whether the user asks for KVM.

    Raises:
        ConfigError: the variable is neither on nor off.
    """
    text = os.environ.get(VARIABLE, "").lower()
    if text not in {"", "on", "off"}:
        raise ConfigError(f"{VARIABLE}={text} is neither on nor off.", "", f"unset {VARIABLE}")
    return text == "on"


def why_not(arch: str, machine: Sequence[str]) -> tuple[str, str]:
    """Why a device cannot run by KVM here, and the next step; two empty texts if it can.

    Args:
        arch: Debian's name of the device's architecture.
        machine: QEMU's options of the device.
    """
    emulate = f"unset {VARIABLE}: QEMU emulates the device"
    if host_arch() != arch:
        return f"this machine is {host_arch()}, the device {arch}", emulate
    if "virt" not in machine:
        return "it is a whole board, which only an emulator has", emulate
    if not DEVICE.exists():
        return f"there is no {DEVICE}: virtualization is off, or this machine is itself a virtual one", emulate
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"you may not open {DEVICE}", f"sudo usermod --append --groups kvm {os.environ.get('USER', 'YOU')}"
    return "", ""


def machine_argv(name: str, arch: str, machine: Sequence[str]) -> list[str]:
    """QEMU's options of a device that runs by KVM: this machine's processor and interrupt controller.

    Raises:
        HostError: it cannot run so here.
    """
    cause, hint = why_not(arch, machine)
    if cause:
        raise HostError(f"The virtual device {name} cannot run by KVM here.", cause, hint)
    words = list(machine)
    if "-cpu" in words:
        words[words.index("-cpu") + 1] = "host"
    words[words.index("virt")] = "virt,gic-version=host"
    return ["-accel", "kvm", *words]
