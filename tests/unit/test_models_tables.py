"""The zoo, the schemes by either name, the partitioners and the options: tables that hold together, without torch."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from commands.export import requested
from commands.requests import Deploy, Export
from core.errors import ConfigError, UsageError
from core.paths import ROOT
from models.request import partitioners, resolve
from models.request.options import Options
from models.request.partitioners import kind_of, scheme_with
from models.zoo import combinations
from models.zoo.schemes import get_scheme, scheme_of, type_of
from tests.support.processes import ran

OWN = f"{ROOT}/tests/fixtures/models/partitioning.py:relu_only"


def test_nothing_heavy_is_needed_to_know_what_is_there() -> None:
    heavy = ("torch", "executorch", "torchao", "numpy", "pydantic", "rich", "paramiko", "conan", "elftools", "requests")
    code = (
        "import sys, models, tasks; from models.request import current, listing, resolve;"
        "listing(); current(resolve('mlp', 'qs8'));"
        f"print([name for name in {heavy!r} if name in sys.modules]);"
        "import models.export; print('torch' in sys.modules)"  # it brings core.formats.program with it
    )
    assert ran([sys.executable, "-c", code], cwd=ROOT).stdout.split() == ["[]", "False"]


@pytest.mark.parametrize(
    ("model", "scheme", "words_of_it"),
    [
        ("moblienet_v2", "fp32", "did you mean mobilenet_v2"),
        ("mlp", "qs9", "did you mean qs8"),
        ("mobilenet_v2", "qd8_qb4w", "Its schemes are fp32, fp16, qs8"),
        ("matmul", "qs8", "Its schemes are fp32, fp16"),
        ("", "fp32", "the zoo has linear"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(model: str, scheme: str, words_of_it: str) -> None:
    with pytest.raises(ConfigError, match=words_of_it) as caught:
        resolve(model, scheme)
    assert "./inv" in caught.value.hint


def test_partitioners_are_checked() -> None:
    assert partitioners.check((), Options()) == ("xnnpack",)
    assert partitioners.check((OWN, "xnnpack"), Options(per_op_mode=True))
    assert partitioners.check(("none",), Options()) == ("none",)
    for wrong in (("xnpack",), ("none", "xnnpack"), ("xnnpack", "xnnpack")):
        with pytest.raises(ConfigError):
            partitioners.check(wrong, Options())
    with pytest.raises(ConfigError, match="takes the option per_op_mode") as caught:
        partitioners.check((OWN,), Options(per_op_mode=True))
    assert "xnnpack" in caught.value.cause


@pytest.mark.parametrize(
    ("scheme", "options", "words"),
    [
        ("qs8", {"group": 64}, "group does not go with the scheme qs8"),
        ("qd8_qb4w", {"group": 48}, "group of 48 is not possible"),
        ("fp32", {"quantizer": "a.py:b"}, "quantizer does not go with"),
        ("fp32", {"layers": "head:float"}, "layers does not go with"),
        ("qs8", {"layers": "head:int4"}, "layers=head:int4 is not PATTERN:KIND"),
        ("qs8", {"layers": "head"}, "layers=head is not PATTERN:KIND"),
        ("qd8_qb4w", {"group": "many"}, "group must be a whole number"),
    ],
)
def test_options_that_do_not_fit_are_refused(scheme: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("mlp" if scheme != "qd8_qb4w" else "linear", scheme, options=options)
    assert words in str(caught.value)
    assert caught.value.hint or "possible" in words


def test_the_scheme_follows_its_options_and_the_last_pattern_counts() -> None:
    changed = scheme_with(get_scheme("qd8_qb4w"), Options(group=64))
    assert (changed.group, changed.weights) == (64, "int4, one scale per 64 input features")
    assert scheme_with(get_scheme("qs8"), Options()) == get_scheme("qs8")
    layers = ("blocks.*:int8", "blocks.3:float")
    assert kind_of(layers, "blocks.2.mlp") == "int8"
    assert kind_of(layers, "blocks.3") == kind_of(layers, "blocks.3.mlp") == "float"
    assert kind_of(layers, "head") == kind_of((), "head") == ""


def test_dynamic_layers_need_a_backend() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("mlp", "qd8_qb4w", partitioners=("none",))
    assert "dynamic quantization needs a backend that computes it" in caught.value.cause
    resolve("mlp", "qs8", partitioners=("none",))
    resolve("mlp", "qd8_qb4w", partitioners=(OWN,))


def test_several_lists_of_partitioners_make_a_program_each() -> None:
    several = Export(model="mlp", scheme="fp32", partitioners=f"xnnpack; none;{OWN}, xnnpack;;none")
    names = ["mlp-fp32", "mlp-fp32-none", "mlp-fp32-partitioning.py_relu_only_xnnpack"]
    assert [one.name for one in requested(several, "pte")] == names
    (usual,) = requested(Export(model="mlp", scheme="fp32", partitioners=""), "pte")
    assert usual.name == "mlp-fp32"
    with pytest.raises(ConfigError, match="There is no partitioner 'nnone'"):
        requested(Export(model="mlp", scheme="fp32", partitioners="xnnpack;nnone"), "pte")
    with pytest.raises(UsageError, match="A deploy runs one program") as caught:
        Deploy(model="mlp", partitioners="none;xnnpack")
    assert caught.value.hint == "./inv matrix --variants 'none xnnpack'"


def test_an_export_by_either_name_is_the_same_and_an_unknown_one_is_told() -> None:
    for scheme in ("fp32", "fp16", "qs8", "qd8_qc8w", "qd8_qb4w"):
        name = type_of(scheme)
        ours, arms = resolve("linear", scheme), resolve("linear", name)
        assert (arms.name, arms.folder, arms.scheme) == (ours.name, ours.folder, ours.scheme)
        assert combinations("mlp", name) == [("mlp", scheme)]
        assert scheme_of(f"{name}_gemm") == scheme
    assert (type_of("portable"), scheme_of("pf33")) == ("", "pf33")
    with pytest.raises(ConfigError, match="did you mean pf32"):
        resolve("linear", "pf33")
