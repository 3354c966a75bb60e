"""A labgrid lab on loopback: its own coordinator and exporter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from deploy.devices.inventory import Device
from tests.support.processes import answers, reserved, wait_for
from toolchains.targets import host_target

HERE = Path(sys.executable).parent

_CLIENT = """
import json, os, sys
from labgrid.remote.client import main
for line in sys.stdin:
    words, env, file = json.loads(line)
    if child := os.fork():
        os.waitpid(child, 0)
        print("done", flush=True)
        continue
    output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(env)
    sys.argv = ["labgrid-client", *words]
    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
"""
"""labgrid's own client, which takes half a second to load, in copies of one process."""


def service(port: int, user: str) -> str:
    """A resource: where a device's SSH server listens."""
    return f"  NetworkService:\n    address: 127.0.0.1\n    port: {port}\n    username: {user}\n"


class Lab:
    """A coordinator, an exporter of ``resources`` (a group each), and a place for each."""

    def __init__(self, folder: Path, resources: dict[str, str]) -> None:
        port = reserved()
        self.address = f"127.0.0.1:{port}"
        self.folder = folder
        # The copies have no connection yet that gRPC would have to take care of.
        self._client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
        )  # fmt: skip
        self._turn = threading.Lock()
        self.processes = [self._start("labgrid-coordinator", "-l", self.address)]
        wait_for(lambda: answers(port))  # an exporter that is started before it is there ends
        self.export("rack", resources)
        self.client("-p", next(iter(resources)), "add-alias", "by-another-name")

    def export(self, exporter: str, resources: dict[str, str], *options: str) -> None:
        """Start an exporter of ``resources``, and make a place for each."""
        text = "".join(f"{name}:\n{each}" for name, each in resources.items())
        (self.folder / f"{exporter}-exports.yaml").write_text(text)  # the coordinator keeps its own in resources.yaml
        words = ("-c", self.address, "-n", exporter, *options, f"{exporter}-exports.yaml")
        self.processes.append(self._start("labgrid-exporter", *words))
        wait_for(lambda: all(f"{exporter}/{name}/" in self.client("resources") for name in resources), 300)
        for name in resources:
            self.client("-p", name, "create")
            self.client("-p", name, "add-match", f"{exporter}/{name}/*")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{words[0]}-{words[-1]}.log").open("wb")
        with log:
            return subprocess.Popen([HERE / words[0], *words[1:]], cwd=self.folder, stdout=log, stderr=log)

    def client(self, *words: str, user: str = "") -> str:
        """What labgrid's own client says."""
        env = {"LG_USERNAME": user, "LG_HOSTNAME": "elsewhere"} if user else {}
        said = self.folder / "client-said"
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        with self._turn:
            self._client.stdin.write(json.dumps([["-x", self.address, *words], env, str(said)]) + "\n")
            self._client.stdin.flush()
            assert self._client.stdout.readline() == "done\n"
            return said.read_text(encoding="utf-8")

    def device(self, place: str, key: str | Path, known_hosts: str | Path) -> Device:
        """A place's device for an inventory; it is of this machine's target."""
        return Device(
            name="desk", transport="ssh", source="labgrid", coordinator=self.address, place=place,
            target=host_target().name, key=Path(key), known_hosts=Path(known_hosts),
        )  # fmt: skip

    def holder(self, place: str) -> str:
        """Who has ``place``; empty for nobody."""
        (line,) = [line for line in self.client("-p", place, "show").splitlines() if "acquired: " in line]
        return line.partition("acquired: ")[2].strip().removeprefix("None")

    def close(self) -> None:
        """End all processes; each must end by itself."""
        with self._client:
            assert self._client.stdin is not None
            self._client.stdin.close()
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        ended = [_ended(process) for process in self.processes]
        assert all(ended)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended by itself; it is ended anyway."""
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True
