"""A headless Chromium of Debian's, without root, spoken to through its pipe: pages at a width, light or dark.

Source: Chromium's ``--remote-debugging-pipe`` (messages of JSON, each ended by a zero byte, on descriptors 3 and 4) and
the DevTools protocol's documentation.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.debian.tree import library_folders

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
