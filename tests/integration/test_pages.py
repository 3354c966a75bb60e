"""Reports and the site of the docs in a real browser: three widths, light and dark, printed; nothing from elsewhere.

The browser is a headless Chromium of Debian's, without root, spoken to through its pipe.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import markdown_it
import pytest

from core.errors import BuildError
from deploy.devices.inventory import Device
from deploy.matrix.model import Matrix, Round, Times
from deploy.matrix.pages import html as matrix_html
from deploy.matrix.plan import Exportable
from tests.conftest import Inv
from tests.support.matrices import OUTPUT, cell, impossible, matrix, passed, problem
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.debian.tree import library_folders
from verify import site as pages

_PROGRAM = "usr/lib/chromium/chromium-headless-shell"
_HEIGHT = 900
_OWN = ("ld-linux*", "libc.so*", "libm.so*", "libdl.so*", "librt.so*", "libpthread.so*", "libresolv.so*", "libnss_*")
"""Of the C library, which goes with this machine's loader: Chromium starts itself again, so it needs that one."""


def pale(elements: str) -> str:
    """A script that gives texts with less contrast than WCAG 2.2's 4.5 to 1 (success criterion 1.4.3)."""
    return f"Array.from(document.querySelectorAll('{elements}')).filter({_PALE})" + _NAMED


def outside(elements: str, scrolls: str) -> str:
    """A script that gives elements beyond the right edge, apart from those in what scrolls."""
    return (
        f"""Array.from(document.querySelectorAll('{elements}')).filter(e => {{
      const box = e.getBoundingClientRect();
      return box.width && box.right > innerWidth + 1 && !e.closest('{scrolls}');
    }})"""
        + _NAMED
    )


_NAMED = ".map(e => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 40))"
_PALE = """e => {
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const over = (top, under) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => top[i] * a + under[i] * (1 - a)); };
  const light = rgb => rgb.map(v => v / 255).map(v => v <= .04 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const papers = [];
  for (let at = e; at; at = at.parentElement) papers.push(numbers(getComputedStyle(at).backgroundColor));
  const paper = papers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  if (!e.textContent.trim()) return false;
  const style = getComputedStyle(e), ink = numbers(e.closest('svg') ? style.fill : style.color);
  const pair = [light(over(ink, paper)), light(paper)].sort((a, b) => b - a);
  return (pair[0] + .05) / (pair[1] + .05) < 4.5;
}"""


class Browser:
    def __init__(self, child: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._child, self._to, self._back = child, to, os.fdopen(back, "rb", buffering=0)
        self._rest, self._count, self._session = b"", 0, ""
        (tab,) = [each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.enable")

    def show(self, page: Path, width: int, dark: bool, paper: bool = False) -> None:
        """Load ``page`` in a window of ``width`` pixels, or laid out for paper of that width."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=_HEIGHT, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media="print" if paper else "", features=[scheme])
        self._call("Page.navigate", url=page.resolve().as_uri())
        self._until("Page.loadEventFired")

    def value(self, script: str) -> Any:
        done = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def printed(self) -> bytes:
        """The page as PDF, as it is printed."""
        return base64.b64decode(self._call("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        os.close(self._to)
        self._back.close()
        self._child.kill()
        self._child.wait()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _until(self, event: str) -> None:
        while self._read().get("method") != event:
            pass

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = self._back.read(1 << 20)
            assert data, "the browser ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own in ``folder``, which loads nothing from the network."""
    tree = debian.tree(
        "bookworm", host_arch(), ["chromium-headless-shell", "fonts-dejavu-core"], closure=True, name="test-chromium"
    )
    child_in, to = os.pipe()
    back, child_out = os.pipe()
    fonts = folder / "fonts.conf"
    fonts.write_text(f"<fontconfig><dir>{tree}/usr/share/fonts</dir><cachedir>{folder}/fonts</cachedir></fontconfig>")
    words = [
        str(tree / _PROGRAM), "--no-sandbox", "--no-zygote", "--disable-gpu", "--remote-debugging-pipe",
        "--hide-scrollbars", "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}", "about:blank",
    ]  # fmt: skip
    libraries = folder / "libraries"
    libraries.mkdir()
    for file in (file for each in library_folders(tree) for file in each.glob("*.so*")):
        if not any(file.match(pattern) for pattern in _OWN) and not (libraries / file.name).is_symlink():
            (libraries / file.name).symlink_to(file)
    # The shell puts the pipes where Chromium expects them; both ends stay out of other children.
    script = f'exec "$@" 3<&{child_in} 4>&{child_out}'
    child = subprocess.Popen(
        ["/bin/bash", "-c", script, "bash", *words],
        env={**os.environ, "FONTCONFIG_FILE": str(fonts), "LD_LIBRARY_PATH": str(libraries)},
        pass_fds=(child_in, child_out),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    os.close(child_in)
    os.close(child_out)
    page = Browser(child, to, back)
    try:
        yield page
    finally:
        page.close()


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
    return matrix_html(shown())


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


SHOWN = ("index", "commands", "troubleshooting", "proofs")
"""Pages that are looked at: the first, and those with the longest words and widest tables."""
SITE_OUTSIDE = outside("article *", ".md-typeset__scrollwrap, pre, .tabbed-set")
SITE_PALE = pale(
    "article p, article td, article th, article li, article h1, article h2, article code:not(pre code), "
    "article a:not(.headerlink)"
)


@pytest.fixture(scope="module")
def site(inv: Inv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    done = inv("self.docs", env={"SLIPWAY_DIST": str(dist)})
    assert done.returncode == 0, done.stderr
    assert f"{len(pages.pages()) + 1} pages" in done.stdout
    return dist / "site"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|img|iframe|source)[^>]+src=\"?(?:https?:)?//[^\" >]+", text) == [], file.name
        assert re.findall(r"<link[^>]+href=\"?(?:https?:)?//[^\" >]+", text) == [], file.name
    for file in site.rglob("*.css"):
        assert re.findall(r"url\([\"']?(?:https?:)?//", file.read_text(encoding="utf-8")) == [], file.name


def _tags(html: str) -> dict[str, int]:
    """How many lists, items, blocks, tables, rows and headings there are."""
    names = ("ul", "ol", "li", "pre", "table", "tr", "h1", "h2", "h3", "blockquote", "img")
    return {name: len(re.findall(rf"<{name}[ >]", html)) for name in names}


def test_pages_have_the_structure_that_forges_show(site: Path, tmp_path: Path) -> None:
    """MkDocs' Markdown is older than CommonMark: a list without an empty line before it would be a paragraph."""
    reader = markdown_it.MarkdownIt("commonmark").enable("table")
    different = {}
    pages.stage(tmp_path)
    for name in pages.pages():
        html = (site / name).with_suffix(".html").read_text(encoding="utf-8")
        article = html[html.index("<article") : html.index("</article>")]
        here, there = _tags(article), _tags(reader.render((tmp_path / name).read_text(encoding="utf-8")))
        if here != there:
            different[name] = {tag: (here[tag], there[tag]) for tag in here if here[tag] != there[tag]}
    assert different == {}


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (820, True), (1280, False)])
def test_the_sites_pages_fit(site: Path, tab: Browser, width: int, dark: bool) -> None:
    for name in SHOWN:
        tab.show(site / f"{name}.html", width, dark)
        assert tab.value("document.body.getAttribute('data-md-color-scheme')") == ("slate" if dark else "default")
        assert tab.value("document.documentElement.scrollWidth") == width, name
        assert tab.value(SITE_OUTSIDE) == [], name
        assert tab.value(SITE_PALE) == [], name


def test_a_dead_link_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one to a heading that is gone; the site that was there stays."""
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n[a](deploy.md#no-such-heading) [b](nowhere.md)\n", encoding="utf-8")
    monkeypatch.setattr(pages, "moved", lambda text, file: (file.read_text(encoding="utf-8"), set()))
    monkeypatch.setattr(pages, "pages", lambda: {"models.md": page, "deploy.md": page})
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "before.txt").write_text("kept", encoding="utf-8")
    with pytest.raises(BuildError) as failed:
        pages.build()
    said = failed.value.cause
    assert "no-such-heading" in said
    assert "nowhere.md" in said
    assert [file.name for file in (tmp_path / "site").iterdir()] == ["before.txt"]
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".site")] == []
