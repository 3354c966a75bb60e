"""Nets of other projects: their table, the sweep that measures them, and what is shown of it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest

from core import environment
from core.environment import bootstrap, installer
from core.errors import ConfigError, HostError
from core.formats.program import Program, Tolerance
from core.paths import ROOT
from core.processes.sweep import Journal
from verify.bench import measuring
from verify.bench.measuring import Apart, Figures, Measured, Subject
from verify.nets import exporting, report
from verify.nets.exporting import Export, Exporter, export
from verify.nets.table import Exported, Input, Net, choose, load, programs

NET = Net("tiny", "torch.nn:ReLU", {"input": "1x8"}, ("fp32", "fp16"))
FP32 = Exported(NET, "fp32")


# --- the table


def test_there_are_enough_nets_and_programs_of_every_scheme() -> None:
    assert len(load()) >= 40
    assert len(programs()) >= 75
    assert {one.scheme for one in programs()} == {"fp32", "fp16", "qs8", "qd8_qc8w", "qd8_qb4w"}
    assert len({one.name for one in programs()}) == len(programs())


def test_nets_are_of_packages_in_the_lock() -> None:
    locked = bootstrap.locked(bootstrap.lock_file("nets").read_text(encoding="utf-8"))
    for net in load().values():
        package = net.make.partition(":")[0].partition(".")[0].replace("_", "-")
        assert package in {*locked, "torch", "verify"}, net.name


def test_inputs_are_noise_or_whole_numbers() -> None:
    assert Input.of("1x3x224x224") == Input((1, 3, 224, 224))
    assert Input.of("1x64 <1000") == Input((1, 64), 1000)
    for wrong in ("", "1x", "1x64<1000", "ax3"):
        with pytest.raises(ConfigError, match="does not describe an input"):
            Input.of(wrong)


def test_programs_are_chosen_by_net_scheme_or_pattern() -> None:
    assert [one.name for one in choose("resnet* qs8, vit_b_16 fp32")] == [
        "resnet18 qs8", "resnet50 qs8", "vit_b_16 fp32",
    ]  # fmt: skip
    assert choose("") == programs()
    with pytest.raises(ConfigError, match="called 'resnt'"):
        choose("resnet18,resnt")


def test_a_change_of_a_row_is_another_program_and_a_new_scheme_is_not() -> None:
    other = Net("tiny", "torch.nn:ReLU", {"input": "1x9"}, ("fp32", "fp16"))
    fewer = Net("tiny", "torch.nn:ReLU", {"input": "1x8"}, ("fp32",))
    assert exporting.key(Exported(other, "fp32")) != exporting.key(FP32) == exporting.key(Exported(fewer, "fp32"))
    assert exporting.key(Exported(NET, "fp16")) != exporting.key(FP32)


# --- packages


def test_packages_go_into_a_folder_of_their_own_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def pip(_: object, words: list[str], total: int) -> None:
        asked.append(words)
        Path(words[words.index("--target") + 1], "timm").mkdir(parents=True)
        if len(asked) == 1:
            raise installer.SetupError("No network.\nCause: a cable\nTry: another")

    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    monkeypatch.setattr(installer.Installation, "install", pip)
    with pytest.raises(HostError, match=r"No network\.") as caught:
        environment.apart("nets")
    assert (caught.value.cause, caught.value.hint) == ("a cable", "another")
    assert list((tmp_path / "nets").iterdir()) == []
    folder = environment.apart("nets")
    assert (folder / "timm").is_dir()
    assert environment.apart("nets") == folder
    assert len(asked) == 2, "a third time there is nothing to do"
    assert "--require-hashes" in asked[1]


# --- exporting

_CHILD = """
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["scheme"] == "fp16":
        sys.exit(3)
    folder = pathlib.Path(asked["out"]) / f"{asked['net']}-{asked['scheme']}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.json").write_text("{}")
    print(json.dumps({"folder": str(folder)}), flush=True)
"""


@pytest.fixture
def dist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own ``dist/``, and an exporter that only makes folders; it crashes on fp16."""
    child = tmp_path / "child.py"
    child.write_text(_CHILD, encoding="utf-8")
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(exporting, "COMMAND", [sys.executable, str(child)])
    monkeypatch.setattr(Exporter, "_environment", lambda self: None)
    return tmp_path / "dist"


def test_a_crash_is_that_programs_and_the_next_is_exported(dist: Path) -> None:
    found = export([Exported(NET, "fp16"), FP32])
    assert "ended with 3" in found["tiny fp16"].error
    assert (found["tiny fp32"].error, found["tiny fp32"].folder) == ("", "tiny-fp32")


def test_a_program_is_exported_again_if_it_is_gone_or_asked_for(dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = Exporter.export

    def counted(self: Exporter, program: Exported) -> Export:
        calls.append(program.name)
        return real(self, program)

    monkeypatch.setattr(Exporter, "export", counted)
    both = [Exported(NET, "fp16"), FP32]
    export(both)
    export(both)
    assert calls == ["tiny fp16", "tiny fp32"], "a failure is kept, too"
    (dist / "nets" / "tiny-fp32" / "program.json").unlink()
    export(both)
    assert calls[2:] == ["tiny fp32"]
    export([FP32], again=True)
    assert calls[3:] == ["tiny fp32"]


# --- measuring


def _measured(p50: float, others: float = 0.0, apart: Apart | None = None) -> Measured:
    rss = (8_000_000, 10_000_000)
    figures = {
        threads: Figures(load_ms=(1.0, 2.0), p50_ms=(p50 / threads, 1.0 / threads), peak_rss_bytes=rss)
        for threads in report.THREADS
    }
    return Measured(figures=figures, others=others, apart=apart, executions=9, cached_load_ms=0.2)


def test_what_others_disturbed_is_measured_again_and_not_kept(
    dist: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles = cast("Any", (SimpleNamespace(), SimpleNamespace()))
    calls: list[str] = []

    def measure(bundles: Any, subject: Subject, rounds: int) -> Measured:
        calls.append(subject.name)
        return _measured(1.0, others=0.5 if subject.name == "b" else 0.1)

    monkeypatch.setattr(measuring, "measure", measure)
    monkeypatch.setattr(measuring, "bundle_digest", lambda bundle: "runner")
    dist.mkdir()
    both = [Subject(name, dist / name, ()) for name in ("a", "b")]
    for one in both:
        one.file.write_text(one.name)
    seen = measuring.sweep("nets", bundles, both, 2)
    assert (list(seen), list(measuring.undisturbed(seen))) == (["a", "b"], ["a"])
    assert "1 programs were measured" in capsys.readouterr().err.replace("\n", " ")
    calls.clear()
    measuring.sweep("nets", bundles, both, 2)
    assert calls == ["b"]
    calls.clear()
    measuring.sweep("nets", bundles, both, 3)
    assert sorted(calls) == ["a", "b"], "other rounds are other figures"


def test_only_what_others_use_counts_as_a_disturbance(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([(0.0, 100.0, 10.0), (10.0, 118.0, 23.0)])  # time, all processors, our processes

    def at(index: int) -> float:
        return now[index]

    now = next(seconds)
    monkeypatch.setattr("time.monotonic", lambda: at(0))
    monkeypatch.setattr(measuring, "_all_busy", lambda: at(1))
    monkeypatch.setattr(measuring, "_our_busy", lambda: at(2))
    busy = measuring.Busy()
    now = next(seconds)
    assert busy.others() == 0.5


def test_outputs_beyond_the_tolerance_are_compared_with_the_float_model(tmp_path: Path) -> None:
    for name, values in (("output0", [1, 2]), ("ours0", [1, 2.5]), ("theirs0", [1, 2]), ("float0", [1, 2.5])):
        numpy.save(tmp_path / f"{name}.npy", numpy.array(values, numpy.float16 if name == "ours0" else numpy.float32))
    numpy.save(tmp_path / "ours0.npy", numpy.array([1, 2.5], numpy.float32))
    program = cast(
        "Program",
        SimpleNamespace(
            outputs=[SimpleNamespace(file="output0.npy")],
            tolerance_of=lambda index: Tolerance(atol=0.25, rtol=0.0, why=""),
        ),
    )
    subject = Subject("a", tmp_path / "a.pte", (), program=program, floats=(tmp_path / "float0.npy",))
    seen = measuring.apart(subject, tmp_path / "ours", tmp_path / "theirs")
    assert seen is not None
    assert (seen.outside, seen.largest, seen.lean_to_float) == (1, 2.0, 0.0)
    assert seen.upstream_to_float == pytest.approx(0.125**0.5)


def test_figures_survive_the_journal(tmp_path: Path) -> None:
    far = Apart(outside=3, largest=float("inf"), lean_to_float=0.5, upstream_to_float=float("inf"))
    Journal(tmp_path / "nets.jsonl", Measured).keep("a", "key", _measured(0.5, apart=far))
    assert Journal(tmp_path / "nets.jsonl", Measured).find("a", "key") == _measured(0.5, apart=far)


# --- tables


def _rows() -> list[report.Row]:
    other, third = (Exported(Net(name, "", {}, ("fp32",)), "fp32") for name in ("other", "third"))
    far = Apart(outside=2, largest=1.5, lean_to_float=0.5, upstream_to_float=0.25)
    return [
        (FP32, _measured(0.5)), (other, _measured(2.0, apart=far)), (third, _measured(1.0)),
        (Exported(NET, "fp16"), _measured(0.5)), (Exported(NET, "qs8"), Measured(error="no rule")),
    ]  # fmt: skip


def test_means_are_geometric_and_marked_where_the_aim_is_missed() -> None:
    assert report.short(_rows()) == [
        ["fp32", "3", "1.00 (!)", "1.00 (!)", "0.50 (!)", "0.10", "0.80", "1: other 2.00"],
        ["fp16", "1", "0.50", "0.50", "0.50 (!)", "0.10", "0.80", "none"],
        ["all", "4", "0.84 (!)", "0.84 (!)", "0.50 (!)", "0.10", "0.80", "1"],
    ]


def test_slow_programs_are_named_the_slowest_first() -> None:
    rows = [(FP32, _measured(1.06)), *_rows()[1:3]]
    assert report.short(rows)[0][-1] == "2: other 2.00, tiny 1.06"
    slow = rows[0][1].figures[1].model_copy(update={"p50_ms": (3.0, 1.0)})
    rows[0] = (FP32, rows[0][1].model_copy(update={"figures": {**rows[0][1].figures, 1: slow}}))
    assert report.short(rows)[0][-1] == "2: tiny 3.00, other 2.00", "the worse of one and two threads"


def test_a_program_that_failed_is_in_no_mean() -> None:
    rows = _rows()
    assert [line[:2] for line in report.full(rows)] == [
        ["tiny", "fp32"], ["other", "fp32"], ["third", "fp32"], ["tiny", "fp16"],
    ]  # fmt: skip
    assert report.full(rows)[0][2:] == [
        "0.5 : 1 ms", "0.50", "0.25 : 0.5 ms", "0.50", "1 : 2 ms", "0.50", "0.2 ms", "0.10", "8 : 10 MB", "0.80",
    ]  # fmt: skip
    assert report.differing(rows) == [["other fp32", "2", "1.5", "0.5", "0.25"]]


def test_the_docs_have_the_means_of_each_kind_of_processor(empty_tables: None) -> None:
    report.keep(_rows()[:3], "a machine", 2)
    (row,) = report.SHORT_OF[0].rows()
    assert (row["scheme"], row["programs"]) == ("fp32", "3")
    assert report.OUTPUTS.rows()[0]["program"] == "other fp32"
    report.keep(_rows(), "another, AVX2, 2 processors", 2)
    assert [one["scheme"] for one in report.SHORT_OF[1].rows()] == ["fp32", "fp16", "all"]
    assert report.SHORT_OF[0].rows() == [row]


def test_the_page_names_every_package() -> None:
    text = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    named = {net.make.partition(".")[0].replace("_", "-") for net in load().values()} - {"verify"}
    assert [one for one in sorted(named) if one.partition(":")[0] not in text] == []
