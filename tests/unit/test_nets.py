"""Nets of other projects: their table, the sweep that measures them, and what is shown of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy
import pytest

from commands.own import Bench
from core import environment
from core.environment import bootstrap, installer
from core.errors import ConfigError, HostError, UsageError
from core.formats.bundle import Bundle
from verify.bench import measuring, nets, peers
from verify.bench.measuring import THREADS, Figure, Measured, apart
from verify.bench.nets import Exported, Net, load
from verify.bench.peers import NETS, RUNTIMES

NET = Net("tiny", "torch.nn:ReLU", {"input": "1x8"}, ("fp32", "fp16"))
FP32 = Exported(NET, "fp32")


def test_packages_go_into_a_folder_of_their_own_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def pip(_: object, words: list[str], total: int) -> None:
        asked.append(words)
        Path(words[words.index("--target") + 1], "timm").mkdir(parents=True)
        if len(asked) == 1:
            raise HostError("No network.", "a cable", "another")

    monkeypatch.setattr(installer.Installation, "install", pip)
    with pytest.raises(HostError, match=r"No network\.") as caught:
        environment.apart("nets")
    assert (caught.value.cause, caught.value.hint) == ("a cable", "another")
    assert list((tmp_path / "cache/nets").iterdir()) == []
    folder = environment.apart("nets")
    assert (folder / "timm").is_dir()
    assert environment.apart("nets") == folder
    assert len(asked) == 2, "a third time there is nothing to do"
    assert "--require-hashes" in asked[1]


def _figure(ms: float, load: float, rss: int, far: float) -> Figure:
    p50_ms = {threads: ms / threads for threads in THREADS}
    return Figure(p50_ms=p50_ms, load_ms=load, peak_rss_bytes=rss, apart=far)


def _measured(p50: float, far: float = 0.1) -> Measured:
    lean, cached = (_figure(p50, load, 8_000_000, far) for load in (1.0, 0.18))
    return Measured(figures={"lean": lean, nets.CACHED: cached, "executorch": _figure(1.0, 2.0, 10_000_000, 0.1)})


def test_means_are_geometric_and_marked_where_the_aim_is_missed() -> None:
    other, third = (Exported(Net(name, "", {}, ("fp32",)), "fp32") for name in ("other", "third"))
    rows = [
        (FP32, _measured(0.5)), (other, _measured(2.0, far=0.5)), (third, _measured(1.0)),
        (Exported(NET, "fp16"), _measured(0.5)),
        (Exported(NET, "qs8"), Measured(figures={"lean": Figure(error="no rule")})),
    ]  # fmt: skip
    assert nets.short(rows) == [
        ["fp32", "3", "1.00 (!)", "1.00 (!)", "0.50 (!)", "0.09", "0.80 (!)", "1: other 2.00"],
        ["fp16", "1", "0.50", "0.50", "0.50 (!)", "0.09", "0.80 (!)", "none"],
        ["all", "4", "0.84 (!)", "0.84 (!)", "0.50 (!)", "0.09", "0.80 (!)", "1"],
    ]


LEAN_BUNDLE = cast("Bundle", None)


def test_nets_are_in_the_table_and_every_runtime_in_a_lock() -> None:
    assert set(NETS) <= set(load())
    locks = [bootstrap.locked(bootstrap.lock_file(name).read_text(encoding="utf-8")) for name in ("export", "peers")]
    assert {one.package for one in RUNTIMES.values()} <= {name for lock in locks for name in lock}


def test_outputs_count_by_their_distance_and_missing_ones_are_infinitely_far(tmp_path: Path) -> None:
    floats = [tmp_path / "float0.npy"]
    numpy.save(floats[0], numpy.array([[3.0, -3.0]], numpy.float32))
    assert apart(f"{tmp_path}/x", floats) == float("inf")
    numpy.save(tmp_path / "x0.npy", numpy.array([3.0, -3.0, 1.0], numpy.float32))
    assert apart(f"{tmp_path}/x", floats) == float("inf")
    numpy.save(tmp_path / "x0.npy", numpy.array([3.3, -3.3], numpy.float32))
    assert apart(f"{tmp_path}/x", floats) == pytest.approx(0.1)


def _cell(**ms: float | tuple[float, float] | str) -> Measured:
    """Of latencies, latencies with their distance, or reasons."""
    figures = {}
    for name, one in ms.items():
        if isinstance(one, str):
            figures[name] = Figure(error=one)
        else:
            p50, far = one if isinstance(one, tuple) else (one, 0.0)
            figures[name] = Figure(p50_ms={1: p50, 2: p50 / 2}, load_ms=3.0, peak_rss_bytes=5_000_000, apart=far)
    return Measured(figures=figures)


CELLS = {
    "resnet18 fp32": _cell(lean=1.0, ncnn=2.0, torch=(0.5, 0.2)),
    "lstm fp32": _cell(lean=3.0, ncnn=2.0, torch=2.5),
    "lstm qd8_qc8w": _cell(lean=1.0, ncnn="no tool", torch=(2.0, 0.2)),
}  # fmt: skip


def test_the_fastest_is_one_that_computes_the_net() -> None:
    heads, *lines = measuring.latencies(CELLS)
    assert heads[:4] == ["net", "lean", "ncnn", "torch"]
    assert lines[0] == ["resnet18 fp32", "1 / 0.5", "2 / 1", "0.5 / 0.25 (≠)", "lean", "0.50 / 0.50"]
    assert lines[1][4:] == ["ncnn", "1.50 (!) / 1.50 (!)"]
    assert lines[2] == ["lstm qd8_qc8w", "1 / 0.5", "-", "2 / 1", "lean", "0.50 / 0.50"]


def test_the_goal_counts_nets_and_names_where_lean_is_behind() -> None:
    text = measuring.goal(CELLS)
    assert "fp32, 1 thread: lean is the fastest in 1 of 2 (geometric mean of lean : best other 0.87)" in text
    assert "behind by more than 1.1: lstm 1.50\n" in text
    assert "8 bits, 2 threads: lean is the fastest in 1 of 1" in text
    assert measuring.reasons(CELLS)[1:] == [["ncnn", "all in 8 bits", "no tool"]]


@pytest.mark.parametrize(("others", "kept"), [(0.1, True), (0.9, False)])
def test_figures_are_kept_if_nobody_else_computed(
    others: float, kept: bool, monkeypatch: pytest.MonkeyPatch, empty_tables: None
) -> None:
    found: Any = {name: one.model_copy(update={"others": others}) for name, one in CELLS.items()}
    monkeypatch.setattr(peers, "sweep", lambda *_: found)
    monkeypatch.setattr(measuring, "engine", lambda name: LEAN_BUNDLE)
    monkeypatch.setattr(peers, "peaks", lambda lean: {1: (10.0, 5.0), 2: (20.0, 5.0)})
    monkeypatch.setattr(peers, "about", lambda rounds, most: "by whom")
    peers.run(Bench(what="peers", update=True))
    assert ("| resnet18 fp32 | 1 / 0.5 |" in peers.TABLE.text()) is kept


def test_the_share_of_the_limit_is_of_multiply_adds_or_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "dist_part", lambda part: tmp_path / part)
    folder = tmp_path / "nets" / "lstm-32-torch"
    folder.mkdir(parents=True)
    work = {"multiply_adds": 2_500_000, "weights": 500_000, "moved_bytes": 0}
    (folder / "work.json").write_text(json.dumps(work), encoding="utf-8")
    _, *lines = peers.shares(CELLS, {1: (5.0, 1.0), 2: (5.0, 4.0)})
    # Of 3 ms and of 1.5 ms, one after the other: 2 ms for 2 MB and 1 ms for 5 million operations; of 1 ms and 0.5 ms,
    # in 8 bits: a quarter of the bytes.
    assert lines == [
        ["lstm fp32", "2.5 million", "2 MB", "67% / 67%"],
        ["lstm qd8_qc8w", "2.5 million", "0.5 MB", "100% / 200%"],
    ]


def test_some_nets_are_not_kept_and_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(UsageError, match="are not kept"):
        peers.run(Bench(what="peers", update=True, only="lstm"))
    with pytest.raises(ConfigError, match="called 'tvm'"):
        peers.run(Bench(what="peers", runtimes="tvm"))
