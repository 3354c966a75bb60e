"""``pte_runner --weights_cache``, and the file that a deploy keeps: the same outputs without packing, come what may."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.formats.bundle import Bundle
from core.formats.program import load_program
from deploy.devices.inventory import Device
from deploy.run.job import load_text
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.runner import WeightsCache
from deploy.run.settings import Settings
from deploy.upkeep import upkeep
from models.export import export

pytestmark = [pytest.mark.build, pytest.mark.export, pytest.mark.filterwarnings("ignore")]

Answer = dict[str, Any]

TICK = 0.05
"""s after which a file's times tell a later change from an earlier one."""
# Of the file: runtime/engines/lean/xnnpack/weights_file.cpp.
HEADER = struct.Struct("<8sII3QQqQ16s16s")
OWNED_SIZE = 32


class Case:
    """A program with its inputs and a place for its cache."""

    def __init__(self, runner: Path, model: Path, words: tuple[str, ...], folder: Path) -> None:
        self.runner, self.model, self.words, self.folder = runner, model, words, folder
        self.cache = folder / "cache" / "weights"
        self.cache.parent.mkdir()

    def start(self, *words: str, prefix: tuple[str, ...] = (), cached: bool = True) -> subprocess.Popen[str]:
        argv = [*prefix, str(self.runner), f"--model_path={self.model}", "--json", *self.words, *words]
        argv += [f"--weights_cache={self.cache}"] if cached else []
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str, prefix: tuple[str, ...] = (), cached: bool = True) -> Answer:
        process = self.start(*words, prefix=prefix, cached=cached)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
        answer: Answer = json.loads(out)
        return {**answer, "said": err}

    def again(self, why: str) -> None:
        """The next run makes the cache again for that reason, and the one after it uses it."""
        plain = self.run(cached=False)
        first = self.run()
        assert _sums(first) == _sums(plain)
        assert first["weights"]["cache"]["state"] == "made"
        assert why in first["weights"]["cache"]["why"]
        second = self.run()
        assert _sums(second) == _sums(plain)
        assert second["weights"]["cache"]["state"] == "used"
        assert second["weights"]["packed"] == 0


def _sums(answer: Answer) -> list[str]:
    return [str(output["sha256"]) for output in answer["outputs"]]


def _case(runner: Path, folder: Path, model: str, scheme: str) -> Case:
    """The program is copied: only then is it known since when it is as it is."""
    made = export(model, scheme)
    facts = load_program(made)
    copy = folder / facts.file
    shutil.copyfile(made / facts.file, copy)
    time.sleep(TICK)
    return Case(runner, copy, ("--inputs=" + ",".join(str(made / one.file) for one in facts.inputs),), folder)


@pytest.fixture
def case(lean_runner: Path, tmp_path: Path) -> Case:
    made = _case(lean_runner, tmp_path, "conv", "fp32")
    assert made.run()["weights"]["cache"]["state"] == "made"
    return made


@pytest.mark.parametrize(
    ("model", "scheme"), [("conv", "fp16"), ("conv", "qs8"), ("mlp", "qd8_qb4w"), ("mixed", "fp32")]
)
def test_nothing_is_packed_twice(lean_runner: Path, tmp_path: Path, model: str, scheme: str) -> None:
    case = _case(lean_runner, tmp_path, model, scheme)
    plain = case.run(cached=False)
    assert "cache" not in plain["weights"]
    assert plain["weights"]["packed"] == plain["weights"]["blocks"] > 0
    first = case.run()
    assert first["weights"]["packed"] == plain["weights"]["blocks"]
    cache = first["weights"]["cache"]
    assert cache["state"] == "made"
    assert "there was none" in cache["why"]
    assert cache["bytes"] == case.cache.stat().st_size
    second = case.run()
    assert second["weights"]["packed"] == 0
    assert second["weights"]["cache"]["found"] == second["weights"]["blocks"] == plain["weights"]["blocks"]
    assert second["weights"]["cache"]["state"] == "used"
    assert 0 < second["weights"]["cache"]["packing_load_ms"] <= first["load_ms"]
    assert _sums(plain) == _sums(first) == _sums(second)
    assert [path.name for path in case.cache.parent.iterdir()] == ["weights"]


def _of_methods(runner: Path, folder: Path, **methods: Any) -> Case:
    """A program of methods, each a layer and how many rows of 24 numbers it takes."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = {name: torch.export.export(layer, (torch.ones(rows, 24),)) for name, (layer, rows) in methods.items()}
    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    edge.to_executorch().save(str(folder / "model.pte"))
    time.sleep(TICK)
    return Case(runner, folder / "model.pte", (), folder)


@pytest.mark.usefixtures("hastened")
def test_another_method_adds_its_weights(lean_runner: Path, tmp_path: Path) -> None:
    import torch

    torch.manual_seed(1)
    case = _of_methods(lean_runner, tmp_path, forward=(torch.nn.Linear(24, 8), 2), two=(torch.nn.Linear(24, 40), 2))
    assert case.run()["weights"]["cache"]["state"] == "made"
    two = case.run("--method_name=two")
    assert two["weights"]["cache"]["state"] == "extended"
    assert (two["weights"]["packed"], two["weights"]["cache"]["found"]) == (1, 0)
    both = case.run("--also_load=two")
    assert both["weights"]["cache"]["state"] == "used"
    assert (both["weights"]["packed"], both["weights"]["cache"]["found"]) == (0, 2)


@pytest.mark.usefixtures("hastened")
def test_methods_that_share_weights_share_them_in_the_file(lean_runner: Path, tmp_path: Path) -> None:
    """Also where they have numbers of rows for which other kernels are chosen."""
    import torch

    torch.manual_seed(1)
    layer = torch.nn.Linear(24, 40)
    case = _of_methods(lean_runner, tmp_path, forward=(layer, 1), many=(layer, 200))
    both = case.run("--also_load=many")
    assert (both["weights"]["cache"]["state"], both["weights"]["blocks"], both["weights"]["shared"]) == ("made", 1, 1)
    for words in ((), ("--method_name=many",), ("--also_load=many",)):
        again = case.run(*words)
        assert (again["weights"]["cache"]["state"], again["weights"]["packed"]) == ("used", 0), words


def test_another_build_of_the_runner(case: Case, tmp_path: Path) -> None:
    other = tmp_path / "pte_runner"
    other.write_bytes(case.runner.read_bytes() + b"!")
    other.chmod(0o755)
    time.sleep(TICK)
    case.runner = other
    case.again("it was another runner's")


def test_damage_is_noticed(case: Case) -> None:
    """Of every byte of the table: runtime/tests/lean/test_weights_file.cpp."""
    good = case.cache.read_bytes()
    places = (0, HEADER.size, HEADER.size + OWNED_SIZE, len(good) // 2)
    spoilt = [good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :] for place in places]
    for data in (*spoilt, b"", good[:-1]):
        case.cache.write_bytes(data)
        assert _sums(case.run()) == _sums(case.run(cached=False))
        assert case.run()["weights"]["cache"]["state"] == "used", "it was made again"
    case.cache.write_bytes(b"notes of somebody's" * 300)
    case.again("it was no file of packed weights")


def test_others_may_not_write_it(case: Case) -> None:
    case.cache.chmod(0o666)
    answer = case.run()
    assert answer["weights"]["cache"]["state"] == "none"
    assert "others may write to it" in answer["said"]
    assert answer["weights"]["packed"] > 0
    case.cache.chmod(0o600)
    assert case.run()["weights"]["cache"]["state"] == "used"
    case.cache.unlink()
    previous = os.umask(0)
    try:
        case.again("there was none")
    finally:
        os.umask(previous)


def test_several_processes_at_once(case: Case) -> None:
    whole = _sums(case.run())
    for _ in range(3):
        case.cache.unlink()
        processes = [case.start() for _ in range(6)]
        answers = [process.communicate(timeout=120) for process in processes]
        assert [process.returncode for process in processes] == [0] * 6, answers
        assert all(_sums(json.loads(out)) == whole for out, _ in answers)
        assert case.run()["weights"]["cache"]["state"] == "used"
        assert [path.name for path in case.cache.parent.iterdir()] == ["weights"]


def test_a_killed_process_leaves_no_half_file(lean_runner: Path, tmp_path: Path) -> None:
    case = _case(lean_runner, tmp_path, "mixed", "fp32")
    whole = _sums(case.run(cached=False))
    draw = random.Random(7)  # noqa: S311 - it draws times, not secrets
    states = []
    for _ in range(25):
        case.cache.unlink(missing_ok=True)
        process = case.start()
        time.sleep(draw.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        answer = case.run()
        assert _sums(answer) == whole
        states.append(answer["weights"]["cache"]["why"])
    assert all(why in ("", "there was none") for why in states), states


@pytest.mark.parametrize("place", ["none/weights", "folder", "file/weights", "/proc/weights"])
def test_it_goes_on_where_nothing_can_be_written(case: Case, place: str, tmp_path: Path) -> None:
    (tmp_path / "folder" / "weights").mkdir(parents=True)
    (tmp_path / "file").write_text("not a folder")
    whole = _sums(case.run(cached=False))
    case.cache = tmp_path / place
    answer = case.run()
    assert _sums(answer) == whole
    cache = answer["weights"]["cache"]
    assert cache["state"] == "none"
    assert "Cannot write" in cache["why"]
    assert f"no weights cache: {cache['why']}" in answer["said"]


def test_a_full_disk(case: Case) -> None:
    """As a limit on the sizes of files, which ends a write at the same place."""
    case.cache.unlink()
    answer = case.run(prefix=("prlimit", "--fsize=8192"))
    assert answer["weights"]["cache"]["state"] == "none"
    assert "File too large" in answer["said"]
    assert not list(case.cache.parent.iterdir())


Go = Callable[..., Result]


@pytest.fixture
def go(bench: Device, lean: Bundle, dist: Path) -> Go:
    def call(model: str = "conv", device: Device = bench, **options: object) -> Result:
        settings = Settings(**{"num_executions": 1, "warmup": 0, **options})
        result = deploy(device, lean, export(model, "fp32"), settings)
        assert result.verdict in {"identical", "agrees"}
        return result

    return call


def _cache(result: Result) -> WeightsCache:
    assert result.runner.weights is not None
    assert result.runner.weights.cache is not None
    return result.runner.weights.cache


def _kept(go: Go, root: Path) -> Path:
    """The cache after a deploy or two: files that were made a moment ago are not trusted yet."""
    assert any(_cache(go()).state == "made" for _ in range(3))
    (file,) = (root / "weights").iterdir()
    return file


def _digests(result: Result) -> list[str]:
    return [output.sha256 for output in result.runner.outputs]


def test_the_second_load_packs_nothing(go: Go, root: Path, bench: Device) -> None:
    plain = go(weights_cache=False)
    assert plain.runner.weights is not None
    assert plain.runner.weights.cache is None
    assert not list((root / "weights").iterdir())
    file = _kept(go, root)
    assert file.name == f"{plain.program.sha256}.{bench.target}-lean"
    second = go()
    cache = _cache(second)
    assert cache.state == "used"
    assert cache.found > 0
    assert "with the weights cache kept on the device" in load_text(second.runner)
    assert _digests(second) == _digests(plain)
    never = go(device=bench.model_copy(update={"weights_cache": False}))
    assert never.runner.weights is not None
    assert never.runner.weights.cache is None


def test_upkeep_knows_them(go: Go, root: Path, bench: Device) -> None:
    file = _kept(go, root)
    assert upkeep.verify(bench).caches == 1
    assert not file.exists()
    assert _cache(go()).state == "made"
    assert upkeep.collect(bench).removed == ()
    assert file.exists()
    old = 0
    for path in [*(root / "store").iterdir(), *(root / "programs").iterdir()]:
        os.utime(path, (old, old))
    removed = upkeep.collect(bench, days=1).removed
    assert f"weights/{file.name}" in removed
    assert not file.exists()
