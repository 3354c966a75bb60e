"""The matrix's report in a real browser: three widths, light and dark, and printed. Nothing leaves the page's width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.devices.inventory import Device
from deploy.matrix import html as matrix_html
from deploy.matrix.model import Matrix, Round, Times
from deploy.matrix.plan import Exportable
from tests.support.browser import Browser, browser, outside, pale
from tests.support.matrices import OUTPUT, cell, impossible, matrix, passed, problem

PROGRAMS = ("mobilenet_v2-fp32", "mobilenet_v2-qs8", "mlp-fp32", "mlp-qs8", "wav2letter-qd8-f16-qc4w", "edsr-fp32")
OUTSIDE = outside("main *", ".card")
TOO_WIDE = """Array.from(document.querySelectorAll('.card')).filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.scrollWidth + ' > ' + e.clientWidth + ': ' + e.textContent.trim().slice(0, 40))"""
PALE = pale("main .badge, main p, main td, main dd")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def shown() -> Matrix:
    """A matrix as a lab has it: boards, a virtual one, two engines, a device away, a wrong answer, a busy board."""
    cells = []
    boards = {
        "pi5": (("board",), 1.0, 9.5), "pi3-kitchen": (("board", "shelf"), 6.4, 0.3),
        "virtual-pi": (("emulated",), 40.0, 0.1), "phone": (("android",), 1.0, 0.2),
    }  # fmt: skip
    for name, (tags, slow, load) in boards.items():
        kind = {"virtual": "pi"} if "emulated" in tags else {"host": f"{name}.invalid"}
        device = Device.model_validate(
            {"name": name, "transport": "ssh", "target": "linux-arm64", "tags": tags, **kind}
        )
        for engine, part in (("executorch", 1.0), ("lean", 0.62)):
            for index, word in enumerate(PROGRAMS):
                model, _, scheme = word.partition("-")
                p50 = 0.0074 * 11.0**index * slow * part
                times = Times(
                    count=50, warmup=5, load=p50 * 2, min=p50 * 0.9, p50=p50, p90=p50 * 1.2, p99=p50 * 1.6, mean=p50
                )
                here = cell(device, Exportable(word, model, scheme, "pte"), engine)
                found = passed(
                    here, rounds=() if device.emulated else (Round(p50=p50, min=p50 * 0.9, load=load, hottest_c=61.0),),
                    program_bytes=10_000_000 >> index, peak_rss_bytes=23_456_789, bundle_bytes=4_123_456,
                    outputs=(OUTPUT.model_copy(update={"max_abs": 0.0 if index % 2 else 2e-7 * (index + 1)}),),
                    **({"emulated_time": times} if device.emulated else {"latency": times}),
                )  # fmt: skip
                gone = {"latency": None, "outputs": (), "rounds": (), "program_bytes": 0, "bundle_bytes": 0}
                if name == "phone":
                    why = problem(
                        error="unreachable", exit_code=20, what="phone cannot be reached.",
                        cause="adb: device 'emulator-5554' not found; is it connected and is USB debugging on?",
                        **{"try": "./inv devices.probe phone"},
                    )  # fmt: skip
                    found = found.model_copy(update={"outcome": "failed", "problem": why, **gone})
                elif (name, engine, word) == ("pi3-kitchen", "lean", "edsr-fp32"):
                    why = problem(
                        error="mismatch", exit_code=32, what="output0 of edsr-fp32 differs from the reference.",
                        cause="largest error 0.25, allowed 1e-05 + 1e-05 × |reference|",
                    )  # fmt: skip
                    wrong = (OUTPUT.model_copy(update={"max_abs": 0.25, "verdict": "differs"}),)
                    found = found.model_copy(update={"outcome": "differs", "problem": why, "outputs": wrong})
                cells.append(found)
    return matrix(
        *cells, name="nightly", only="(board | tag:emulated | phone) & (mobilenet* | mlp* | edsr | wav2letter)",
        command="./inv matrix --name nightly --engines executorch,lean --only '(board | tag:emulated | phone)'",
        commit="b6cc31b0a1d2-dirty", host="bench, 2 cores, Linux x86_64", seconds=250.0, settings={"cpu_threads": 4},
        impossible=(impossible("the target linux-armv6 has no engine executorch: upstream has no SDK for it", "pi1"),),
    )  # fmt: skip


def matrix_page() -> str:
    found = shown()
    before = [found.model_copy(update={"created": f"2026-11-1{day}T04:00:00.000Z"}) for day in range(3)]
    return matrix_html.text(found, before)


COUNT = "document.getElementById('count').textContent"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pages") / "matrix.html"
    file.write_text(matrix_page(), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (820, True), (1280, False)])
def test_nothing_leaves_the_page(tab: Browser, page: Path, width: int, dark: bool) -> None:
    tab.show(page, width, dark)
    asked: dict[str, object] = {
        "document.documentElement.scrollWidth": width, OUTSIDE: [], PALE: [], COUNT: "48 of 48",
    }  # fmt: skip
    if width == 1280:
        asked[TOO_WIDE] = []
    assert {script: tab.value(script) for script in asked} == asked


A4 = 703
"""Pixels between margins of 12 mm."""


def test_it_prints(tab: Browser, page: Path) -> None:
    """On paper nobody scrolls."""
    tab.show(page, 1280, dark=True)
    assert tab.printed().startswith(b"%PDF")
    tab.show(page, A4, dark=True, paper=True)
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.value("document.documentElement.scrollWidth") == A4
    assert tab.value(OUTSIDE) == []
    assert tab.value(TOO_WIDE) == []
