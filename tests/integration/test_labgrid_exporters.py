"""Places of several labgrid exporters, used at the same time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.faults import server
from tests.support.lab import Lab, service

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
        lab = Lab(tmp_path / "lab", {"desk": service(one.port, server.USER)})
        try:
            lab.export("cellar", {"shelf": service(two.port, server.USER)})
            inventory = tmp_path / "devices.toml"
            inventory.write_text(
                "".join(
                    f'[{name}]\ntransport = "ssh"\nsource = "labgrid"\ncoordinator = "{lab.address}"\n'
                    f'place = "{name}"\nkey = "{board.client_key}"\nknown_hosts = "{board.known_hosts}"\n'
                    for name, board in boards.items()
                )
            )
            environment = {**os.environ, "SLIPWAY_DEVICES_FILE": str(inventory)}
            running = {
                name: subprocess.Popen(
                    [ROOT / "inv", "devices.run", name, script, "--args", name],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                for name in boards
            }  # fmt: skip
            try:
                lab.wait(lambda: all(lab.holder(name) for name in boards), 300)
            finally:
                for board in boards.values():
                    (board.home / "go").touch()
                said = {name: child.communicate(timeout=300)[0] for name, child in running.items()}
            assert {name: child.returncode for name, child in running.items()} == dict.fromkeys(boards, 0), said
            assert all(name in words.splitlines() for name, words in said.items())
            assert [lab.holder(name) for name in boards] == ["", ""]
        finally:
            lab.close()
