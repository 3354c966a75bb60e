"""Programs for other backends than XNNPACK, by upstream's partitioners and their makers' compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.errors import ExportError
from core.formats.program import Program, load_program
from core.paths import ROOT, cache_dir
from models.export import export
from models.reference.host import Host

pytestmark = pytest.mark.export

OWN = ROOT / "tests" / "fixtures" / "models" / "partitioning.py"
Exporter = Callable[..., Program]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    out = tmp_path_factory.mktemp("programs")
    with Host(cache_dir("logs") / "export-tests.log") as host:

        def call(model: str, scheme: str, *names: str, **options: Any) -> Program:
            return load_program(export(model, scheme, partitioners=names, options=options, out=out, host=host))

        yield call


def test_the_whole_model_is_compiled_for_another_backend(exported: Exporter) -> None:
    program = exported("mlp", "fp32", f"{OWN}:vulkan")
    assert (program.backends, program.delegates, program.undelegated) == (("VulkanBackend",), 1, ())
    assert sum(one.count for one in program.delegated if one.name == "aten::linear" or "addmm" in one.name) == 3
    assert program.reference_engine.startswith("torch ")


def test_a_partitioner_of_the_users_own(exported: Exporter) -> None:
    mine = exported("mlp", "fp32", f"{OWN}:relu_only")
    assert [(one.name, one.count) for one in mine.delegated] == [("aten::relu", 2)]
    assert {one.name for one in mine.undelegated} >= {"aten::addmm.out"}


def test_a_function_that_returns_something_else_is_an_error(exported: Exporter) -> None:
    with pytest.raises(ExportError, match="returned str, not a partitioner"):
        exported("mlp", "fp32", f"{OWN}:no_partitioner")
