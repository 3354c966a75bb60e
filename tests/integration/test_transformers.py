"""Families of language models beside transformers' own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from core.paths import ROOT
from models.users import packages

pytestmark = [pytest.mark.export, pytest.mark.build]

FOLDER = ROOT / "tests" / "fixtures" / "llama"
ENTER = f"""import runpy, sys
sys.path[:0] = [{str(ROOT)!r}, {str(FOLDER)!r}]
from pathlib import Path
from models.users import packages
packages.enter(packages.wanted(Path({str(FOLDER / "families.py")!r})))
runpy.run_path({str(FOLDER / "families.py")!r})
"""


@pytest.mark.long  # of what ./inv test exports, test_answer.py has one family
def test_each_family_computes_what_transformers_computes() -> None:
    """The names of weights and the numbers of shapes, as `models.text` gives them to upstream's transformer."""
    packages.install(packages.wanted(FOLDER / "families.py"))
    done = subprocess.run([sys.executable, "-c", ENTER], capture_output=True, text=True, timeout=600, check=True)
    found = [line.split() for line in done.stdout.splitlines()]
    assert len(found) == 8
    for name, far, unknown, lacks in found:
        assert float(far) < 1e-4, name
        assert (unknown, lacks) == ("0", "0"), name
