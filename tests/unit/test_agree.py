"""Comparisons with upstream's runtime: what is found wrong, what is kept, which programs there are, the tables."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from commands.own import Agree
from core import environment
from core.errors import ConfigError, MismatchError, UsageError
from core.formats.program import Tolerance
from deploy.devices.inventory import FILE, get_device
from toolchains.emulation import platforms
from toolchains.emulation.platforms import Platform
from toolchains.targets import get_target, load_targets
from verify.agree import agree, on_device
from verify.agree import kept as agree_kept
from verify.agree import look as agree_look
from verify.agree import programs as agree_programs
from verify.agree.kept import Cell, Column
from verify.agree.look import Executor
from verify.agree.programs import About, Compared

ABOUT = About("mlp fp32", "mlp", "fp32")
LIMIT = Tolerance(atol=1e-5, rtol=0.0, why="fp32")
EXACT = Tolerance(atol=0.0, rtol=0.0, why="the same bits")
NAMED = {
    *(("linux-x86_64", cpu) for cpu in ("native", "Nehalem", "Haswell", "avx512")),
    *(("linux-arm64", cpu) for cpu in ("cortex-a53", "cortex-a72", "cortex-a76", "max")),
    *(("linux-armv7", "cortex-a7"), ("linux-armv6", "arm1176"), ("windows-x86_64", "wine")),
    *(("android-arm64", "cortex-a53"), ("android-armv7", "cortex-a7")),
    *(("android-x86", "Conroe"), ("android-x86_64", "Nehalem")),
}
"""Where programs must have run."""


@pytest.fixture
def program(tmp_path: Path) -> Compared:
    """One with two outputs: floats, and whole numbers."""
    np.save(tmp_path / "output0.npy", np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))
    np.save(tmp_path / "output1.npy", np.arange(5))
    (tmp_path / "model.pte").write_bytes(b"program")
    outputs = (tmp_path / "output0.npy", tmp_path / "output1.npy")
    return Compared(ABOUT, tmp_path / "model.pte", (), outputs, (LIMIT, EXACT))


def planted(program: Compared, folder: Path, index: int, error: float) -> list[Path]:
    """The outputs as files of their own, one element of one of them wrong."""
    folder.mkdir()
    files = []
    for number, file in enumerate(program.outputs):
        array = np.load(file)
        if number == index:
            array.reshape(-1)[-2] += error
        files.append(folder / file.name)
        np.save(files[-1], array)
    return files


def test_one_wrong_element_is_found(program: Compared, tmp_path: Path) -> None:
    cell = agree_look.judge(program, program.outputs)
    assert (cell.outcome, cell.max_abs) == ("exact", 0)
    near = agree_look.judge(program, planted(program, tmp_path / "near", 0, 5e-6))
    assert near.outcome == "agrees" and 4e-6 < near.max_abs < 6e-6
    far = agree_look.judge(program, planted(program, tmp_path / "far", 0, 1e-3))
    assert far.outcome == "differs" and "output0: 1 of 12" in far.why
    whole = agree_look.judge(program, planted(program, tmp_path / "whole", 1, 1))
    assert whole.outcome == "differs" and "output1: 1 of 5" in whole.why
    nan = agree_look.judge(program, planted(program, tmp_path / "nan", 0, float("nan")))
    assert nan.outcome == "differs" and nan.max_abs == agree_kept.INFINITE
    assert agree_kept.text(nan) == "differs"


def test_an_exact_program_and_another_shape_may_not_differ(program: Compared, tmp_path: Path) -> None:
    strict = replace(program, limits=(EXACT, EXACT))
    assert agree_look.judge(strict, planted(program, tmp_path / "near", 0, 1e-6)).outcome == "differs"
    assert agree_look.judge(program, program.outputs[:1]).outcome == "differs"
    np.save(tmp_path / "flat.npy", np.load(program.outputs[0]).reshape(-1))
    cell = agree_look.judge(program, [tmp_path / "flat.npy", program.outputs[1]])
    assert cell.outcome == "differs" and "shape" in cell.why


def test_what_a_comparison_depends_on_is_in_its_digest(program: Compared, tmp_path: Path) -> None:
    assert replace(program).digest == program.digest
    assert replace(program, runs=2).digest != program.digest
    assert replace(program, limits=(EXACT, EXACT)).digest != program.digest
    other = replace(program, outputs=tuple(planted(program, tmp_path / "other", 0, 1.0)))
    assert other.digest != program.digest


def test_every_scheme_of_the_zoo_and_twelve_architectures_are_compared() -> None:
    known = agree_programs.table().values()
    assert {"mlp qs8", "mobilenet_v2 fp16", "mixed qd8_qb4w", "llama portable", "lstm fp32"} <= {
        one.name for one in known
    }
    assert len({one.model for one in known if one.further}) >= 12
    assert {one.name for one in known if one.exact} >= {"mlp qs8", "moved portable", "moved fp32", "hashed portable"}


def test_programs_are_chosen_by_names_and_patterns() -> None:
    assert [one.name for one in agree_programs.chosen("moved, m*lp f*")] == [
        "mlp fp32", "mlp fp16", "moved portable", "moved fp32",
    ]  # fmt: skip


def test_words_that_name_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="mpl"):
        agree_programs.chosen("mlp,mpl")
    with pytest.raises(ConfigError, match="pentium3"):
        agree.executors_for("linux-arm64", "pentium3")
    with pytest.raises(ConfigError, match="macos-arm64"):
        agree.executors_for("macos-arm64", "")
    with pytest.raises(UsageError, match="--cpu"):
        agree.executors_for("all", "max")


def executor(target: str, cpu: str, key: str = "runner") -> Executor:
    """A place whose bundle nobody asks for."""
    platform = Platform(get_target(target), cpu, f"qemu -cpu {cpu}")
    return Executor(cast("Any", None), platform, key)


class Looks:
    """Stands for running a program: notes what is asked for, and is interrupted after so many."""

    def __init__(self, until: int = 99) -> None:
        self.asked: list[tuple[str, str]] = []
        self.until = until

    def __call__(self, executor: Executor, program: Compared) -> Cell:
        if len(self.asked) == self.until:
            raise KeyboardInterrupt
        self.asked.append((executor.platform.cpu, program.about.name))
        return Cell(outcome="exact")


def test_a_sweep_goes_on_where_it_was_interrupted(
    program: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    (tmp_path / "large.pte").write_bytes(bytes(100))
    large = replace(program, about=replace(ABOUT, name="mlp fp16"), file=tmp_path / "large.pte")
    executors = [executor("linux-arm64", "cortex-a53"), executor("linux-armv6", "arm1176")]

    def sweep(*executors: Executor, until: int = 99, again: bool = False) -> list[tuple[str, str]]:
        looks = Looks(until)
        monkeypatch.setattr(agree, "look", looks)
        with contextlib.suppress(KeyboardInterrupt):
            agree.compare(agree.of_zoo([large, program]), executors, again)
        return looks.asked

    assert sweep(*executors, until=3) == [
        ("cortex-a53", "mlp fp32"), ("arm1176", "mlp fp32"), ("cortex-a53", "mlp fp16"),
    ], "small programs first"  # fmt: skip
    assert sweep(*executors) == [("arm1176", "mlp fp16")]
    assert sweep(*executors) == []
    newer = executor("linux-armv6", "arm1176", "another runner")
    assert sweep(executors[0], newer) == [("arm1176", "mlp fp32"), ("arm1176", "mlp fp16")]
    large.file.write_bytes(bytes(101))
    large = replace(large)  # what it knew of its files is forgotten
    assert sweep(executors[0], newer) == [("cortex-a53", "mlp fp16"), ("arm1176", "mlp fp16")]
    assert len(sweep(executors[0], again=True)) == 2


def test_a_wrong_cell_fails_the_command(program: Compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Cell(outcome="differs", max_abs=0.5, why="output0: 1 of 12 elements")
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    monkeypatch.setattr(agree, "executors_for", lambda target, cpu: [executor("linux-armv6", "arm1176")])
    monkeypatch.setattr(agree, "prepare", lambda abouts: [program])
    monkeypatch.setattr(agree, "look", lambda executor, program: wrong)
    monkeypatch.setattr(environment, "ensure_export", lambda: None)
    with pytest.raises(MismatchError, match="mlp fp32 on linux-armv6 arm1176"):
        agree.run(Agree(target="linux-armv6", program="mlp fp32"))


def test_the_docs_count_places_where_all_programs_ran(empty_tables: None) -> None:
    names = list(agree_programs.table())
    exact, near = Cell(outcome="exact"), Cell(outcome="agrees", max_abs=2.4e-7)
    some = {
        names[0]: near, names[1]: Cell(outcome="refused", why="no half precision"),
        names[2]: Cell(outcome="differs", max_abs=0.5), names[3]: Cell(outcome="too slow", why="over 300 s"),
    }  # fmt: skip
    whole = Column("linux-armv6", "arm1176", "qemu-arm", {**dict.fromkeys(names, exact), **some})
    for columns in (
        [whole, replace(whole, cpu="cortex-a7", cells=some)],
        [replace(whole, target="linux-arm64", cpu="max")],
    ):
        agree_kept.publish({agree_kept.ZOO: names}, columns)
    counts = (str(len(names)), str(len(names) - 4), "1", "1", "1", "0", "1")
    assert [tuple(row.values()) for row in agree_kept.COUNTS.rows()] == [
        (agree_kept.ZOO, target, cpu, "qemu-arm", *counts)
        for target, cpu in (("linux-arm64", "max"), ("linux-armv6", "arm1176"))
    ]
    text = agree_kept.in_short()
    counted = f"{2 * len(names) - 8} exact, 2 within tolerance, 2 differs, 2 refused, 0 failed, 2 not run"
    assert text.startswith(f"{len(names)} programs, each on 2 combinations of target and CPU: {counted}.\n")
    assert "ios-arm64: Mach-O check only: an app" in text and "linux-armv6:" not in text


def test_a_cell_says_exact_how_far_or_why_not() -> None:
    assert agree_kept.text(Cell(outcome="agrees", max_abs=2.4e-7)) == "2e-07"
    assert agree_kept.text(Cell(outcome="differs", max_abs=0.5)) == "differs: 0.5"
    assert agree_kept.text(Cell(outcome="too slow", why="over 300 s")) == "not run: over 300 s"
    assert agree_kept.text(None) == "not run"


def test_every_place_has_its_place_and_devices_are_among_them() -> None:
    order = agree_kept.everywhere()
    assert len(order) == len(set(order))
    for name, target in load_targets().items():
        assert {(name, cpu) for cpu in platforms.cpus(target)} <= set(order)
    for name, targets in on_device.DEVICES.items():
        device = get_device(name, FILE)
        assert device.virtual and device.target in targets
        for each in map(get_target, targets):
            assert each.machine in ("x86_64", "i686")
            assert agree_kept.places(each)[-1] == name
    assert "avx512" not in agree_kept.places(get_target("linux-arm64"))


def test_what_the_docs_say_of_every_place() -> None:
    """Nothing is wrong; the places that must be there are."""
    rows = [row for row in agree_kept.COUNTS.rows() if row["tests"] == agree_kept.ZOO]
    assert {(one["target"], one["CPU"]) for one in rows} >= NAMED
    for row in rows:
        assert row["differs"] == row["failed"] == "0", row
        counts = [int(row[head]) for head in ("exact", "within tolerance", "refused", "not run")]
        assert sum(counts) == int(row["programs"]) == len(agree_programs.table()), row
