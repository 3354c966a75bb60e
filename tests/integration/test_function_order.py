"""The engine lean's runner in memory: its C++ library is inside, and what programs run through lies together."""

from __future__ import annotations

import re

import pytest
from elftools.elf.elffile import ELFFile

from core.formats.bundle import RUNNER
from models.export import export
from toolchains.bundle import builder
from verify.function_order import ORDER, functions_run, pattern, windows

pytestmark = [pytest.mark.build, pytest.mark.export]

TARGET = "linux-x86_64"


def test_the_runner_needs_no_cxx_library_of_the_device() -> None:
    needs = builder.build(TARGET, "lean").manifest.needs
    assert needs.glibcxx == ""
    assert not [name for name in needs.libraries if "stdc++" in name]


def test_what_a_program_runs_through_lies_together() -> None:
    runner = builder.build(TARGET, "lean").path / RUNNER
    folder = export("mlp", "qs8")
    functions = functions_run(TARGET, "Haswell", folder / "model.pte", [folder / "input0.npy"])
    assert len(functions) > 500, "QEMU names what runs"
    with runner.open("rb") as file:
        elf = ELFFile(file)
        size = sum(section["sh_size"] for section in elf.iter_sections() if section.name.startswith(".text"))
    # In the order of the source files it is two thirds of them.
    assert windows(runner, functions) < 0.4 * (size >> 16)


def test_the_order_names_functions_that_there_are() -> None:
    """If this fails, functions have new names: python -m verify.function_order."""
    with (builder.build(TARGET, "lean").path / RUNNER).open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab").iter_symbols()
        there = {pattern(symbol.name) for symbol in symbols if symbol["st_info"]["type"] == "STT_FUNC"}
    named = re.findall(r"\*\(\.text\.(_ZN\S+\*)\)", ORDER.read_text(encoding="utf-8"))
    assert len(named) > 300
    missing = [name for name in named if name not in there]
    assert len(missing) < 0.2 * len(named), missing
