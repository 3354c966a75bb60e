"""Results and their tables: emulated times are marked, differences raise, JSON comes back as it went."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from core.errors import MismatchError
from core.formats.program import Tolerance
from deploy.devices.facts import DeviceFacts
from deploy.run import report
from deploy.run.compare import Comparison
from deploy.run.result import EMULATED, BundleUsed, ClassSeen, ProgramUsed, Result, Upload, overall, result_key, write
from deploy.run.runner import parse_result
from deploy.upkeep import report_devices
from tests.unit.test_runner_answers import ANSWER

LOOSE = Tolerance(atol=1e-5, rtol=0, why="fp32")
GOOD = Comparison(name="output0", dtype="float32", shape=(1, 1000), verdict="agrees", max_abs=2e-6, elements=1000,
                  different=3, tolerance=LOOSE)  # fmt: skip
WRONG = GOOD.model_copy(update={"name": "output1", "verdict": "differs", "max_abs": 0.5, "outside": 7})


def make(emulated: bool = False, outputs: tuple[Comparison, ...] = (GOOD,), **upload: Any) -> Result:
    moved = {"files": 2, "bytes": 14_000_000, "present_files": 6, "present_bytes": 12_000_000, **upload}
    return Result(
        created="2026-11-21T04:00:00.000Z",
        device="pi",
        transport="ssh",
        emulated=emulated,
        latency_note=EMULATED if emulated else "",
        facts=DeviceFacts(system="Linux", machine="aarch64", kernel="6.1", root="/r"),
        bundle=BundleUsed(
            target="linux-arm64", engine="executorch", engine_version="1.5.1", toolchain="zig", digest="0"
        ),
        program=ProgramUsed(name="mlp-fp32", file="model.pte", size=1, sha256="0", reference_engine="executorch 1.5.1"),
        preflight=(),
        upload=Upload(**moved),
        runner=parse_result(json.dumps(ANSWER).encode()),
        outputs=outputs,
        verdict=overall(outputs),
        seconds={"run": 1.0, "upload": 2.0},
    )


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    report.result(make())
    out = capsys.readouterr().out
    for words in ("output0", "1×1000", "2e-06", "1e-05", "agrees", "1.50 ms", "14.0 MB in 2 files", "3.0 s"):
        assert words in out
    report.result(make(files=0, bytes=0))
    assert re.search(r"uploaded +nothing(; | *\n)", capsys.readouterr().out)


def test_emulated_times_are_never_shown_as_latency(capsys: pytest.CaptureFixture[str]) -> None:
    report.result(make(emulated=True))
    out = capsys.readouterr().out
    assert EMULATED in out
    assert " ms" not in out
    report.result(make(emulated=True), as_json=True)
    value = json.loads(capsys.readouterr().out)
    assert (value["emulated"], value["latency_note"]) == (True, EMULATED)


def test_a_difference_is_shown_then_raised(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MismatchError, match="1 of 2 outputs of mlp-fp32 on pi") as caught:
        report.result(make(outputs=(GOOD, WRONG)))
    assert caught.value.exit_code == 32
    assert caught.value.names == ("output1",)
    assert "7 of 1,000 elements outside 1e-05, largest error 0.5" in caught.value.cause
    assert "DIFFERS (7 of 1,000)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [(["identical"], "identical"), (["identical", "agrees"], "agrees"), (["agrees", "differs"], "differs"),
     (["no reference", "identical"], "no reference"), ([], "no reference")],
)  # fmt: skip
def test_overall(verdicts: list[str], expected: str) -> None:
    assert overall(tuple(GOOD.model_copy(update={"verdict": verdict}) for verdict in verdicts)) == expected


def test_written_twice_over_under_a_safe_name(dist: Path) -> None:
    result = make()
    path = write(result)
    assert path == dist / "results/pi-mlp-fp32-executorch.json"
    assert Result.model_validate_json(path.read_text()) == result
    assert len(list((dist / "results/history").iterdir())) == 1
    write(result.model_copy(update={"created": "2026-11-21T04:00:01.000Z"}))
    assert len(list((dist / "results/history").iterdir())) == 2
    assert result_key("a/b", "../c d", "e") == "a_b-.._c_d-e"


def test_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    report_devices.devices(True)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["local"]["state"] == "up"
    assert rows["pi"]["virtual"] == "pi"
    report_devices.devices(name="local")
    assert "this machine" in capsys.readouterr().out


def test_classes_are_shown_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    seen = (ClassSeen(name="tabby", device=0.651, host=0.65, model=0.7),)
    plain = make()
    for scheme, columns, row in (
        ("fp32", "pi +this machine", r"tabby +65\.1% +65\.0%"),
        ("qs8", "pi +this machine +float model", r"tabby +65\.1% +65\.0% +70\.0%"),
    ):
        program = plain.program.model_copy(update={"scheme": scheme})
        report.result(plain.model_copy(update={"classes": seen, "picture": "a.png, a cat", "program": program}))
        assert re.search(rf"a\.png, a cat +{columns} *\n[^\n]+\n *{row} *\n", capsys.readouterr().out)
    report.result(plain.model_copy(update={"classes": seen}), as_json=True)
    assert json.loads(capsys.readouterr().out)["classes"][0]["host"] == 0.65
    report.result(plain)
    assert "this machine" not in capsys.readouterr().out
