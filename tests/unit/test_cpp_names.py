"""Several C++ files are compiled as one (SLIPWAY_UNITY): a name without linkage must not stand in two of them.

Most clashes are errors of the compiler. An overload is not: another file's would be called without a word.
"""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from core.paths import ROOT

RUNTIME = ROOT / "runtime"

_COMMON = ("base", "runner", "runner/files", "runner/report", "runner/roofline")

# The folders of each target's files.
_TARGETS = {
    "common": _COMMON,
    "common-windows": _COMMON,
    "common-macos": _COMMON,
    "program": ("program",),
    "executorch": ("engines/executorch",),
    "lean": tuple(f"engines/lean{floor}" for floor in ("", "/data", "/kernels", "/kleidiai", "/method", "/xnnpack")),
    "library": ("library",),
    "onnxruntime": ("engines/onnxruntime",),
    "fuzz-parts": ("fuzz",),
    "fuzz-sweep": ("fuzz",),
    "tests-executorch": ("tests", "tests/program", "tests/executorch"),
    "tests-lean": ("tests", "tests/program", "tests/lean"),
    "tests-onnxruntime": ("tests", "tests/onnxruntime"),
    "tests-tails": ("tests/tails",),
}
# Files for other systems, and those that are compiled alone.
_OTHERS = {
    "common": re.compile(r"_(windows|macos)\.cpp$"),
    "common-windows": re.compile(r"_(posix|linux|macos)\.cpp$"),
    "common-macos": re.compile(r"_(windows|linux)\.cpp$"),
    "fuzz-parts": re.compile(r"^(?!exercise|fields|stored)"),
    "fuzz-sweep": re.compile(r"^(?!sweep|last_words|trial|guarded_memory)"),
    "lean": re.compile(r"^(dynamic8|half|single|static8)\.cpp$"),
}

_UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
_FUNCTION = re.compile(
    r"^(?:template <[^\n]*>\n)?(?!template|static_assert|using|return)\w[\w:<>,&* ]*[ *&](\w+)\(", re.MULTILINE
)


def functions(source: str) -> set[str]:
    """Names of functions in the unnamed namespaces of a file that clang-format has formatted."""
    return {name for part in _UNNAMED.findall(source) for name in _FUNCTION.findall(part)}


def test_functions_of_an_unnamed_namespace_are_found() -> None:
    template = "template <typename T>\nconst T* three() {\n}\n"
    source = f"namespace {{\nint one(int a) {{\n  return two(a);\n}}\n{template}}}  // namespace\nint four();\n"
    assert functions(source) == {"one", "three"}


@pytest.mark.parametrize("target", sorted(_TARGETS))
def test_a_function_without_linkage_is_in_one_file_of_a_target(target: str) -> None:
    files = defaultdict(set)
    for folder in _TARGETS[target]:
        for path in (RUNTIME / folder).glob("*.cpp"):
            if not (target in _OTHERS and _OTHERS[target].search(path.name)):
                for name in functions(path.read_text(encoding="utf-8")):
                    files[name].add(path.name)
    assert sum(len(found) for found in files.values()) > 5  # the pattern still matches
    assert {name: found for name, found in files.items() if len(found) > 1} == {}
