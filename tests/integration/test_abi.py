"""The C API's binary interface is the promised one, and abidiff sees every kind of change."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify import abi

pytestmark = pytest.mark.build


def test_the_c_api_is_the_promised_one() -> None:
    assert abi.main([]) == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("uint64_t readable;", "uint32_t readable;", "'uint32_t rank' offset changed"),
        ("SLIPWAY_LIMIT = 11", "SLIPWAY_LIMIT = 12", "SLIPWAY_LIMIT"),
        ("slipway_method_execute(slipway_method* method", "slipway_method_execute(slipway_method* m, int n", "'int'"),
        ("slipway_pool_threads(", "slipway_pool_count(", "slipway_pool_threads"),
        ("SLIPWAY_API uint32_t slipway_abi_version", "SLIPWAY_API uint64_t slipway_abi_version", "return type changed"),
    ],
    ids=["member", "number", "parameter", "function", "result"],
)  # fmt: skip
def test_a_planted_change_is_found(tmp_path: Path, old: str, new: str, said: str) -> None:
    found = abi.compare(abi.dump(), changed(tmp_path, old, new))
    assert said in found.broken


def test_a_further_function_breaks_nothing(tmp_path: Path) -> None:
    more = "SLIPWAY_API int slipway_more(void);\n"
    found = abi.compare(abi.dump(), changed(tmp_path, "/** The library's version", f"{more}/** The library's version"))
    assert found.broken == ""
    assert "slipway_more" in found.added


def changed(folder: Path, old: str, new: str) -> Path:
    text = abi.HEADER.read_text(encoding="utf-8")
    assert text.count(old) == 1
    copy = folder / "slipway.h"
    copy.write_text(text.replace(old, new), encoding="utf-8")
    return copy
