"""Users' own tests on devices: the example project, run by a real pytest of its own."""

from __future__ import annotations

import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import ran

pytestmark = [pytest.mark.virtual, pytest.mark.build, pytest.mark.export]

EXAMPLE = ROOT / "tests" / "fixtures" / "device_tests"
MODEL = "test_the_model_gives_the_same_numbers_everywhere"


def run(folder: Path, *words: str) -> tuple[int, dict[str, str], str]:
    report = folder / "report.xml"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "-p no:cacheprovider -p no:labgrid"}
    argv = [sys.executable, "-m", "pytest", "-q", "-rs", f"--junitxml={report}", str(EXAMPLE), *words]
    done = ran(argv, cwd=folder, env=environment)
    outcomes: dict[str, str] = {}
    if report.is_file():
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it, just now
            kinds = [child.tag for child in case if child.tag != "properties"]
            outcomes[case.attrib["name"]] = kinds[0] if kinds else "passed"
            for each in case.iter("property"):
                outcomes[f"{case.attrib['name']} {each.attrib['name']}"] = each.attrib["value"]
    return done.returncode, outcomes, done.stdout + done.stderr


def test_on_this_machine_and_on_the_virtual_pi(tmp_path: Path) -> None:
    code, outcomes, said = run(tmp_path, "--device", "local", "--device", "pi")
    assert code == 0, said
    assert {name: outcome for name, outcome in outcomes.items() if " " not in name} == {
        f"{MODEL}[local]": "passed",
        f"{MODEL}[pi]": "passed",
        "test_the_model_is_fast_where_times_mean_something[local]": "passed",
        "test_the_model_is_fast_where_times_mean_something[pi]": "skipped",
        "test_a_program_of_my_own[local]": "skipped",
        "test_a_program_of_my_own[pi]": "passed",
        "test_without_a_device": "passed",
    }
    assert outcomes[f"{MODEL}[pi] slipway.device"] == "pi"
    assert outcomes[f"{MODEL}[pi] slipway.p50_ms"] == "", "an emulated time is no latency"
    assert float(outcomes[f"{MODEL}[local] slipway.p50_ms"]) > 0
    assert "pi is not tagged native" in said
    assert "local is linux-x86_64, not linux-arm* or android-arm*" in said


def test_expressions_and_mistakes(tmp_path: Path) -> None:
    code, outcomes, said = run(tmp_path, "--device", "!emulated", "-k", "without or fast", "--collect-only")
    assert code == 0, said
    assert "fast_where_times_mean_something[local]" in said
    assert "[pi]" not in said
    code, _, said = run(tmp_path, "--device", "all", "-k", "numbers", "--collect-only")
    assert code == 0, said
    assert all(f"[{name}]" in said for name in ("local", "pi", "pi-zero", "phone"))
    code, outcomes, said = run(tmp_path, "--device", "pj")
    assert (code, outcomes) == (4, {})
    assert "There is no device, tag, target, engine, program or scheme called 'pj'." in said
    assert "did you mean pi" in said
    code, outcomes, said = run(tmp_path, "--device", "(local")
    assert (code, outcomes) == (4, {})
    assert "Try: --device 'linux-arm64 & " in said
    assert "--only" not in said


def test_a_failed_deploy_is_told_in_a_few_lines(tmp_path: Path) -> None:
    inventory = tmp_path / "devices.toml"
    inventory.write_text('[nowhere]\ntransport = "ssh"\ntarget = "host"\nhost = "127.0.0.1"\nport = 1\ntimeout = 5\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_DEVICES_FILE", str(inventory))
        code, outcomes, said = run(tmp_path, "--device", "nowhere", "-k", "numbers")
    assert code == 1
    assert outcomes == {f"{MODEL}[nowhere]": "failure"}
    assert "nowhere cannot be reached at 127.0.0.1 port 1." in said
    assert "Traceback" not in said
    assert "deploy/pytest_plugin.py" not in said
