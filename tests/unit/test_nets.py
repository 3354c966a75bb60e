"""Nets of other projects: their table, the sweep that measures them, and what is shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy
import pytest

from commands.own import Bench
from core import environment
from core.environment import bootstrap, installer
from core.errors import ConfigError, HostError, UsageError
from core.formats.bundle import Bundle
from verify.bench import measuring, peers
from verify.bench.measuring import Figure, Measured, apart
from verify.bench.nets import load
from verify.bench.peers import NETS, RUNTIMES


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


@pytest.mark.parametrize(("others", "kept"), [(0.1, True), (0.9, False)])
def test_figures_are_kept_if_nobody_else_computed(
    others: float, kept: bool, monkeypatch: pytest.MonkeyPatch, empty_tables: None
) -> None:
    found: Any = {name: one.model_copy(update={"others": others}) for name, one in CELLS.items()}
    monkeypatch.setattr(peers, "sweep", lambda *_: found)
    monkeypatch.setattr(measuring, "engine", lambda name: LEAN_BUNDLE)
    monkeypatch.setattr(peers, "about", lambda rounds: "by whom")
    peers.run(Bench(what="peers", update=True))
    assert ("| resnet18 fp32 | 1 / 0.5 |" in peers.TABLE.text()) is kept


def test_some_nets_are_not_kept_and_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(UsageError, match="are not kept"):
        peers.run(Bench(what="peers", update=True, only="lstm"))
    with pytest.raises(ConfigError, match="called 'tvm'"):
        peers.run(Bench(what="peers", runtimes="tvm"))
