"""A bundle linked for one program only: it runs that one, and says of others what it lacks and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from elftools.elf.elffile import ELFFile

from core.formats.bundle import RUNNER, SBOM, Bundle
from models.export import export
from tests.support.processes import ran
from toolchains.bundle import builder
from toolchains.bundle.inputs import select

pytestmark = [pytest.mark.build, pytest.mark.export]

OPERATORS = ("aten::addmm.out", "aten::permute_copy.out", "aten::relu.out")


def stripped(program: Path) -> int:
    """Bytes of a program without its symbol table."""
    with program.open("rb") as file:
        elf = ELFFile(file)
        table = sum(int(elf.get_section_by_name(name).data_size) for name in (".symtab", ".strtab"))
    return program.stat().st_size - table


def ask(runner: Path, program: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = ran([runner, f"--model_path={program}", "--json", *words], timeout=300)
    return done.returncode, json.loads(done.stdout)


def test_it_has_what_its_program_needs_and_nothing_else(lean: Bundle, programs: Path, tmp_path: Path) -> None:
    bundle = builder.build("linux-x86_64", "lean", selection=select(["portable"], OPERATORS, []))
    assert bundle.path.name == "lean-portable"
    assert builder.build("linux-x86_64", "lean").path == lean.path, "the full bundle keeps its place"
    offers = bundle.manifest.offers
    assert (offers.programs, offers.operators, offers.backends) == (("portable",), OPERATORS, ())
    assert stripped(lean.path / RUNNER) < 4_000_000
    inside = {item["name"]: item for item in json.loads((lean.path / SBOM).read_text(encoding="utf-8"))["components"]}
    assert inside["libstdc++"]["version"].startswith("12.")
    assert {"glibc", "zig-compiler-rt"} <= set(inside)
    assert (bundle.path / RUNNER).stat().st_size < 0.3 * (lean.path / RUNNER).stat().st_size

    measured = ran([bundle.path / RUNNER, "--roofline"])
    assert (measured.returncode, "--ops-from" in measured.stderr) == (2, True)

    files = (f"--inputs={programs / 'portable.in0.npy'}", f"--output_file={tmp_path / 'y'}")
    code, said = ask(bundle.path / RUNNER, programs / "portable.pte", *files)
    assert code == 0, said
    assert numpy.allclose(numpy.load(tmp_path / "y0.npy"), numpy.load(programs / "portable.out0.npy"), atol=1e-6)
    for name, code, lacking in (("numbers", 4, "aten::"), ("delegated", 5, "XnnpackBackend")):
        refused, said = ask(bundle.path / RUNNER, programs / f"{name}.pte")
        assert (refused, "--ops-from" in said["error"]["fix"]) == (code, True)
        assert said["error"]["names"][0].startswith(lacking)


def test_a_delegates_kernels_are_linked_for_its_types_only(lean_runner: Path, tmp_path: Path) -> None:
    float32, static8 = (export("mlp", scheme) / "model.pte" for scheme in ("fp32", "qs8"))
    types = ask(lean_runner, static8, "--describe")[1]["methods"][0]["kernel_types"]
    assert types == ["xnnpack::f32", "xnnpack::qs8", "xnnpack::qs8_layers"]
    selection = select(["mlp-qs8"], [], ["XnnpackBackend"], types)
    runner = builder.build("linux-x86_64", "lean", selection=selection).path / RUNNER
    assert stripped(runner) < 2_500_000

    given = f"--inputs={static8.with_name('input0.npy')}"
    outputs = []
    for number, program in enumerate((lean_runner, runner)):
        code, result = ask(program, static8, given, f"--output_file={tmp_path / str(number)}")
        assert code == 0, result
        outputs.append((tmp_path / f"{number}0.npy").read_bytes())
    assert outputs[0] == outputs[1]

    described = ask(runner, float32, "--describe")[1]["methods"][0]
    code, refused = ask(runner, float32)
    assert (code, refused["error"]["names"]) == (4, described["missing_operators"])
    assert described["missing_operators"] == ["xnnpack::f32_layers"]
    assert "--ops-from" in refused["error"]["fix"]
