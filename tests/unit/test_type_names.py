"""Arm's names for data types: the same export as our scheme's, wherever a scheme is taken, and one table."""

from __future__ import annotations

import pytest

from core.errors import ConfigError
from models.request import resolve
from models.zoo import combinations
from models.zoo.schemes import load_schemes, load_type_names, scheme_of, type_of

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
