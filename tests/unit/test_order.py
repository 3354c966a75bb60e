"""The order of the tests, and what is built ahead of them."""

from __future__ import annotations

from core.paths import ROOT
from tests.support import order
from toolchains.targets import get_target
from verify.suite import ahead

FILES = {file.stem for file in (ROOT / "tests").glob("*/test_*.py")}


def test_every_name_is_a_files_and_what_is_built_is_offered() -> None:
    named = [*order.FIRST, *order.LAST]
    assert len(set(named)) == len(named)
    assert {name.partition("[")[0] for name in (*named, *order.APART, *order.BY_PARAMETER)} <= FILES
    for name in named:
        assert ("[" in name) == (name.partition("[")[0] in order.BY_PARAMETER)
    assert len(set(ahead.PRODUCTS)) == len(ahead.PRODUCTS)
    for name, engine in ahead.PRODUCTS:
        assert engine == "native" or get_target(name).engine(engine) == engine


def test_files_stay_together_long_ones_come_first() -> None:
    (name,) = order.BY_PARAMETER
    file = f"tests/integration/{name}.py"
    assert order.unit(f"{file}::test_a[pi3]") == order.unit(f"{file}::test_b[pi3]") != order.unit(f"{file}::test_b[pi]")
    nodes = [f"{file}::test_it[{machine}]" for machine in ("pi-zero", "pi3", "phone-armv7")]
    assert sorted((nodes[1], nodes[2], nodes[0]), key=order.rank) == nodes
    nodes = [f"tests/integration/{name}.py::test_it[x::y]" for name in ("test_selective", "test_build", "test_zoo")]
    assert sorted(nodes, key=order.rank) == nodes[::-1]
    zoo = "tests/integration/test_zoo.py"
    assert order.unit(f"{zoo}::test_a[mlp::x]") == order.unit(f"{zoo}::test_b") == zoo
    (apart,) = order.APART
    assert order.unit(f"tests/integration/{apart}.py::test_a[1]") != order.unit(
        f"tests/integration/{apart}.py::test_a[2]"
    )
