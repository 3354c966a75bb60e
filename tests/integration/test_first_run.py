"""The README's first command on a fresh machine: nothing installed, nothing cached; interrupted once, then whole."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builds import checkout
from tests.support.processes import marked

COMMAND = ["deploy", "--device", "pi", "--model", "mobilenet_v2"]
MOST = {"clone/.venv": 1100, "cache": 1800}
"""MB on disk at most; what is said before a first start is about their sum."""

# CI: the parts, in tests/unit/test_first.py, test_lock.py and test_inv.py, and the same command on a machine that is
# not fresh, in test_readme.py.
pytestmark = pytest.mark.long


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    """A folder with a clean copy of the checkout; devices that were started in it are ended."""
    checkout(tmp_path / "clone")
    yield tmp_path
    for pid in marked(str(tmp_path)):  # the virtual Pi, the warm exporter
        os.kill(pid, signal.SIGTERM)


def start(folder: Path) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")}
    env = {**kept, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    env |= {
        "HOME": str(folder),
        "SLIPWAY_CACHE": str(folder / "cache"),
        "SLIPWAY_PYTHON": shutil.which("python3") or "",
    }
    return subprocess.Popen(
        [str(folder / "clone" / "inv"), *COMMAND], cwd=folder, env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def megabytes(folder: Path) -> int:
    return int(subprocess.run(["du", "-sm", folder], capture_output=True, text=True, check=True).stdout.split()[0])


def test_the_first_command_from_nothing(fresh: Path) -> None:
    said: list[str] = []
    with start(fresh) as first:
        assert first.stderr is not None
        listening = threading.Thread(target=lambda: said.extend(first.stderr or ()), daemon=True)
        listening.start()
        # The exporter is being installed, and the compilers are being fetched.
        both = ("the exporter", "preparing zig")
        limit = time.monotonic() + 900
        while not all(any(words in line for line in said) for words in both) and time.monotonic() < limit:
            assert first.poll() is None, said
            time.sleep(0.1)
        os.killpg(first.pid, signal.SIGINT)
        assert first.wait(60) == 130, said
        listening.join()
    assert "Traceback" not in "".join(said)
    assert not marked(str(fresh)), "something goes on"
    assert not (fresh / "clone/.venv/.slipway/export.lock").exists()

    second = start(fresh)
    out, trouble = second.communicate(timeout=3000)
    assert second.returncode == 0, trouble
    assert "Traceback" not in trouble
    assert "Slipway's own packages" not in trouble, "they were there"
    for name in ("Egyptian cat", "tiger cat", "tabby", "lynx", "plastic bag"):
        assert name in out, out
    assert "agrees" in out
    for name, most in MOST.items():
        assert megabytes(fresh / name) <= most
