"""Programs whose delegate's graph somebody changed: taken apart into JSON, and put together again."""

from __future__ import annotations

import importlib.resources
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Graph = dict[str, Any]

_GRAPH_OFFSET, _GRAPH_SIZE, _DATA_OFFSET = slice(10, 14), slice(14, 18), slice(18, 22)
"""Of the header in front of a graph: little-endian numbers."""
_ALIGNMENT = 16


@contextmanager
def _schema() -> Iterator[tuple[Path, Path]]:
    """A folder to work in, and the schema in it."""
    from executorch.backends.xnnpack import serialization

    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "schema.fbs"
        schema.write_bytes(importlib.resources.files(serialization).joinpath("runtime_schema.fbs").read_bytes())
        yield Path(folder), schema


def read(payload: bytes) -> Graph:
    """The graph of a delegate's payload, every number spelled out."""
    from executorch.exir._serialize._flatbuffer import _flatc_decompile

    start, size = (int.from_bytes(payload[place], "little") for place in (_GRAPH_OFFSET, _GRAPH_SIZE))
    with _schema() as (folder, schema):
        (folder / "graph.bin").write_bytes(payload[start : start + size])
        words = ["--raw-binary", "--strict-json", "--defaults-json"]
        _flatc_decompile(str(folder), str(schema), str(folder / "graph.bin"), words)
        text = (folder / "graph.json").read_text(encoding="utf-8")
    # JSON has no infinities, flatc writes them all the same.
    graph: Graph = json.loads(re.sub(r"(?<=: )(-?)inf\b", r"\1Infinity", text))
    return graph


def write(payload: bytes, graph: Graph) -> bytes:
    """``payload`` with another graph; the constants behind it stay."""
    from executorch.exir._serialize._flatbuffer import _flatc_compile

    with _schema() as (folder, schema):
        (folder / "graph.json").write_text(json.dumps(graph), encoding="utf-8")
        _flatc_compile(str(folder), str(schema), str(folder / "graph.json"))
        made = next(path for path in folder.iterdir() if path.stem == "graph" and path.suffix != ".json").read_bytes()
    start, data = (int.from_bytes(payload[place], "little") for place in (_GRAPH_OFFSET, _DATA_OFFSET))
    header = bytearray(payload[:start])
    header[_GRAPH_SIZE] = len(made).to_bytes(4, "little")
    made += bytes(-(start + len(made)) % _ALIGNMENT)
    header[_DATA_OFFSET] = (start + len(made)).to_bytes(4, "little")
    return bytes(header) + made + (payload[data:] if data else b"")


def tensor(graph: Graph, index: int) -> Graph:
    """What the graph says of its value at ``index``, quantized or not."""
    value = graph["xvalues"][index]["xvalue_union"]
    found: Graph = value.get("tensor_value", value)
    return found


def node(graph: Graph, kind: str) -> Graph:
    """The numbers of the first node of a kind."""
    return next(one["xnode_union"] for one in graph["xnodes"] if one["xnode_union_type"] == kind)


def value_of(graph: Graph, identity: int) -> Graph:
    """What the graph says of the value with that id."""
    return next(one for one in (tensor(graph, i) for i in range(len(graph["xvalues"]))) if one["id_out"] == identity)


def changed(program: bytes, change: Callable[[Graph, Any], None]) -> bytes:
    """``program`` after ``change(graph of its first delegate, its first execution plan)``."""
    from executorch.exir._serialize._program import deserialize_pte_binary, serialize_pte_binary

    file = deserialize_pte_binary(program)
    plan = file.program.execution_plan[0]
    place = plan.delegates[0].processed.index
    payload = bytes(file.program.backend_delegate_data[place].data)
    graph = read(payload)
    change(graph, plan)
    file.program.backend_delegate_data[place].data = write(payload, graph)
    return bytes(serialize_pte_binary(file, extract_delegate_segments=True))


def call_of(plan: Any) -> Any:
    """The first call of a delegate."""
    calls = (one.instr_args for one in plan.chains[0].instructions)
    return next(call for call in calls if type(call).__name__ == "DelegateCall")
