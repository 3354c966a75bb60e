"""What recipes read out of sources: XNNPACK's own headers, and the operators of the package slipway."""

from __future__ import annotations

import importlib.util
import re

import pytest
import yaml

from core.paths import ROOT
from verify.operators import coverage

RECIPES = ROOT / "recipes"


def test_sources_and_patches_are_the_librarys() -> None:
    pins = [
        yaml.safe_load((RECIPES / name / "all" / "conandata.yml").read_text(encoding="utf-8"))["sources"]
        for name in ("xnnpack", "xnnpack_internals", "xnnpack_sources")
    ]
    assert pins[0] == pins[1] == pins[2]
    ours, librarys = (RECIPES / name / "all" for name in ("xnnpack_sources", "xnnpack"))
    data = [yaml.safe_load((folder / "conandata.yml").read_text(encoding="utf-8")) for folder in (ours, librarys)]
    assert data[0]["patches"] == data[1]["patches"]


SPEC = importlib.util.spec_from_file_location("slipway_recipe", RECIPES / "slipway" / "all" / "conanfile.py")
assert SPEC is not None
assert SPEC.loader is not None
slipway = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(slipway)


def test_the_operators_of_the_package_are_the_engines() -> None:
    rows = [row["operators"] for row in coverage.OPERATORS.rows() if not row["kernel, and its test"].startswith("no")]
    named = set(re.findall(r"`([^`]+)`", " ".join(rows)))
    assert {name.replace("/", "::") for name in slipway.kernels_in(ROOT / "runtime")} >= named
    assert len(named) > 200


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("all", ""),
        ("none", ""),
        ("aten/add.out", ""),
        ("aten/add.out+aten/mul.out", ""),
        ("aten/ad.out", "operators: there is no 'aten/ad.out'. did you mean aten/add.out? It takes"),
        ("aten/add.out+zzz", "operators: there is no 'zzz'. It takes all, none, or names with + between them: aten/"),
        ("", "operators: there is no ''."),
    ],
)
def test_an_operator_that_the_engine_lacks_is_refused(value: str, said: str) -> None:
    found = slipway.refused("operators", value, slipway.kernels_in(ROOT / "runtime"))
    assert found.startswith(said)
    assert bool(found) == bool(said)
