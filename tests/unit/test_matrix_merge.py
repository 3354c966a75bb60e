"""A matrix in parts and matrices of several jobs as one: every cell is in one of them, and only the whole is merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, UsageError
from core.files import write_atomic
from deploy.matrix import merge
from deploy.matrix.matrix import MatrixRequest, planned
from deploy.matrix.model import Change, Matrix
from deploy.matrix.plan import Exportable, Shard
from tests.conftest import Inv
from tests.support.matrices import matrix, passed, problem

A, B, C = ("a/linux-arm64/lean/mlp", "b/linux-arm64/lean/mlp", "c/linux-arm64/lean/mlp")


def _job(*keys: str, outcome: str = "passed", **known: Any) -> Matrix:
    cells = [passed(key=key, device=key[0], outcome=outcome) for key in keys]
    return matrix(*cells, **known)


def test_all_cells_are_there_once_and_the_latest_counts() -> None:
    early = _job(A, B, outcome="failed", finished="2026-11-21T04:01:00.000Z", only="a | b", host="x", seconds=3.0)
    late = _job(B, C, finished="2026-11-21T05:00:00.000Z", only="b | c", host="y", seconds=4.0)
    for parts in ((early, late), (late, early)):
        found = merge.merged(parts, "all", "./inv matrix --merge jobs")
        assert {cell.key: cell.outcome for cell in found.cells} == {A: "failed", B: "passed", C: "passed"}
        assert (found.name, found.seconds, found.host, found.only) == ("all", 7.0, "x, y", "(a | b) | (b | c)")
        assert (found.created, found.finished) == (early.created, late.finished)


def test_figures_are_those_of_the_cells_that_are_kept() -> None:
    worse = Change(key=A, what="latency p50", before="1 ms", now="2 ms", ratio=2.0, verdict="worse")
    same = worse.model_copy(update={"verdict": "same"})
    known: dict[str, Any] = {"baseline": "b.json", "threshold": 0.1}
    early = _job(A, finished="2026-11-21T04:01:00.000Z", changes=(worse,), **known)
    late = _job(A, finished="2026-11-21T05:00:00.000Z", changes=(same,), **known)
    assert merge.merged([early, late], "all", "").regressions == []
    assert merge.merged([late.model_copy(update={"cells": (), "changes": ()}), early], "all", "").threshold == 0.1
    with pytest.raises(ConfigError, match="different baselines"):
        merge.merged([early, late.model_copy(update={"threshold": 0.2})], "all", "")


def test_the_command_writes_one_report_and_judges_it(inv: Inv, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    bad = passed(key=B, device="b", outcome="failed", latency=None, problem=problem(what="b is away."))
    write_atomic(jobs / "matrix-a" / "matrix.json", _job(A).model_dump_json(indent=1))
    write_atomic(jobs / "matrix-b" / "matrix.json", matrix(bad, finished="2026-11-21T09:00:00.000Z").model_dump_json())
    env = {"SLIPWAY_DIST": str(tmp_path / "dist")}
    for words in (str(jobs), str(tmp_path)):  # its own result is no part of the next one
        done = inv("matrix", "--merge", words, "--name", "all", env=env)
        assert done.returncode == 33, done.stderr
        assert "1 of 2 cells failed" in done.stderr
    reports = tmp_path / "dist" / "matrix" / "all"
    assert {file.name for file in reports.iterdir()} == {
        "matrix.json", "junit.xml", "report.html", "summary.md", "history",
    }  # fmt: skip
    assert [cell["outcome"] for cell in json.loads((reports / "matrix.json").read_bytes())["cells"]] == [
        "passed", "failed",
    ]  # fmt: skip
    assert "b is away." in (reports / "summary.md").read_text(encoding="utf-8")


def test_nothing_to_merge_is_an_error(inv: Inv, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no matrix\.json"):
        merge.files([str(tmp_path)], tmp_path / "out")
    done = inv("matrix", "--merge", str(tmp_path), "--only", "pi")
    assert done.returncode == 2
    assert "--only does not go with --merge" in done.stderr


CATALOGUE = [
    Exportable(f"{model}-{scheme}", model, scheme, "pte") for model in ("mlp", "conv") for scheme in ("fp32", "qs8")
]


def request(**given: object) -> MatrixRequest:
    return MatrixRequest(devices=("local", "pi", "pi2"), engines=("lean",), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_every_cell_is_in_one_part(count: int) -> None:
    whole = planned(request(), CATALOGUE)
    parts = [planned(request(shard=(index, count)), CATALOGUE) for index in range(1, count + 1)]
    assert [cell.key for part in parts for cell in part.cells] == [cell.key for cell in whole.cells]
    sizes = [len(part.cells) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert {part.shard.plan for part in parts if part.shard} == {parts[0].shard and parts[0].shard.plan}
    assert sum(len(part.bundles) for part in parts) <= len(whole.bundles) + count - 1, "neighbours stay together"


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "2", "a/b", "1/0", "-1/2", "2/5x"])
def test_what_is_no_part_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="is not of the form PART/PARTS"):
        merge.parse_shard(wrong)


def made(index: int, count: int = 3, plan: str = "abc", commit: str = "c0ffee") -> Matrix:
    shard = Shard(index=index, count=count, plan=plan, cells=7)
    return matrix(passed(), name=f"part-{index}", commit=commit, shard=shard)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([made(1), made(3)], r"Part 2 of 3 is missing"),
        ([made(1)], r"Parts 2, 3 of 3 are missing"),
        ([made(1), made(2), made(2), made(3)], r"Part 2 of 3 is there more than once"),
        ([made(1), made(2), made(3, plan="abd")], r"of 2 different plans"),
        ([made(1), made(2), made(3, commit="c0ffee-dirty")], r"of 2 different commits"),
        ([made(1), made(2), made(3), matrix(passed(), name="other")], r"other .* is not a part of a matrix"),
    ],
)
def test_what_is_not_the_whole_is_refused(parts: list[Matrix], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        merge.check_parts(parts)


def test_files_of_all_parts_become_one_matrix(tmp_path: Path) -> None:
    for index in (1, 2, 3):
        key = f"pi/linux-arm64/lean/mlp-{index}"
        found = made(index).model_copy(update={"cells": (passed(key=key),)})
        (tmp_path / f"job-{index}").mkdir()
        (tmp_path / f"job-{index}" / "matrix.json").write_text(found.model_dump_json(), encoding="utf-8")
    whole = merge.load([str(tmp_path)], "all", "", tmp_path / "all")
    assert [cell.key[-5:] for cell in whole.cells] == ["mlp-1", "mlp-2", "mlp-3"]
    assert whole.shard is None
    (tmp_path / "job-2" / "matrix.json").unlink()
    with pytest.raises(ConfigError, match="Part 2 of 3 is missing"):
        merge.load([str(tmp_path)], "all", "", tmp_path / "all")
