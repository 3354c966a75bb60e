"""Options that change a scheme, and names that tell programs apart."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import ConfigError, UsageError
from models.request import key, resolve
from models.request.options import Options
from models.request.variants import chosen, kind_of, scheme_with, suffix
from models.zoo.schemes import get_scheme


@pytest.mark.parametrize(
    ("scheme", "options", "words"),
    [
        ("qs8", {"group": 64}, "group does not go with the scheme qs8"),
        ("qd8_qb4w", {"group": 48}, "group of 48 is not possible"),
        ("qd8_qb4w", {"bits": 4}, "bits does not go with"),
        ("qd8_qc8w", {"bits": 3}, "3 bits are not possible"),
        ("qd8_qc8w", {"per_tensor": True}, "per_tensor does not go with"),
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


def test_the_scheme_follows_its_options() -> None:
    changed = scheme_with(get_scheme("qd8_qb4w"), Options(group=64))
    assert (changed.group, changed.weights) == (64, "int4, one scale per 64 input features")
    assert scheme_with(get_scheme("qd8_qc8w"), Options(bits=4)).weight_bits == 4
    assert scheme_with(get_scheme("qs8"), Options()) == get_scheme("qs8")


def test_programs_of_other_options_have_other_names_and_keys() -> None:
    requests = [
        resolve("mlp", "qd8_qc8w"),
        resolve("mlp", "qd8_qc8w", partitioners=("xnnpack",)),
        resolve("mlp", "qd8_qc8w", partitioners=("xnnpack-dynamic",)),
        resolve("mlp", "qd8_qc8w", partitioners=("vulkan", "xnnpack")),
        resolve("mlp", "qd8_qc8w", options={"per_op_mode": True}),
        resolve("mlp", "qd8_qc8w", options={"config_precisions": "fp32,dynamic_quant"}),
        resolve("mlp", "qd8_qc8w", options={"bits": 4}),
        resolve("mlp", "qd8_qc8w", options={"layers": "0:float,4:int4"}),
    ]
    names = [one.name for one in requests]
    assert names[:2] == ["mlp-qd8_qc8w"] * 2
    assert names[2:] == [
        "mlp-qd8_qc8w-xnnpack-dynamic",
        "mlp-qd8_qc8w-vulkan_xnnpack",
        "mlp-qd8_qc8w-per_op_mode",
        "mlp-qd8_qc8w-config_precisions_fp32_dynamic_quant",
        "mlp-qd8_qc8w-bits_4",
        "mlp-qd8_qc8w-layers_0_float_4_int4",
    ]
    assert len({key(one) for one in requests[1:]}) == len(requests) - 1
    assert key(requests[0]) == key(requests[1])


@pytest.mark.parametrize(
    ("partitioners", "options"),
    [(("none",), {}), (("xnnpack-float",), {}), (("xnnpack",), {"config_precisions": "fp32,static_quant"})],
)
def test_dynamic_layers_need_a_backend(partitioners: tuple[str, ...], options: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve("mlp", "qd8_qb4w", partitioners=partitioners, options=options)
    assert "dynamic quantization needs a backend that computes it" in caught.value.cause
    assert ",".join(partitioners) in caught.value.cause
    resolve("mlp", "qs8", partitioners=partitioners, options=options)
    resolve("mlp", "qd8_qb4w", partitioners=("xnnpack-float", "vulkan"))


def test_a_long_name_ends_in_a_digest() -> None:
    layers = tuple(f"blocks.{number}.mlp:float" for number in range(20))
    first, second = suffix((), Options(layers=layers)), suffix((), Options(layers=(*layers, "head:float")))
    assert len(first) <= 61
    assert first != second


def test_the_last_pattern_counts() -> None:
    layers = ("blocks.*:int8", "blocks.3:float")
    assert kind_of(layers, "blocks.2.mlp") == "int8"
    assert kind_of(layers, "blocks.3") == kind_of(layers, "blocks.3.mlp") == "float"
    assert kind_of(layers, "head") == kind_of((), "head") == ""


def test_a_variant_names_partitioners_and_options() -> None:
    assert chosen("") == ((), {})
    assert chosen("vulkan+xnnpack") == (("vulkan", "xnnpack"), {})
    assert chosen("none;group=64;layers=0:int8,4:float") == (("none",), {"group": "64", "layers": "0:int8,4:float"})
    with pytest.raises(UsageError, match="group twice"):
        chosen("group=32;group=64")
