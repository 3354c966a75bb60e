"""What a bundle offers when nothing here can run it: read from the runner."""

from __future__ import annotations

from pathlib import Path

from toolchains.bundle.offers import ask, operators_in
from toolchains.targets import get_target

RUNNER = b"\0aten::add.out\0std::bad_alloc\0x aten::no.out\0aten::_softmax.out\0XnnpackBackend\0aten::add.out\0a::b"


def test_operators_stand_alone_between_zero_bytes() -> None:
    assert operators_in(RUNNER) == ("aten::_softmax.out", "aten::add.out")
    numbers = b"\0\0\0Eaten::a.out\0\xf0?aten::b.out\0\x0e\x0fet_copy::c.out\0\0KKKaten::d\0"
    assert operators_in(numbers) == ("aten::a.out", "aten::b.out", "aten::d", "et_copy::c.out")


def test_a_runner_that_nothing_runs_is_read(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pte_runner.exe").write_bytes(RUNNER)
    offers = ask(get_target("windows-arm64"), "lean", tmp_path, ("XnnpackBackend", "Other"))
    assert offers.verified == "not run: PE header check only"
    assert (offers.engine, offers.backends, offers.kleidiai) == ("lean", ("XnnpackBackend",), False)
    assert offers.operators == ("aten::_softmax.out", "aten::add.out")
    assert offers.engine_version == "0.1.0"
