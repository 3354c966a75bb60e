"""The zoo, the schemes, the partitioners: tables that hold together, without torch."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from core.environment import bootstrap
from core.errors import ConfigError
from core.paths import ROOT
from models.request import partitioners, resolve
from models.request.options import PRECISIONS, Options, parse, words
from models.zoo import combinations, everything, get_model, load_zoo
from models.zoo.schemes import get_scheme, load_schemes

SCHEMES = ["fp32", "fp16", "qs8", "qd8_qc8w", "qd8_qb4w"]


def test_the_schemes_are_the_five() -> None:
    assert list(load_schemes()) == SCHEMES


def test_a_quantized_scheme_says_so_consistently() -> None:
    for scheme in load_schemes().values():
        assert bool(scheme.weight_bits) == (scheme.method in ("pt2e", "torchao")), scheme.name
        assert bool(scheme.weight_bits) == scheme.weights.startswith("int"), scheme.name
        assert (scheme.group == 0) or f"one scale per {scheme.group} " in scheme.weights, scheme.name


def test_the_zoo_has_every_model_asked_for() -> None:
    assert set(load_zoo()) == {"mlp", "mobilenet_v2", "linear", "conv", "conv1x1", "matmul", "mixed"}


@pytest.mark.parametrize("name", sorted(load_zoo()))
def test_a_models_maker_is_a_function_of_its_file(name: str) -> None:
    model = load_zoo()[name]
    functions = {
        node.name: node for node in ast.parse(model.source.read_text()).body if isinstance(node, ast.FunctionDef)
    }
    function = functions[model.maker.partition(":")[2]]
    assert [argument.arg for argument in function.args.args] == (["state_dict"] if model.state_dict else [])
    assert model.schemes[0] == "fp32"
    assert list(model.schemes) == [scheme for scheme in SCHEMES if scheme in model.schemes]


def test_nothing_to_quantize_nothing_offered() -> None:
    assert all(not get_scheme(scheme).weight_bits for scheme in get_model("matmul").schemes)


def test_no_torch_is_needed_to_know_what_is_there() -> None:
    heavy = ("torch", "executorch", "torchao", "numpy", "pydantic", "rich")
    code = (
        "import sys, models, models.export; from models.request.listing import listing; listing();"
        "models.is_current('mlp', 'qs8');"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    # models.export brings core.formats.program with it; is_current and listing must not.
    light = code.replace(", models.export", "")
    done = subprocess.run([sys.executable, "-c", light], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "torch" not in done.stdout


def test_all_is_every_combination_that_makes_sense() -> None:
    assert combinations("all", "all") == everything()
    assert combinations("net.py:make", "all") == [("net.py:make", scheme) for scheme in load_schemes()]
    assert combinations("net.py:make", "all", "onnx") == [("net.py:make", "fp32"), ("net.py:make", "qs8")]
    assert combinations("all", "qd8_qb4w") == [(name, "qd8_qb4w") for name in ("linear", "mlp", "mixed")]
    assert combinations("matmul", "all") == [("matmul", "fp32"), ("matmul", "fp16")]


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
    with pytest.raises(ConfigError) as caught:
        resolve(model, scheme)
    assert words_of_it in str(caught.value)
    assert "./inv" in caught.value.hint


def test_options_are_read_from_words() -> None:
    chosen = parse({"per_op_mode": "true", "config_precisions": "fp32, dynamic_quant", "enable_bf16": False})
    assert chosen == Options(per_op_mode=True, config_precisions=("fp32", "dynamic_quant"))
    assert chosen.to_json() == {"per_op_mode": True, "config_precisions": ["fp32", "dynamic_quant"]}
    assert parse(None) == Options()
    assert words("a, b,,c ") == ("a", "b", "c")


@pytest.mark.parametrize(
    ("options", "words_of_it"),
    [
        ({"per_op_mod": "1"}, "did you mean per_op_mode"),
        ({"per_op_mode": "perhaps"}, "must be true or false"),
        ({"config_precisions": "fp23"}, "did you mean fp32"),
    ],
)
def test_a_wrong_option_is_a_config_error(options: dict[str, str], words_of_it: str) -> None:
    with pytest.raises(ConfigError, match=words_of_it):
        parse(options)


def test_precisions_are_upstreams_names() -> None:
    assert PRECISIONS == ("fp32", "static_quant", "dynamic_quant")


def test_partitioners_are_checked() -> None:
    assert partitioners.check((), Options()) == ("xnnpack",)
    assert partitioners.check(("xnnpack-dynamic", "xnnpack"), Options(config_precisions=("fp32",)))
    assert partitioners.check(("none",), Options()) == ("none",)
    for wrong in (("xnpack",), ("none", "xnnpack"), ("xnnpack", "xnnpack")):
        with pytest.raises(ConfigError):
            partitioners.check(wrong, Options())


def test_an_option_nobody_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes the option per_op_mode") as caught:
        partitioners.check(("vulkan",), Options(per_op_mode=True))
    assert "xnnpack" in caught.value.cause


def test_the_table_of_partitioners_names_options_that_exist() -> None:
    known = set(Options(True, ("fp32",), True, True, ("LinearConfig",), True, "GPU").partitioner_arguments())
    for entry in partitioners.load_partitioners().values():
        assert set(entry.options) <= known, entry.name
        assert entry.path.count(":") == 1, entry.name
        assert entry.set in ("", *bootstrap.LABELS), entry.name


def test_a_backend_that_cannot_be_served_is_named_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="does not export for qualcomm") as caught:
        partitioners.check(("qualcomm",), Options())
    assert "SDK" in caught.value.cause


def test_a_partitioner_of_the_users_own_is_a_function_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    name = f"{file}:make"
    with pytest.raises(ConfigError, match="There is no file"):
        partitioners.check((name,), Options())
    file.write_text("def make():\n    return 1\n", "utf-8")
    assert partitioners.check((name, "xnnpack"), Options()) == (name, "xnnpack")
    before = partitioners.sources((name, "xnnpack"))
    file.write_text("def make():\n    return 2\n", "utf-8")
    assert partitioners.sources((name, "xnnpack")) != before


def test_the_docs_name_everything() -> None:
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    options = [field.name for field in dataclasses.fields(Options)]
    for name in (*load_zoo(), *load_schemes(), *partitioners.load_partitioners(), *options, *PRECISIONS, "none"):
        assert name in text, name
    for model in load_zoo().values():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{model.name}` |")]
        listed = row.rstrip(" |").rpartition("|")[2].strip()
        assert listed == ("all five" if list(model.schemes) == SCHEMES else ", ".join(model.schemes))
