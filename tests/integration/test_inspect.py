"""``./inv inspect`` on runs of both engines: the operators of a program that everybody can read, and where they are."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from tests.support import consoles
from tests.support.builds import lend_bundle, lend_program
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export]

ENGINES = ("lean", "executorch")
Inspect = Callable[..., Any]


def documented() -> list[str]:
    text = consoles.section("compare.md", consoles.INSPECT)
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def call(line: str) -> int:
    """Run a documented command in this process: torch is loaded once."""
    words = shlex.split(line)
    assert words.pop(0) == "./inv"
    return main.run([word.replace("dist/", f"{DIST[0]}/", 1) if word.startswith("dist/") else word for word in words])


DIST: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A ``dist/`` with the results of the manual's deploys, and of a quantized program."""
    dist = tmp_path_factory.mktemp("dist")
    DIST[:] = [dist]
    for engine in ENGINES:
        lend_bundle(dist, host_target().name, engine)
    for model, scheme in (("mixed", "fp32"), ("mlp", "qs8")):
        lend_program(dist, model, scheme)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_DIST", str(dist))
        deploys = [line for line in documented() if line.startswith("./inv deploy")]
        others = ("mixed --engine executorch", "mlp --scheme qs8 --engine lean")
        for line in [*deploys, *(f"./inv deploy --device local --model {words} --etdump" for words in others)]:
            assert call(line) == 0
        yield dist


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Inspect:
    """Gives the JSON of ``./inv inspect``, or with ``fails`` its exit code and message."""

    def run(*words: str, fails: bool = False) -> Any:
        capsys.readouterr()
        code = main.run(["inspect", *words, *([] if fails else ["--json"])])
        out, err = capsys.readouterr()
        if fails:
            return code, err
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.mark.parametrize("line", [line for line in documented() if not line.startswith("./inv deploy")])
def test_a_command_of_the_manual(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(line) == 0
    assert "Connected" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ENGINES)
def test_every_operator_has_its_module_line_and_times(inspect: Inspect, engine: str) -> None:
    found = inspect(f"local-mixed-fp32-{engine}")
    assert found["executions"] == {"timed": 10, "warmup": 1} and found["notes"] == []
    rows = {row["name"]: row for row in found["rows"]}
    assert {row["count"] for row in rows.values()} == {10}
    assert {row["warmup"]["count"] for row in rows.values()} == {1}
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    expected = {
        "embedding.out @0": ("embedding (Embedding)", 37), "native_layer_norm.out @1": ("norm1 (LayerNorm)", 38),
        "Fully Connected (NC, F32) GEMM #1 @2": ("query (Linear)", 40),
        "Fully Connected (NC, F32) GEMM #2 @2": ("key (Linear)", 40),
        "Fully Connected (NC, F32) GEMM #1 @12": ("value (Linear)", 40),
        "Fully Connected (NC, F32) GEMM #2 @12": ("out (Linear)", 42),
        "Fully Connected (NC, F32) GEMM #3 @14": ("head (Linear)", 44),
    }  # fmt: skip
    for name, (module, line) in expected.items():
        origin = rows[name]["origin"]
        assert (origin["module"], origin["source"].rpartition("/")[2]) == (module, f"mixed.py:{line}"), name
        assert origin["sure"] and rows[name]["delegated"] == name.startswith("Fully")
    (gelu,) = [row for row in rows.values() if row["origin"] and row["origin"]["operators"] == ["aten.gelu.default"]]
    assert gelu["name"].endswith("@14")
    if engine == "lean":
        assert rows["Fully Connected (NC, F32) GEMM #1 @2"]["kernel"]["name"]


def test_an_etrecord_of_another_program_is_refused(inspect: Inspect, runs: Path, tmp_path: Path) -> None:
    other = runs / "programs" / "mlp-qs8" / "model.etrecord"
    code, message = inspect("local-mixed-fp32-lean", "--etrecord", str(other), fails=True)
    assert code == 10 and "ETRecord of another program" in message and "Try:" in message
    # Without its description, what ran decides.
    bare = shutil.copy(other, tmp_path / "bare.etrecord")
    code, message = inspect("local-mixed-fp32-lean", "--etrecord", str(bare), fails=True)
    assert code == 10 and "ETRecord of another program" in message and "instruction" in message
    (tmp_path / "broken.etrecord").write_bytes(other.read_bytes()[:-1000])
    code, message = inspect("local-mixed-fp32-lean", "--etrecord", str(tmp_path / "broken.etrecord"), fails=True)
    assert code == 10 and "damaged" in message and "Traceback" not in message
