"""Conan homes of a test's own, and Conan's server: what another machine has and reaches."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core import environment
from tests.support.processes import answers, ran, reserved

USER, PASSWORD = "demo", "demo"
_CONF = """\
[server]
jwt_secret: {secret}
jwt_expire_minutes: 120
ssl_enabled: False
port: {port}
host_name: 127.0.0.1
authorize_timeout: 1800
disk_storage_path: {data}
disk_authorize_timeout: 1800
updown_secret: {secret}
[write_permissions]
*/*@*/*: *
[read_permissions]
*/*@*/*: *
[users]
demo: demo
"""
_LAUNCH = (
    "import sys; from conans.server.launcher import ServerLauncher; "
    "ServerLauncher(server_dir=sys.argv[1]).server.run(host='127.0.0.1')"
)
"""Its own command listens on every address of the machine."""
_SECONDS = 120.0


@dataclass(frozen=True)
class Home:
    """Conan with a home folder of its own, and nothing of the user's or Slipway's configuration."""

    folder: Path

    def conan(self, *words: str | os.PathLike[str], cwd: Path, code: int = 0) -> str:
        """What ``conan WORDS`` printed; it must end with this exit code."""
        done = ran([sys.executable, "-m", "conans.conan", *words], cwd=cwd, env=self.environment())
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout + (done.stderr if code or "--format=json" not in words else "")

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CONAN_", "CMAKE_"))}
        path = os.pathsep.join([os.fspath(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
        return {**kept, "PATH": path, "CONAN_HOME": os.fspath(self.folder), "NO_COLOR": "1"}


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """Conan's server on 127.0.0.1 while the block runs; its URL. ``folder`` is made for its files."""
    folder.mkdir()
    port = reserved()
    text = _CONF.format(secret=os.urandom(16).hex(), port=port, data=folder / "data")
    (folder / "server.conf").write_text(text, encoding="utf-8")
    apart = environment.apart("server")
    env = {**os.environ, "PYTHONPATH": os.fspath(apart), "CONAN_USER_HOME": os.fspath(folder)}
    with serving([sys.executable, "-c", _LAUNCH, os.fspath(folder)], port, folder, env):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def serving(argv: list[str], port: int, folder: Path, env: dict[str, str] | None = None) -> Iterator[None]:
    """A server's process, from when it answers on a port of 127.0.0.1."""
    with (folder / "log").open("w", encoding="utf-8") as log:
        child = subprocess.Popen(argv, env=env, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            deadline = time.monotonic() + _SECONDS
            while not answers(port):
                assert child.poll() is None and time.monotonic() < deadline, (folder / "log").read_text("utf-8")
                time.sleep(0.1)
            yield
        finally:
            child.terminate()
            child.wait()
