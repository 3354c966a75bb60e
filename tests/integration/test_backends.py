"""Programs for other backends than XNNPACK, by upstream's partitioners and their makers' compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from core.errors import ConfigError, ExportError, HostError
from core.formats.program import Program, load_program
from core.paths import ROOT, cache_dir
from models.export import export
from models.reference.host import Host
from models.request import partitioners
from models.request.partitioners import load_partitioners

pytestmark = pytest.mark.export

OWN = ROOT / "tests" / "fixtures" / "models" / "partitioning.py"
Exporter = Callable[..., Program]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    out = tmp_path_factory.mktemp("programs")
    partitioners.enter("openvino")  # before the process that runs programs starts, as every export does
    with Host(cache_dir("logs") / "export-tests.log") as host:

        def call(model: str, scheme: str, *names: str, **options: Any) -> Program:
            return load_program(export(model, scheme, partitioners=names, options=options, out=out, host=host))

        yield call


@pytest.mark.parametrize(
    ("name", "scheme", "backend", "outside"),
    [
        ("coreml", "fp32", "CoreMLBackend", 0),
        ("vgf", "fp32", "VgfBackend", 0),
        ("webgpu", "fp32", "VulkanBackend", 0),
        ("ethos-u", "qs8", "EthosUBackend", 2),  # input and output are quantized on the CPU
    ],
)
def test_the_whole_model_is_compiled_for_the_backend(
    exported: Exporter, name: str, scheme: str, backend: str, outside: int
) -> None:
    program = exported("mlp", scheme, name)
    assert (program.backends, program.delegates) == ((backend,), 1)
    assert sum(one.count for one in program.undelegated) == outside
    assert sum(one.count for one in program.delegated if one.name == "aten::linear" or "addmm" in one.name) == 3
    assert program.reference_engine.startswith("torch ")


def test_openvino_runs_on_this_machine(exported: Exporter) -> None:
    program = exported("mlp", "fp32", "openvino")
    assert program.backends == ("OpenvinoBackend",)
    if not program.reference_engine.startswith("executorch "):
        # A CPU with bfloat16: OpenVINO computes in it, and the export says how far off that is.
        (warning,) = program.warnings
        away = float(warning.split(" away from the model")[0].rpartition(" ")[2])
        assert 1e-5 < away < 1e-2


def test_configs_restrict_what_xnnpack_takes(exported: Exporter) -> None:
    chosen = exported("mlp", "fp32", configs="ReLUConfig")
    mine = exported("mlp", "fp32", f"{OWN}:relu_only")
    assert [(one.name, one.count) for one in chosen.delegated] == [("aten::relu", 2)]
    assert [one.model_dump() for one in mine.undelegated] == [one.model_dump() for one in chosen.undelegated]
    assert mine.outputs[0].sha256 == chosen.outputs[0].sha256
    with pytest.raises(ConfigError, match="no config 'LinerConfig'") as caught:
        exported("mlp", "fp32", configs="LinerConfig")
    assert "LinearConfig" in caught.value.cause


def test_a_function_that_returns_something_else_is_an_error(exported: Exporter) -> None:
    with pytest.raises(ExportError, match="returned str, not a partitioner"):
        exported("mlp", "fp32", f"{OWN}:no_partitioner")


def test_a_partitioner_that_does_not_import_says_what_it_needs(
    exported: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MediaTek's, whose package no index has.
    entry = replace(load_partitioners()["coreml"], path="executorch.backends.mediatek:NeuropilotPartitioner", set="")
    monkeypatch.setitem(load_partitioners(), "coreml", entry)
    with pytest.raises(HostError, match="coreml does not work") as caught:
        exported("mlp", "fp32", "coreml")
    assert "mtk_converter" in str(caught.value)
