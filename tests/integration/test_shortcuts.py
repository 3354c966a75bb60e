"""Exports leave out work that changes nothing (models.lowering.shortcuts): they must be what they are with it."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path

import pytest

from core.formats.program import Program, load_program
from core.paths import ROOT
from models.export import export
from models.reference.host import Forked

pytestmark = pytest.mark.export

SOUGHT = f"{ROOT / 'tests' / 'fixtures' / 'models' / 'good.py'}:sought"


@pytest.mark.parametrize(("model", "scheme"), [(SOUGHT, "qs8")])
def test_no_byte_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, scheme: str) -> None:
    from models.lowering import shortcuts

    def exported(folder: str) -> Program:
        return load_program(export(model, scheme, out=tmp_path / folder))

    quick = exported("quick")
    for part in ("in_torch", "in_quantizing", "in_lowering"):
        monkeypatch.setattr(shortcuts, part, contextlib.nullcontext)
    thorough = exported("thorough")
    assert quick.sha256 == thorough.sha256
    assert quick.delegated == thorough.delegated


def test_each_pattern_has_the_operator_without_which_it_is_not_sought() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa

        patterns = {"upsample_bilinear2d": bilinear_2d.get_graphs(), "softmax": sdpa.get_graphs()}
    for part, graphs in patterns.items():
        assert graphs
        for pattern in graphs:
            assert any(part in str(node.target) for node in pattern.graph.nodes), pattern.graph


def test_a_copy_of_the_exporters_process_computes_with_large_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With threads that are not in the copy it would wait for ever, as the reference of a large output did."""
    import torch

    (tmp_path / "large_copies.py").write_text(
        "import os, torch\ndef main(): os.write(1, b'%d' % torch.ones(1 << 22).half().numel())", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert float((torch.ones(1 << 22) + 1).sum()) == 2 << 22  # begins torch's threads
    with (tmp_path / "log").open("w") as log:
        one = Forked("large_copies", log.fileno())
    try:
        assert one.wait(120) == 0, (tmp_path / "log").read_text()
        assert one.stdout.read() == f"{1 << 22}"
    finally:
        one.kill()
        one.stdin.close()
        one.stdout.close()
