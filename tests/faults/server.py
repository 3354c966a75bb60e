"""A device over SSH in this process: asyncssh in a throw-away folder, with faults on demand.

Commands run as real processes of this machine under ``sh -c``, each in a session of its own, as OpenSSH's server
does it; SFTP serves this machine's files. What it adds is the power to misbehave at a given byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from deploy.devices.inventory import Device as Inventoried
from deploy.run.connect import open_device
from deploy.transport.base import run
from deploy.transport.deadline import Deadline
from tests.support.processes import reserved

USER = "pi"
SHELF = Inventoried(name="shelf", transport="ssh", host="shelf")
"""A device that the user's own configuration of SSH knows."""


def hello(device: Inventoried) -> str:
    with open_device(device, Deadline.after(30)) as transport:
        return run(transport, ["echo", "hello"], deadline=Deadline.after(20)).text.strip()


@dataclass
class Faults:
    """What shall go wrong; zero or false is never. Byte numbers count over all files that are uploaded."""

    full_after: int = 0
    """From this byte on every write fails as on a full disk."""
    cut_after: int = 0
    """At this byte the connection is cut."""
    corrupt_at: int = -1
    """The byte of this number arrives changed."""
    wrote: int = 0
    """Bytes written so far."""

    @property
    def is_full(self) -> bool:
        return 0 < self.full_after <= self.wrote

    def arrives(self, data: bytes) -> bytes:
        """What of ``data``, which was sent, arrives."""
        place, self.wrote = self.corrupt_at - self.wrote, self.wrote + len(data)
        return data if not 0 <= place < len(data) else data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@dataclass
class Device:
    home: Path
    port: int
    host_key: asyncssh.SSHKey
    client_key: Path
    known_hosts: Path
    faults: Faults
    connections: list[asyncssh.SSHServerConnection] = field(default_factory=list)
    files: list[Any] = field(default_factory=list)
    """Opened through SFTP; a channel that is cut leaves them open."""
    sessions: set[asyncio.Task[None]] = field(default_factory=set)
    loop: asyncio.AbstractEventLoop | None = None
    password: str = ""
    """Lets in too, when set."""
    shell: Callable[[str], list[str]] = lambda command: ["sh", "-c", command]
    """The argv for a command of a login."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of commands; this process's when empty."""
    forwarded: list[int] = field(default_factory=list)
    """Ports that were asked for through this device as a jump host."""

    def record(self, key: asyncssh.SSHKey) -> None:
        """Make ``key`` the one on record for this device."""
        public = key.export_public_key("openssh").decode().strip()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}\n")

    def entry(self, name: str) -> str:
        """Of a user's configuration of SSH."""
        login = f" User {USER}\n IdentityFile {self.client_key}\n"
        return f"Host {name}\n HostName 127.0.0.1\n Port {self.port}\n{login}"

    def cut(self) -> None:
        """Cut every connection as a pulled plug with a reset does."""
        assert self.loop is not None
        for connection in self.connections:
            self.loop.call_soon_threadsafe(connection.abort)


class _Server(asyncssh.SSHServer):
    def __init__(self, device: Device) -> None:
        self._device = device

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._device.connections.append(conn)

    def password_auth_supported(self) -> bool:
        return bool(self._device.password)

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, self._device.password)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """A jump host lets through to this machine alone."""
        self._device.forwarded.append(dest_port)
        return dest_host == "127.0.0.1"


class Sftp(asyncssh.SFTPServer):
    def __init__(self, channel: Any, device: Device) -> None:
        super().__init__(channel)
        self._device = device

    def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        opened = super().open(path, pflags, attrs)
        self._device.files.append(opened)
        return opened

    def write(self, file_obj: object, offset: int, data: bytes) -> Any:
        return super().write(file_obj, offset, self._device.faults.arrives(data))


async def _session(device: Device, process: asyncssh.SSHServerProcess[bytes]) -> None:
    task = asyncio.current_task()
    assert task is not None
    device.sessions.add(task)
    argv = device.shell(process.command or "true")
    child = await asyncio.create_subprocess_exec(
        *argv, cwd=device.home, env=device.environment or {**os.environ, "HOME": str(device.home)},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert child.stdin is not None
    uploads = "exec cat >" in (process.command or "")
    feed = asyncio.create_task(_upload(device, process, child) if uploads else _pump(process.stdin, child.stdin))
    await asyncio.gather(_pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr))
    with contextlib.suppress(OSError, asyncssh.Error):
        process.stdout.write_eof()  # of the channel: it has one for both streams
    code = await child.wait()
    feed.cancel()
    code = 1 if uploads and device.faults.is_full else code
    child.stdin.close()
    with contextlib.suppress(OSError, asyncssh.Error):
        process.exit(code) if code >= 0 else process.exit_with_signal(signal.Signals(-code).name[3:], False)


async def _upload(device: Device, process: asyncssh.SSHServerProcess[bytes], child: asyncio.subprocess.Process) -> None:
    """Move the bytes of a file to the command that writes it, with what shall go wrong."""
    faults = device.faults
    assert child.stdin is not None
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await process.stdin.read(65536):
            data = faults.arrives(data)
            if faults.cut_after and faults.wrote >= faults.cut_after:
                process.channel.get_connection().abort()
                break
            if faults.is_full:
                await asyncio.sleep(0.3)  # the command has begun
                process.stderr.write(b"cat: write error: No space left on device\n")
                child.kill()
                break
            child.stdin.write(data)
            await child.stdin.drain()
    child.stdin.close()


async def _pump(source: Any, sink: Any) -> None:
    """Move bytes until either end is gone; a lost connection ends the command's input, all that a server owes it."""
    with contextlib.suppress(OSError, asyncssh.Error, asyncssh.BreakReceived):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    if not isinstance(source, asyncio.StreamReader):
        with contextlib.suppress(OSError, asyncssh.Error):
            sink.write_eof()
    else:  # as sshd does: a command that still writes gets SIGPIPE
        source._transport.close()  # type: ignore[attr-defined]


@contextlib.contextmanager
def serve(
    folder: Path, authorized: bool = True, version: str = "", files: type[Sftp] | None = None
) -> Iterator[Device]:
    """Run a device whose home is ``folder/home``; its host key is on record, its key lets in if ``authorized``.

    Args:
        version: what the server says of itself; empty: what asyncssh says.
        files: its SFTP server; none: it has none.
    """
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    client = asyncssh.generate_private_key("ssh-ed25519")
    client_key = folder / "id"
    client_key.write_bytes(client.export_private_key("openssh"))
    client_key.chmod(0o600)
    allowed = client if authorized else asyncssh.generate_private_key("ssh-ed25519")
    (folder / "authorized_keys").write_bytes(allowed.export_public_key("openssh"))
    device = Device(home, reserved(), host_key, client_key, folder / "known_hosts", Faults())
    device.record(host_key)
    ready, stop = threading.Event(), asyncio.Event()
    failed: list[BaseException] = []

    async def main() -> None:
        device.loop = asyncio.get_running_loop()

        sftp = (lambda channel: files(channel, device)) if files else None
        async with asyncssh.listen(
            "127.0.0.1", device.port, server_factory=lambda: _Server(device), server_host_keys=[host_key],
            authorized_client_keys=str(folder / "authorized_keys"), encoding=None, allow_scp=False,
            process_factory=lambda process: _session(device, process), sftp_factory=sftp,
            server_version=version or (),
        ):  # fmt: skip
            ready.set()
            await stop.wait()
            for connection in device.connections:
                connection.abort()
            if device.sessions:
                await asyncio.wait(device.sessions, timeout=15)

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failed.append(error)
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="ssh-device", daemon=True)
    thread.start()
    assert ready.wait(120), "the server did not start"
    if failed:
        raise failed[0]
    try:
        yield device
    finally:
        assert device.loop is not None
        device.loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        for file in device.files:
            file.close()
        assert not thread.is_alive(), "the server did not stop"
