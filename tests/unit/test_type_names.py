"""Arm's names for data types: the same export as our scheme's, wherever a scheme is taken, and one table."""

from __future__ import annotations

import json

import pytest

from commands.matrix import catalogue
from core.errors import ConfigError
from core.paths import ROOT
from deploy.devices.inventory import Device
from deploy.matrix.matrix import MatrixRequest
from deploy.matrix.plan import Selection, plan
from deploy.matrix.words import parse
from models.request import resolve
from models.request.report import zoo
from models.zoo import combinations
from models.zoo.schemes import load_schemes, load_type_names, scheme_of, schemes_of, type_of

NAMES = {
    "pf32": "fp32", "pf16": "fp16", "pqs8_qc8w": "qs8", "qp8_f32_qc8w": "qd8_qc8w", "qp8_f32_qb4w": "qd8_qb4w",
}  # fmt: skip


def test_a_scheme_has_one_name_of_arms() -> None:
    assert {name: row.scheme for name, row in load_type_names().items()} == NAMES
    assert {type_of(scheme): scheme for scheme in load_schemes() if type_of(scheme)} == NAMES
    assert type_of("portable") == ""
    assert scheme_of("pf33") == "pf33"
    with pytest.raises(ConfigError, match="did you mean pf32"):
        resolve("linear", "pf33")


@pytest.mark.parametrize(("name", "scheme"), NAMES.items())
def test_an_export_by_either_name_is_the_same(name: str, scheme: str) -> None:
    ours, arms = resolve("linear", scheme), resolve("linear", name)
    assert (arms.name, arms.folder, arms.scheme) == (ours.name, ours.folder, ours.scheme)
    assert combinations("mlp", name) == [("mlp", scheme)]
    assert scheme_of(f"{name}_gemm") == scheme


def test_a_matrix_takes_them_in_options_and_expressions() -> None:
    assert schemes_of(["pf32", "fp32", "qs8"]) == ("fp32", "qs8")
    device = {"a": Device(name="a", transport="local")}
    _, programs = catalogue(MatrixRequest())
    for only, schemes in (("mlp & pf16", ()), ("mlp", ("fp16",)), ("mlp & fp16", ())):
        found = plan(device, programs, Selection(parse(only), engines=("lean",), schemes=schemes))
        assert [cell.program.name for cell in found.cells] == ["mlp-fp16"]


def test_the_docs_and_json_have_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    for row in load_type_names().values():
        line = f"| `{row.name}` | `{row.scheme}` | {row.activations} | {row.weights} | {row.output} | {row.layers} |"
        assert line in text
    zoo(as_json=True, languages=[])
    rows = json.loads(capsys.readouterr().out)
    assert {row["scheme"]: row["arms_name"]["name"] for row in rows} == {v: k for k, v in NAMES.items()}
    assert {row["arms_name"]["weights"] for row in rows if row["scheme"] == "fp16"} == {"float16"}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_name_is_broken_on_a_narrow_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    zoo(as_json=False, languages=[])
    words = capsys.readouterr().out.split()
    assert set(NAMES) | set(NAMES.values()) <= set(words)
