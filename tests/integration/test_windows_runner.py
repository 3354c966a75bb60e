"""pte_runner for Windows, under Wine: files, words in UTF-8, and faults."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.formats.program import load_program
from tests.support.deploying import program
from toolchains.bundle import builder
from toolchains.bundle.offers import operators_in
from toolchains.emulation import wine
from toolchains.targets import get_target

__all__ = ["program"]

pytestmark = [pytest.mark.build, pytest.mark.export]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def folder(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runner and a program in one folder, as Wine sees no other."""
    bundle = builder.build("windows-x86_64", "lean")
    made = tmp_path_factory.mktemp("windows") / "wörk"
    shutil.copytree(program, made)
    shutil.copy(bundle.path / "bin" / "pte_runner.exe", made)
    offers = bundle.manifest.offers
    assert offers.verified == "wine"
    # Where nothing runs the runner its operators are read from it: here both can be done.
    assert operators_in((made / "pte_runner.exe").read_bytes()) == offers.operators
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    target = get_target("windows-x86_64")

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        argv = wine.argv(target, folder / "pte_runner.exe", [*words, "--json"])
        return subprocess.run(
            argv, env=wine.environment(target), capture_output=True, text=True, timeout=300, check=False
        )

    return call


def test_files_and_faults_have_words_in_any_letters(run: Run, folder: Path) -> None:
    """The numbers are those of a deploy: test_emulated_devices.py."""
    facts = load_program(folder)
    done = run(f"--model_path=Z:\\work\\{facts.file}", "--output_file=Z:\\work\\ÿ")
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["cpu"]["arch"] == "x86_64"
    assert answer["peak_rss_bytes"] > 1 << 20
    assert (folder / "ÿ0.npy").is_file()
    data = (folder / facts.file).read_bytes()
    (folder / "cut.pte").write_bytes(data[: len(data) // 2])
    cut = run("--model_path=Z:\\work\\cut.pte")
    assert (cut.returncode, json.loads(cut.stdout)["error"]["kind"]) == (3, "file")
    absent = run("--model_path=Z:\\work\\nö.pte")
    assert absent.returncode == 3
    assert "nö.pte" in json.loads(absent.stdout)["error"]["message"]
    nowhere = run(f"--model_path=Z:\\work\\{facts.file}", "--output_file=Z:\\work\\none\\y")
    assert nowhere.returncode == 8


def test_it_has_no_tiles_that_windows_was_not_asked_for(folder: Path) -> None:
    # tilezero tmm0, with which each of XNNPACK's AMX kernels begins. Only processors with AMX would show it.
    assert bytes.fromhex("c4e27b49c0") not in (folder / "pte_runner.exe").read_bytes()
