"""Start, find and end virtual devices.

A machine outlives the command that started it, so that the next command finds it up; its supervisor
(`deploy.virtual.supervisor`) ends it after a time of disuse. It listens only on 127.0.0.1 and accepts only
the key in the device's folder.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from core.console import step
from core.errors import ConfigError, HostError, UnreachableError
from core.files import disk_errors, locked, write_atomic
from core.processes.commands import lasting, own_module, quote
from deploy.virtual.spec import Spec, get_spec
from deploy.virtual.supervisor import PORT, Folder, Launch, State, read_state

if TYPE_CHECKING:
    from deploy.transport.adb.server import Server
    from deploy.virtual.image import Image

IDLE_VARIABLE = "SLIPWAY_IDLE_SECONDS"
"""Environment variable: seconds of disuse instead of the table's ``idle_minutes``, for machines started now."""

HOST = "127.0.0.1"
_END_SECONDS = 12.0
"""The supervisor gives QEMU 5 s to end well."""

_BANNER = b"host::features=shell_v2"
_CNXN = int.from_bytes(b"CNXN", "little")
_HELLO = struct.pack("<6I", _CNXN, 0x01000001, 1 << 20, len(_BANNER), sum(_BANNER), _CNXN ^ 0xFFFFFFFF) + _BANNER
"""An adb server's first message (adb's protocol.txt): command, version, most bytes, length and sum of the banner."""


@dataclass(frozen=True)
class Endpoint:
    """How to log in to a virtual device."""

    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path

    @property
    def serial(self) -> str:
        """What adb calls a device that is reached over TCP."""
        return f"{self.host}:{self.port}"


def status(name: str) -> State:
    """Whether ``name`` is up."""
    get_spec(name)
    return read_state(Folder.of(name)) or State(0, 0)


def ensure(name: str) -> Endpoint:
    """Start ``name`` unless it is up, wait until it answers, and mark it as used.

    Raises:
        ConfigError: no such device.
        HostError: QEMU or Debian's packages are not available.
        UnreachableError: it was started and its server did not answer in time.
    """
    spec, folder = get_spec(name), Folder.of(name)
    with disk_errors(f"starting {name}"):
        state = up(folder)
        _check_host(spec)
        if state is None:
            with locked(folder.lock):
                state = up(folder) or _boot(spec, folder)
    return Endpoint(HOST, state.port, spec.user, folder.key, folder.known_hosts)


def _check_host(spec: Spec) -> None:
    if platform.system() != "Linux":
        raise HostError(
            f"The virtual device {spec.name} does not run on {platform.system()}.",
            "what starts and ends virtual devices relies on Linux",
            "a device of your own (./inv devices.add --ssh USER@HOST), or Slipway on Linux (docs/build.md)",
        )


def up(folder: Folder) -> State | None:
    """The state of what answers already; it counts as used."""
    # Touch first, then read: the supervisor removes the state before it checks the touch for the last time.
    folder.touch()
    state = read_state(folder)
    return state if state is not None and state.ready else None


def stop(name: str) -> bool:
    """End ``name``; true when it was up. Returns when nothing of it is left."""
    get_spec(name)
    return _end(Folder.of(name))


def stop_all() -> list[str]:
    """End every virtual device that is up; their names. Also those that were removed from the table."""
    return [folder.path.name for folder in Folder.all() if _end(folder)]


def _end(folder: Folder) -> bool:
    """End the supervisor, and the machine with it; true when it was there."""
    owner = folder.owner()
    if not owner:
        return False
    _end_process(owner, lambda: folder.owner() == owner)
    gone(owner)  # it may be our own child
    if folder.owner() is None:
        folder.state.unlink(missing_ok=True)
    return True


def _end_process(pid: int, there: Callable[[], bool]) -> None:
    """By request, then at once, as long as the process is ``there``."""
    for number, seconds in ((signal.SIGTERM, _END_SECONDS), (signal.SIGKILL, 5.0)):
        end = time.monotonic() + seconds
        with contextlib.suppress(ProcessLookupError):
            if there():
                os.kill(pid, number)
        while there() and time.monotonic() < end:
            time.sleep(0.02)


def _boot(spec: Spec, folder: Folder) -> State:
    """Start the machine and wait for its server. The caller holds the folder's lock."""
    from deploy.virtual.image import image

    files = image(spec)
    _end(folder)  # it never answered, or the process that started it was killed
    with step(f"booting virtual device {spec.name}", f"boot {spec.name}"):
        public = _prepare(folder, files.initrd)
        _launch(spec, files, folder)

        def answered(state: State) -> bool:
            write_atomic(folder.known_hosts, f"[{HOST}]:{state.port} {public}\n")
            return answers(spec.system.login, HOST, state.port)

        late = f"its {spec.system.login} server did not answer within {spec.boot_seconds:.0f} s"
        state = supervised(folder, spec.boot_seconds, answered, late)
        if isinstance(state, State):
            folder.touch()
            return state
    raise UnreachableError(
        f"The virtual device {spec.name} did not come up: {state}.",
        f"the last lines of {folder.console} and {folder.log.name}:\n"
        f"{last_lines(folder.console)}\n{last_lines(folder.log)}",
        f"./inv devices.start {spec.name}   (again; with other work on this machine it may just be slow)",
    )


def _prepare(folder: Folder, initrd: Path) -> str:
    """Keys, and the archive with them in it; returns the device's public key."""
    from deploy.virtual.image import keys_archive

    host_public, public = ensure_key(folder.host_key), ensure_key(folder.key)
    with disk_errors("preparing the virtual device"):
        shutil.copyfile(initrd, folder.initrd)
        folder.initrd.chmod(0o600)
        with folder.initrd.open("ab") as file:
            file.write(keys_archive(folder.host_key.read_text(encoding="ascii"), public))
    return host_public


def _idle_seconds(spec: Spec) -> float:
    text = os.environ.get(IDLE_VARIABLE, "")
    try:
        seconds = float(text) if text else spec.idle_minutes * 60
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(f"{IDLE_VARIABLE}={text} is not a number of seconds above 0.", "", f"unset {IDLE_VARIABLE}")
    return seconds


def _launch(spec: Spec, files: Image, folder: Folder) -> None:
    from toolchains.emulation import emulators

    argv = [
        *emulators.system_argv(spec.arch, spec.emulator), *spec.qemu, "-nodefaults", "-display", "none",
        "-monitor", "none", "-serial", f"file:{folder.console}", "-no-reboot",
        "-kernel", str(files.kernel), "-initrd", str(folder.initrd),
        "-append", f"{spec.append} slipway.time={time.time():.0f}",
        # restrict: the machine reaches nothing; only this forward reaches it.
        "-netdev", f"user,id=net0,restrict=on,ipv6=off,hostfwd=tcp:{HOST}:{PORT}-:{spec.system.port}",
        "-device", f"{spec.netdev},netdev=net0",
        *(["-dtb", str(files.dtb)] if files.dtb else []),
    ]  # fmt: skip
    # adb's server keeps its connection for ever: only traffic through it counts as use, and each transport marks it.
    Launch(tuple(argv), _idle_seconds(spec), spec.system.login == "ssh").write(folder)
    folder.console.unlink(missing_ok=True)
    write_atomic(folder.log, f"$ {quote(argv)}\n", mode=0o600)


def spawn_supervisor(folder: Folder) -> int:
    """Start the supervisor in a session of its own, so that a Ctrl-C meant for us does not reach it."""
    with folder.log.open("ab") as log, Path(os.devnull).open("rb") as null:
        return os.posix_spawn(
            sys.executable,
            [*own_module("deploy.virtual.supervisor"), str(folder.path)],
            lasting(),
            file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), to) for file, to in ((null, 0), (log, 1), (log, 2))],
            setsid=True,
        )


def gone(pid: int) -> bool:
    """Whether a child of ours has ended."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def supervised(folder: Folder, seconds: float, answered: Callable[[State], bool], late: str) -> State | str:
    """Start a supervisor over the orders in ``folder``, and wait until what it runs has ``answered``.

    Gives its state, or why it is not up: it ended, or is ``late``. Nothing of it is left then.
    """
    pid = spawn_supervisor(folder)
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as failed:
        failed.callback(folder.state.unlink, missing_ok=True)
        failed.callback(_end_process, pid, lambda: not gone(pid))  # our child: its number is still its own
        while time.monotonic() < end and not gone(pid):
            state = read_state(folder)
            if state is not None and state.pid == pid and answered(state):
                state = replace(state, ready=True)
                state.write(folder.state)
                failed.pop_all()
                return state
            time.sleep(0.1)
        return "it ended" if gone(pid) else late


_TAIL = 16 << 10
"""Bytes of a log that a message quotes: the machine may have written any amount."""


def last_lines(file: Path) -> str:
    """The end of a log, for messages."""
    try:
        with file.open("rb") as source:
            source.seek(max(0, os.fstat(source.fileno()).st_size - _TAIL))
            return "\n".join(source.read(_TAIL).decode(errors="replace").splitlines()[-8:])
    except OSError:
        return f"({file.name} is empty)"


def answers(login: str, host: str, port: int, seconds: float = 3.0) -> bool:
    """Whether an ``ssh`` or ``adb`` server greets at the address within ``seconds``."""
    try:
        with socket.create_connection((host, port), 1) as connection:
            connection.settimeout(seconds)
            if login == "adb":
                connection.sendall(_HELLO)
                # AUTH and STLS are greetings too, of a server that checks the client's key.
                return connection.recv(4, socket.MSG_WAITALL) in {b"CNXN", b"AUTH", b"STLS"}
            return connection.recv(4, socket.MSG_WAITALL) == b"SSH-"
    except OSError:
        return False


def ensure_key(file: Path) -> str:
    """Make the private key ``file`` if it is not there; its public half as ``ssh-ed25519 AAAA...``."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_ssh_private_key,
    )

    try:
        key = load_ssh_private_key(file.read_bytes(), None)
    except (OSError, ValueError):
        key = Ed25519PrivateKey.generate()
        write_atomic(file, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode(), mode=0o600)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


ADB_SERVER = "adb-server"
"""Name of its folder among those of the devices."""
_ADB_IDLE_SECONDS = 20 * 60.0
_ADB_START_SECONDS = 20.0


def private_server() -> Server:
    """The server for virtual devices: started if it is not running, ended by its supervisor after disuse.

    Raises:
        HostError: this machine has no adb, or it does not start.
    """
    from deploy.transport.adb.server import Server

    folder = Folder.of(ADB_SERVER)
    state = up(folder)
    if state is None:
        with locked(folder.lock):
            state = up(folder) or _start_adb(folder)
    return Server(host=HOST, port=state.port)


def _start_adb(folder: Folder) -> State:
    """On 127.0.0.1 alone and a port of its own, without USB, its key beside its state: the user's own is left alone."""
    from deploy.transport.adb.server import adb_program

    settings = (
        f"ANDROID_USER_HOME={folder.path}", f"HOME={folder.path}", "ADB_USB=0", "ADB_MDNS_OPENSCREEN=0",
        "ADB_MDNS_AUTO_CONNECT=", "ADB_LOCAL_TRANSPORT_MAX_PORT=5554",
    )  # fmt: skip
    argv = ("/usr/bin/env", *settings, adb_program(), "-L", f"tcp:localhost:{PORT}", "nodaemon", "server")
    Launch(argv, _ADB_IDLE_SECONDS).write(folder)
    write_atomic(folder.log, "", mode=0o600)
    state = supervised(folder, _ADB_START_SECONDS, lambda state: _adb_answers(state.port), "it did not answer")
    if isinstance(state, State):
        return state
    hint = f"see {folder.log}, then the same command again"
    raise HostError("The adb server of the virtual devices did not start.", last_lines(folder.log), hint)


def _adb_answers(port: int) -> bool:
    from deploy.transport.adb.server import running_server

    try:
        return running_server(port) is not None
    except HostError:
        return False  # it listens before it answers
