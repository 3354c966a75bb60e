"""Quicker exports must be the same: by the exporter that waits in memory, and without work that changes nothing."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.formats.program import Program, load_program
from core.paths import ROOT
from models import warm
from models.export import export as exporting
from models.reference.host import Forked
from tests.support.processes import alive, descendants, ended, ran, wait_for

pytestmark = pytest.mark.export

MODEL = """import os, torch
from pathlib import Path
from beside import BIAS

def make_model():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x + BIAS
    return Net(), (torch.ones(2),)

def crashing():
    import signal
    os.kill(os.getpid(), signal.SIGSEGV)

def waiting():
    import time
    Path(__file__).with_name("waits").touch()
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a model and a cache of its own. Afterwards the exporter must be gone."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "net.py").write_text(MODEL)
    (folder / "beside.py").write_text("BIAS = 1.0\n")
    yield folder
    pid = server(folder)
    for base in (folder / "cache" / "warm").glob("*/*"):
        (base / "socket").unlink(missing_ok=True)
    if pid:
        _ended(pid)


def _ended(pid: int) -> None:
    assert ended(lambda: alive(pid), 120)


def server(here: Path) -> int:
    """The process that serves; 0 if there is none."""
    for base in (here / "cache" / "warm").glob("*/*"):
        connection = warm.connect(base)
        if connection is not None:
            with connection:
                pid: int = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
                return pid
    return 0


def begin(here: Path, function: str, *words: str, dist: str = "dist", **env: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "SLIPWAY_WARM": "yes", "SLIPWAY_CACHE": str(here / "cache"), **env}
    return subprocess.Popen(
        [str(ROOT / "inv"), "export", "--model", f"net.py:{function}", *words],
        cwd=here, env={**variables, "SLIPWAY_DIST": str(here / dist)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def export(here: Path, *words: str, dist: str = "dist", **env: str) -> Path:
    out, err = (child := begin(here, "make_model", *words, dist=dist, **env)).communicate(timeout=600)
    assert child.returncode == 0, out + err
    return here / dist / "programs" / "net-make_model-fp32"


def first_output(folder: Path) -> float:
    import numpy

    return float(numpy.load(folder / "output0.npy")[0])


def test_a_life_of_the_warm_exporter(here: Path) -> None:
    cold = load_program(export(here, dist="cold", SLIPWAY_WARM="no"))
    assert server(here) == 0, "SLIPWAY_WARM=no leaves none"
    assert not list((here / "cache" / "warm").glob("*/*"))

    # The same bytes, and nothing of the first export in the second.
    found = export(here)
    pid = server(here)
    assert pid
    program = load_program(found)
    assert (program.sha256, program.outputs, program.tolerance) == (cold.sha256, cold.outputs, cold.tolerance)
    assert program.depends == cold.depends
    assert first_output(found) == 2.0
    (here / "beside.py").write_text("BIAS = 2.0\n")
    assert first_output(export(here)) == 3.0
    assert server(here) == pid
    (socket_,) = (here / "cache" / "warm").glob("*/*/socket")
    assert [oct(one.stat().st_mode & 0o777) for one in (socket_, socket_.parent, socket_.parent.parent)] == [
        "0o600", "0o700", "0o700",
    ]  # fmt: skip

    # A crash of the model's code ends its own copy only.
    child = begin(here, "crashing")
    _, said = child.communicate(timeout=600)
    assert child.returncode == 6, said
    assert "ended with SIGSEGV" in said
    assert "Traceback" not in said
    assert server(here) == pid

    # Ctrl-C ends the copy, and leaves nothing half-written.
    child = begin(here, "waiting")
    wait_for((here / "waits").exists, 600)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    assert [one.name for one in (here / "dist" / "programs").iterdir()] == ["net-make_model-fp32"]
    assert server(here) == pid
    assert not descendants(pid)

    # So does the end of the command by force.
    (here / "waits").unlink()
    child = begin(here, "waiting")
    wait_for((here / "waits").exists, 600)
    child.kill()
    child.communicate(timeout=60)
    assert ended(lambda: descendants(pid), 60)

    # Another environment, another exporter; the old one ends.
    export(here, "--force", OMP_NUM_THREADS="1")
    _ended(pid)
    other = server(here)
    assert other not in (0, pid)

    # Killed, it leaves a socket that nobody answers: the next command would start another.
    os.kill(other, signal.SIGKILL)
    _ended(other)
    assert server(here) == 0


def test_several_at_once(here: Path, tmp_path: Path) -> None:
    variables = {"INVOKE_SLIPWAY_JOBS": "2", "SLIPWAY_CACHE": str(here / "cache"), "SLIPWAY_DIST": str(tmp_path)}
    env = {**os.environ, "SLIPWAY_WARM": "yes", **variables}

    def run(model: str) -> tuple[int, str]:
        done = ran([ROOT / "inv", "export", "--model", model, "--scheme", "all"], cwd=here, env=env, timeout=600)
        return done.returncode, done.stdout + done.stderr

    code, said = run("linear")
    assert code == 0, said
    made = {one.name: load_program(one).sha256 for one in (tmp_path / "programs").iterdir()}
    assert set(made) == {f"linear-{scheme}" for scheme in ("fp32", "fp16", "qs8", "qd8_qc8w", "qd8_qb4w")}
    assert made["linear-qs8"] == load_program(exporting("linear", "qs8", out=tmp_path / "alone")).sha256
    lines = said.splitlines()  # on a busy machine one may come again, with its time
    assert [lines.count(f"{name}: loading the exporter") for name in made] == [1] * 5, "in copies of one process"

    code, said = run("net.py:crashing")
    assert (code, said.count("ended with SIGSEGV")) == (6, 10), said  # when it ends, and in the list of failures
    assert "Traceback" not in said
    assert server(here), "it outlives its copies"


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    warm.home().chmod(0o755)
    with pytest.raises(OSError, match="is not private"):
        warm.home()


LIGHT = """import os, sys
from pathlib import Path
from models import warm
warm.LOADS = ("json",)
warm._LOOK = 0.2
folder, wanted, idle = sys.argv[1:]
os._exit(warm.main(Path(folder), wanted or warm.key(), float(idle)))
"""
"""The process itself, without what takes long to load."""


def _light(folder: Path, wanted: str = "", idle: float = 600.0) -> subprocess.Popen[bytes]:
    folder.mkdir(mode=0o700)
    return subprocess.Popen([sys.executable, "-c", LIGHT, str(folder), wanted, str(idle)], cwd=ROOT)


def test_it_ends_by_itself(tmp_path: Path) -> None:
    idle = _light(tmp_path / "idle", idle=0.5)
    assert idle.wait(120) == 0
    assert not (tmp_path / "idle").exists(), "nothing is left"
    assert _light(tmp_path / "other", wanted="another key").wait(120) != 0, "its code is not what the command has"
    # The cache is removed.
    gone = _light(tmp_path / "gone")
    wait_for((tmp_path / "gone" / "socket").exists, 120)
    (tmp_path / "gone" / "socket").unlink()
    assert gone.wait(120) == 0


SOUGHT = f"{ROOT / 'tests' / 'fixtures' / 'models' / 'good.py'}:sought"


def test_no_byte_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.lowering import shortcuts

    def exported(folder: str) -> Program:
        return load_program(exporting(SOUGHT, "qs8", out=tmp_path / folder))

    quick = exported("quick")
    for part in ("in_torch", "in_quantizing", "in_lowering"):
        monkeypatch.setattr(shortcuts, part, contextlib.nullcontext)
    thorough = exported("thorough")
    assert quick.sha256 == thorough.sha256
    assert quick.delegated == thorough.delegated


@pytest.mark.parametrize("asked", [
    lambda made, x: made(x), lambda made, x: type(made).forward(made, x), lambda made, x: copy.deepcopy(made)(x),
    lambda made, x: pickle.loads(pickle.dumps(made))(x),  # noqa: S301
    lambda made, x: made.code.count("return") and made(x),
])  # fmt: skip
def test_a_graph_is_compiled_also_after_the_exporter(asked: Any) -> None:
    import torch

    from models.lowering import shortcuts

    with shortcuts.in_torch():
        made = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
        assert "_code" not in vars(made)
    assert asked(made, torch.tensor([-1.0, 2.0])).tolist() == [0, 2]


def test_a_copy_of_the_exporters_process_computes_with_large_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With threads that are not in the copy it would wait for ever, as the reference of a large output did."""
    import torch

    (tmp_path / "large_copies.py").write_text(
        "import os, torch\ndef main(): os.write(1, b'%d' % torch.ones(1 << 22).half().numel())", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert float((torch.ones(1 << 22) + 1).sum()) == 2 << 22  # begins torch's threads
    with (tmp_path / "log").open("w") as log:
        one = Forked("large_copies", log.fileno())
    try:
        assert one.wait(120) == 0, (tmp_path / "log").read_text()
        assert one.stdout.read() == f"{1 << 22}"
    finally:
        one.kill()
        one.stdin.close()
        one.stdout.close()
