"""Selective bundles: what they are called, what Conan is told, what may not be in a name."""

from __future__ import annotations

import pytest

from core.errors import NotSupportedError, UsageError
from toolchains.build import builder
from toolchains.build.selection import Selection, select


def test_the_same_programs_give_the_same_selection() -> None:
    first = select(["mlp-fp32"], ["aten::mul.out", "aten::add.out", "aten::mul.out"], ["XnnpackBackend"])
    assert first == select(["mlp-fp32"], ["aten::add.out", "aten::mul.out"], ["XnnpackBackend"] * 2)
    assert first.name == "mlp-fp32"
    assert first.options == ("operators=aten/add.out+aten/mul.out", "backends=XnnpackBackend")


def test_nothing_at_all_is_needed() -> None:
    assert select(["a"], [], []).options == ("operators=none", "backends=none")


@pytest.mark.parametrize(
    ("programs", "name"),
    [(("a", "b"), "a+b"), (("my model (1)",), "my-model-1"), (("../..",), "program"), (("-x",), "x")],
)
def test_names_are_good_for_folders(programs: tuple[str, ...], name: str) -> None:
    assert Selection(programs, (), ()).name == name


def test_long_names_are_cut_and_stay_apart() -> None:
    one, two = (Selection(("m" * 60 + end,), (), ()).name for end in "ab")
    assert len(one) == len(two) == 48
    assert one != two


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(UsageError, match="is not an operator"):
        select(["a"], ["aten::add;rm"], [])
    with pytest.raises(UsageError, match="names no program"):
        select([], [], [])


def test_upstreams_engine_has_no_selective_bundles() -> None:
    with pytest.raises(NotSupportedError, match="for some programs only"):
        builder.build("linux-arm64", "executorch", selection=Selection(("a",), (), ()))
