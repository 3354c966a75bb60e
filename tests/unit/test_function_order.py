"""The order of the runner's functions: patterns for the linker, from the names that a run leaves."""

from __future__ import annotations

import pytest

from verify.function_order import pattern, text


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("xnn_create_runtime_v4", "xnn_create_runtime_v4"),
        ("_start", "_start"),
        # slipway::prepare_inputs(slipway::Options const&)
        ("_ZN7slipway14prepare_inputsERKNS_7OptionsE", "_ZN7slipway14prepare_inputs*"),
        # slipway::lean::Method::find(int) const, slipway::lean::(anonymous namespace)::fold(slipway::Tensor&)
        ("_ZNK7slipway4lean6Method4findEi", "_ZNK7slipway4lean6Method4find*"),
        ("_ZN7slipway4lean12_GLOBAL__N_14foldERNS_6TensorE", "_ZN7slipway4lean12_GLOBAL__N_14fold*"),
        # The same as a template, for float: not all its instances.
        (
            "_ZN7slipway4lean12_GLOBAL__N_14foldIfEEvRNS_6TensorE",
            "_ZN7slipway4lean12_GLOBAL__N_14foldIfEEvRNS_6TensorE",
        ),
        # slipway::operator==(slipway::Tensor), and the constructor of slipway::lean::Method
        ("_ZN7slipwayeqENS_6TensorE", "_ZN7slipwayeqENS_6TensorE"),
        ("_ZN7slipway4lean6MethodC1Ev", "_ZN7slipway4lean6MethodC[012]Ev"),
        # A lambda in slipway::run().
        ("_ZZN7slipway3runEvENK3$_0clEv", "_ZZN7slipway3run*"),
        # What the C++ library's templates make is named as it is: std::vector's is everybody's.
        ("_ZNSt6vectorIlSaIlEE9push_backERKl", "_ZNSt6vectorIlSaIlEE9push_backERKl"),
    ],
)
def test_functions_of_ours_are_named_without_their_parameters(function: str, expected: str) -> None:
    assert pattern(function) == expected


def test_what_nearly_all_programs_call_comes_first_and_then_what_the_same_call() -> None:
    first = [{"all", "a", "c"}, {"all", "b"}, {"all", "b"}, {"all", "a", "c", "one"}, *({"all"} for _ in range(16))]
    # On another processor nearly all programs call "kernel", and none of the rest.
    script = text([first, [{"kernel"}] * 3])
    order = [
        "(.text.all)",
        "(.text.kernel)",
        "libpthreadpool.a:*(.text ",
        "not called by",
        "(.text.a)",
        "(.text.c)",
        "(.text.b)",
    ]
    places = [script.index(words) for words in order]
    assert places == sorted(places)
    assert "(.text.one)" not in script, "one program calls it"
    assert script.splitlines()[1] == "SECTIONS { .text.first : {"
    assert script.endswith("} } INSERT BEFORE .text;\n")
