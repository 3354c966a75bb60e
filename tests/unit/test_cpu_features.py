"""--kleidiai and --cpu-features: strict words, the nearest name, and engines that cannot."""

from __future__ import annotations

import re

import pytest

from core.errors import UsageError
from core.paths import ROOT
from deploy.run.engine_flags import CPU_FEATURES, check_limits, cpu_features, kleidiai_switch, why_no_limits
from deploy.run.settings import Settings

SOURCE = ROOT / "runtime/engines/lean/xnnpack/cpu_features.cpp"


def test_the_runner_is_given_its_own_names_once_checked() -> None:
    table = SOURCE.read_text(encoding="utf-8").partition("kFeatures[] = {")[2].partition("};")[0]
    rows = re.findall(r'\{"(\w+)", "([^"]*)"', table)
    assert tuple(name for name, _aliases in rows) == CPU_FEATURES
    for name, aliases in rows:
        for alias in aliases.split():
            assert cpu_features(f"-{alias}") == f"-{name}"
    assert [kleidiai_switch(word) for word in ("", "on", "off")] == ["", "on", "off"]
    with pytest.raises(UsageError, match="on or off"):
        kleidiai_switch("no")
    check_limits("lean", "off", "-sme2")
    check_limits("executorch", "", "")
    with pytest.raises(UsageError, match="cannot leave CPU features unused"):
        check_limits("executorch", "", "-sme2")
    with pytest.raises(UsageError, match="neither turn KleidiAI off nor"):
        check_limits("onnxruntime", "off", "-sme2")
    assert why_no_limits("executorch", "on", "") == "the engine executorch cannot turn KleidiAI on"
    found = Settings.parse({"cpu_threads": 0, "kleidiai": "off", "cpu_features": "-asimddp,-SME"})
    assert found.limits == ["--kleidiai=off", "--cpu_features=-dotprod,-sme"]
    assert Settings().limits == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-dotprodd", "-dotprod"),
        ("-avx513f", "-avx512f"),
        ("sme2", "a minus before it"),
        ("-", "a minus before it"),
    ],
)
def test_a_wrong_word_names_the_right_one(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        cpu_features(text)
    assert said in str(raised.value)
