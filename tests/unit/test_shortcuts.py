"""What `models.lowering.shortcuts` leaves out, and what it must not."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from models.lowering import shortcuts


class Pass:
    """A pass that looks for patterns."""

    def call(self, graph_module: Any) -> tuple[Any, list[str]]:
        """The graph, and the patterns it was compared with."""
        return graph_module, patterns.get()


patterns = SimpleNamespace(get=lambda: ["a", "b"])


@pytest.mark.parametrize(
    ("operators", "found"), [([], []), (["aten.add"], []), (["aten.add", "aten._softmax.default"], ["a", "b"])]
)
def test_patterns_are_made_only_where_one_can_match(operators: list[str], found: list[str]) -> None:
    nodes = [SimpleNamespace(target=operator) for operator in operators]
    graph = SimpleNamespace(graph=SimpleNamespace(nodes=nodes))
    with shortcuts._graphs_that_have("softmax", patterns, Pass, "get", []):
        assert Pass().call(graph) == (graph, found)
    assert Pass().call(graph) == (graph, ["a", "b"]), "as before, once it is over"


def test_the_collector_of_cycles_is_as_before() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with pytest.raises(KeyError), shortcuts._rare_cycles():
        assert gc.get_threshold()[0] > before[0]
        raise KeyError
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == frozen
