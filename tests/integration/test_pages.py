"""The reports in a real browser: three widths, light and dark, and printed. Nothing leaves the page's width."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.comparing import report as compare_html
from deploy.comparing.model import Accuracy, Compared, Row, marked, suggested
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
PALE = pale("main .badge, main p, main td, main dd, main svg text")
PLOTS_CUT = """[...document.querySelectorAll('.plot')].filter(e => e.clientWidth).map(e => [e, e.closest('.card')])
  .filter(([e, card]) => card.scrollWidth > card.clientWidth
    || e.getBoundingClientRect().right > card.getBoundingClientRect().right)
  .map(([e]) => e.getAttribute('aria-label'))"""
"""Plots that are seen whole only after scrolling."""


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


def matrix_page(folder: Path) -> str:
    found = shown()
    before = [found.model_copy(update={"created": f"2026-11-1{day}T04:00:00.000Z"}) for day in range(3)]
    return matrix_html.text(found, before)


COUNT = "document.getElementById('count').textContent"


def compare_page(folder: Path) -> str:
    """Of a comparison: a board and an emulated one, two engines, a wrong program and one that failed."""
    rows = []
    reference = Accuracy(cosine=1.0, top1=0.718, top5=0.903)
    for device, emulated in (("pi5", False), ("virtual-pi", True)):
        for engine, part in (("executorch", 1.0), ("lean", 0.62)):
            for index, scheme in enumerate(("fp32", "f16", "qd8-f16-qc4w", "qs8", "qs8-per-tensor")):
                outcome = {("lean", 3): "differs", ("executorch", 2): "failed"}.get((engine, index), "passed")
                why = problem(
                    error="unsupported", what="executorch lacks an operator: quantized_decomposed::choose",
                    cause=f"the program needs it. {'What it says of that is long. ' * 9}\nLog: {'/folder' * 40}",
                )  # fmt: skip
                rows.append(
                    Row(
                        device=device, emulated=emulated, engine=engine, target="linux-arm64", scheme=scheme,
                        program=f"mobilenet_v2-{scheme}", outcome=outcome, samples=0 if outcome == "failed" else 100,
                        problem=why if outcome == "failed" else None, reference=reference, size=14_000_000 >> index,
                        accuracy=Accuracy(
                            cosine=1 - 0.002 * index, psnr=90.0 - index, top1=0.718 - 0.004 * index, top5=0.9
                        ),
                        p50=None if emulated else 34.5 * part / (index + 1), load=None if emulated else 12.0,
                        memory=45_678_901, throttled=(device, index) == ("pi5", 1),
                    )
                )  # fmt: skip
    done = marked(rows, "top1")
    found = Compared(
        model="mobilenet_v2", data="photographs/validation", created="2026-11-14T04:00:00.000Z", samples=100, of=5000,
        reference=reference, by="top1", rows=done, suggestions=suggested(done, "top1"),
    )  # fmt: skip
    return compare_html.html(found)


PAGES = {"matrix": matrix_page, "compare": compare_page}
OWN: dict[str, dict[str, object]] = {
    "matrix": {COUNT: "48 of 48"},
    # Of 20 programs two failed and two are wrong; the rows are 20 and float.
    "compare": {
        "document.querySelectorAll('main .scatter circle').length": 16,
        "document.querySelectorAll('main tbody tr').length": 21,
        "[...document.querySelectorAll('.why summary')].map(e => e.offsetHeight < 36)": [True] * 2,
    },
}
"""What is asked of one page alone, and its answer."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make(folder), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in PAGES}


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (820, True), (1280, False)])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_leaves_the_page(tab: Browser, pages: dict[str, Path], name: str, width: int, dark: bool) -> None:
    tab.show(pages[name], width, dark)
    asked = {"document.documentElement.scrollWidth": width, OUTSIDE: [], PALE: [], **OWN[name]}
    asked[PLOTS_CUT] = []
    if width == 1280 and name in ("matrix", "compare"):
        asked[TOO_WIDE] = []
    assert {script: tab.value(script) for script in asked} == asked


A4 = 703
"""Pixels between margins of 12 mm."""


def test_it_prints(tab: Browser, pages: dict[str, Path]) -> None:
    """On paper nobody scrolls."""
    tab.show(pages["matrix"], 1280, dark=True)
    assert tab.printed().startswith(b"%PDF")
    for name in ("matrix", "compare"):
        tab.show(pages[name], A4, dark=True, paper=True)
        assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.value("document.documentElement.scrollWidth") == A4
        assert tab.value(OUTSIDE) == []
        assert tab.value(TOO_WIDE) == []
        assert tab.value(PLOTS_CUT) == []
