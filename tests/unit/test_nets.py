"""Nets of other projects: their table, the sweep that measures them, and what is shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core import environment
from core.environment import installer
from core.errors import HostError
from verify.bench import nets
from verify.bench.measuring import Apart, Figure, Measured
from verify.bench.nets import Exported, Net

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
            raise installer.SetupError("No network.\nCause: a cable\nTry: another")

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


def _measured(p50: float, others: float = 0.0, apart: Apart | None = None) -> Measured:
    figures = {
        engine: Figure(p50_ms={threads: ms / threads for threads in nets.THREADS}, load_ms=load, peak_rss_bytes=rss)
        for engine, ms, load, rss in (("lean", p50, 1.0, 8_000_000), ("executorch", 1.0, 2.0, 10_000_000))
    }
    return Measured(figures=figures, others=others, apart=apart, executions=9, cached_load_ms=0.2)


def _rows() -> list[nets.Row]:
    other, third = (Exported(Net(name, "", {}, ("fp32",)), "fp32") for name in ("other", "third"))
    far = Apart(outside=2, largest=1.5, lean_to_float=0.5, upstream_to_float=0.25)
    return [
        (FP32, _measured(0.5)), (other, _measured(2.0, apart=far)), (third, _measured(1.0)),
        (Exported(NET, "fp16"), _measured(0.5)), (Exported(NET, "qs8"), Measured(error="no rule")),
    ]  # fmt: skip


def test_means_are_geometric_and_marked_where_the_aim_is_missed() -> None:
    assert nets.short(_rows()) == [
        ["fp32", "3", "1.00 (!)", "1.00 (!)", "0.50 (!)", "0.10", "0.80", "1: other 2.00"],
        ["fp16", "1", "0.50", "0.50", "0.50 (!)", "0.10", "0.80", "none"],
        ["all", "4", "0.84 (!)", "0.84 (!)", "0.50 (!)", "0.10", "0.80", "1"],
    ]
