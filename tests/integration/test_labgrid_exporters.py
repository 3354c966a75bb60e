"""Places of several labgrid exporters, used at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.devices.inventory import Device
from deploy.run.execute import execute
from tests.faults import server
from tests.integration.test_labgrid import Lab
from toolchains.targets import host_target

pytestmark = pytest.mark.virtual

SCRIPT = """\
#!/bin/sh
while [ ! -e "$HOME/go" ]; do sleep 0.1; done
echo "$1"
"""


def test_places_of_two_exporters_are_used_at_once(tmp_path: Path) -> None:
    """Each script ends only when both places are held: one after the other, they would never end."""
    script = tmp_path / "wait.sh"
    script.write_text(SCRIPT)
    for name in ("lab", "one", "two"):
        (tmp_path / name).mkdir()
    with server.serve(tmp_path / "one" / "board") as one, server.serve(tmp_path / "two" / "board") as two:
        boards = {"desk": one, "shelf": two}
        lab = Lab(tmp_path / "lab", {"desk": (one.port, server.USER)})
        try:
            (tmp_path / "lab" / "cellar.yaml").write_text(  # the coordinator keeps its own in resources.yaml
                f"shelf:\n  NetworkService:\n"
                f"    address: 127.0.0.1\n    port: {two.port}\n    username: {server.USER}\n"
            )
            lab.processes.append(lab._start("labgrid-exporter", "-c", lab.address, "-n", "cellar", "cellar.yaml"))
            lab.wait(lambda: "cellar/shelf/" in lab.client("resources"), 300)
            lab.client("-p", "shelf", "create")
            lab.client("-p", "shelf", "add-match", "cellar/shelf/NetworkService")
            devices = {
                name: Device(
                    name=name, transport="ssh", source="labgrid", coordinator=lab.address, place=name,
                    target=host_target().name, key=Path(board.client_key), known_hosts=Path(board.known_hosts),
                )
                for name, board in boards.items()
            }  # fmt: skip
            with ThreadPoolExecutor(2) as pool:
                running = {name: pool.submit(execute, device, script, [name]) for name, device in devices.items()}
                try:
                    lab.wait(lambda: all(lab.holder(name) for name in devices), 300)
                finally:
                    for board in boards.values():
                        (board.home / "go").touch()
                assert {name: run.result().stdout for name, run in running.items()} == {
                    "desk": b"desk\n", "shelf": b"shelf\n",
                }  # fmt: skip
            assert [lab.holder(name) for name in devices] == ["", ""]
        finally:
            lab.close()
