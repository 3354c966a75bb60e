"""A matrix in parts: every cell in one of them, and only the whole is merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import ConfigError, UsageError
from deploy.matrix import merge
from deploy.matrix.matrix import MatrixRequest, planned
from deploy.matrix.model import Matrix
from deploy.matrix.plan import Exportable, Shard
from tests.support.matrices import matrix, passed

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
