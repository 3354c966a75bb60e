"""From a device of the inventory to a connection: the only module that resolves one and starts a virtual one.

And where its programs run: on the device itself, on a CPU that QEMU emulates here, or under Wine here. The store, the
lock and the supervisor of an emulated device are those of this machine. Only the programs themselves run under the
emulator, and only the facts that they depend on are its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConfigError
from core.formats.bundle import Needs, runner_argv
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device, load_devices
from deploy.devices.probe import LOADERS
from deploy.transport.base import Transport
from deploy.transport.deadline import NEVER, Deadline

if TYPE_CHECKING:
    from deploy.transport.adb.transport import AdbTransport
    from deploy.transport.ssh.config import Address
    from toolchains.targets import Target


def ready(device: Device, target: str = "") -> None:
    """Prepare the first connection, outside of every deadline: start a virtual device, fetch the target's emulator.

    Raises:
        UnreachableError: it does not start. HostError, ConfigError
    """
    machine_of(device, target).prepare()
    if device.virtual:
        from deploy.virtual import machines as virtual

        virtual.ensure(device.virtual)
    if device.source == "labgrid":
        from core.environment import ensure

        ensure("labgrid")


def open_device(device: Device, deadline: Deadline = NEVER) -> Transport:
    """Connect to ``device``; a virtual one is started first, a lab's is `borrowed` first. Use it in a ``with`` block.

    Raises:
        UnreachableError, HostKeyError, AuthenticationError, ConfigError
    """
    if device.transport == "local":
        from deploy.transport.local import LocalTransport

        return LocalTransport(device.name)
    if device.transport == "adb":
        return open_adb(device, deadline)
    from deploy.transport.base import MacTransport
    from deploy.transport.ssh.transport import open_ssh
    from deploy.transport.ssh.windows import VERSION, WindowsTransport

    found = open_ssh(ssh_address(device), deadline)
    if VERSION in found.server:
        return WindowsTransport(found)
    return MacTransport(found) if device.target.startswith("macos-") else found


def open_adb(device: Device, deadline: Deadline = NEVER) -> AdbTransport:
    """Attach to ``device`` over adb, starting it first when it is a virtual one.

    Raises: see `deploy.transport.adb.transport.attached`.
    """
    from deploy.transport.adb.server import users_server
    from deploy.transport.adb.transport import attached

    if device.virtual:
        from deploy.virtual import machines as virtual
        from deploy.virtual.supervisor import Folder

        end, touch = virtual.ensure(device.virtual), Folder.of(device.virtual).touch
        return attached(virtual.private_server(), device.name, end.serial, touch, deadline)
    server = users_server()
    assert server is not None  # noqa: S101 - started above
    return attached(server, device.name, device.serial, deadline=deadline)


def ssh_address(device: Device) -> Address:
    """The address of ``device``: a virtual device is started, ``~/.ssh/config`` is read for a real one.

    Raises:
        ConfigError: that file cannot be read, or its jumps go in circles.
    """
    from deploy.transport.ssh.config import Address, configured

    if device.virtual:
        from deploy.virtual import machines as virtual

        end = virtual.ensure(device.virtual)
        return Address(device.name, end.host, end.port, end.user, end.key, (end.known_hosts,), virtual=device.virtual)
    if device.source == "labgrid":
        from deploy.lab.labgrid import locate

        device = locate(device)
    found = configured(device.name, device.host, device.user, device.port, device.jump, listed=_listed(device))
    if device.key:
        found = replace(found, key=device.key, key_given=True, keys=())
    if device.known_hosts:
        found = replace(found, known_hosts=(device.known_hosts,))
    if device.compress is not None:
        found = replace(found, compress=device.compress)
    return found


def _listed(device: Device) -> bool:
    """Whether the inventory has it, or names the file of its host key: then its name may be typed."""
    try:
        return bool(device.known_hosts) or device.name in load_devices()
    except ConfigError:
        return True


@dataclass(frozen=True)
class Machine:
    """The device itself: what runs there needs nothing more."""

    def prepare(self) -> None:
        """Fetch what it needs on this machine, once, outside of every deadline.

        Raises:
            HostError: that cannot be had here. ConfigError: the device's CPU does not run its target's programs.
        """

    def facts(self, facts: DeviceFacts, needs: Needs | None) -> DeviceFacts:
        """The facts as programs see them; ``facts`` are those of the probe."""
        del needs
        return facts

    def argv(self, words: Sequence[str], root: str, cwd: str, needs: Needs | None) -> list[str]:
        """The command that runs ``words``, a path below ``root`` and arguments, in the folder ``cwd`` below it."""
        del root, cwd, needs
        return list(words)


@dataclass(frozen=True)
class EmulatedCpu(Machine):
    """A CPU model of QEMU's user mode."""

    target: Target
    cpu: str

    def prepare(self) -> None:
        """See `Machine.prepare`."""
        from toolchains.emulation import emulators

        known = emulators.cpus(self.target)
        if self.cpu not in known:
            raise ConfigError(
                f"The CPU {self.cpu} is not one on which {self.target.name} programs run here.",
                f"those are {', '.join(known)}" if known else f"no emulator here runs them: {self.target.proof}",
                "./inv devices.list",
            )
        emulators.user_argv(self.target, self.cpu)
        self._sysroot()

    def facts(self, facts: DeviceFacts, needs: Needs | None) -> DeviceFacts:
        """See `Machine.facts`. The C library is the sysroot's, if programs use one.

        Of the CPU's features, those are named that every CPU of the target has: the kernels show what more it has.
        """
        from toolchains.compilers.libstdcxx import library
        from toolchains.inspect.read_elf import newest_defined

        root = self._sysroot()
        changes: dict[str, object] = {
            "machine": self.target.machine, "board": "", "cpu": f"{self.cpu} (QEMU)",
            "cpu_features": self.target.cpu_features, "abis": (), "loaders": (), "libraries": (),
            "libc": "", "glibc": "", "glibcxx": "",
        }  # fmt: skip
        if root is not None:
            wanted = needs.libraries if needs else ()
            changes |= {
                "loaders": tuple(name for name in LOADERS if (root / name.lstrip("/")).exists()),
                "libraries": tuple(name for name in wanted if library(root, self.target, name).exists()),
                "libc": "glibc",
                "glibc": newest_defined(library(root, self.target, "libc.so.6"), "GLIBC"),
                "glibcxx": newest_defined(library(root, self.target, "libstdc++.so.6"), "GLIBCXX"),
            }
        return facts.model_copy(update=changes)

    def argv(self, words: Sequence[str], root: str, cwd: str, needs: Needs | None) -> list[str]:
        """See `Machine.argv`. The caller's environment gives neither a library nor the emulator an option."""
        del root, cwd
        from toolchains.emulation.emulators import user_argv

        program, *others = words
        own = needs.own_loader if needs else ""
        alone = needs is None or bool(own) or needs.libc == "static"
        foreign = [word for name in os.environ if name.startswith(("LD_", "QEMU_")) for word in ("-u", name)]
        start = runner_argv(Path(program).parent.parent, own) if own else [program]
        return ["env", *foreign, *user_argv(self.target, self.cpu, None if alone else self._sysroot()), *start, *others]

    def _sysroot(self) -> Path | None:
        from toolchains.compilers.libstdcxx import sysroot

        return sysroot(self.target) if self.target.libc == "glibc" else None


@dataclass(frozen=True)
class UnderWine(Machine):
    """Windows, as Wine has it, on this machine's CPU."""

    target: Target

    def prepare(self) -> None:
        """See `Machine.prepare`."""
        from toolchains.emulation import wine

        wine.prefix(self.target)

    def facts(self, facts: DeviceFacts, needs: Needs | None) -> DeviceFacts:
        """See `Machine.facts`."""
        from toolchains.emulation import wine

        libraries = tuple(name for name in (needs.libraries if needs else ()) if wine.system_has(self.target, name))
        return facts.model_copy(
            update={
                "system": "Windows", "kernel": f"Wine on {facts.system} {facts.kernel}", "libc": "", "glibc": "",
                "glibcxx": "", "loaders": (), "libraries": libraries,
            }
        )  # fmt: skip

    def argv(self, words: Sequence[str], root: str, cwd: str, needs: Needs | None) -> list[str]:
        """See `Machine.argv`."""
        del needs
        from toolchains.emulation import wine

        program, *others = words
        here = [f"{name}={value}" for name, value in wine.environment(self.target).items()]
        seen = [word.replace(f"={root}/", f"={wine.SEEN_AS}/") for word in others]
        return ["env", "-i", *here, *wine.argv(self.target, Path(program), seen, above=Path(root), cwd=Path(cwd))]


def machine_of(device: Device, target: str) -> Machine:
    """Where programs for ``target``, the bundle's, run on ``device``; empty: for the device's own target."""
    if not (device.cpu or device.wine):
        return Machine()
    from toolchains.targets import get_target

    found = get_target(target or device.target)
    return EmulatedCpu(found, device.cpu) if device.cpu else UnderWine(found)
