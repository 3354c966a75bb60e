"""The compilers by themselves: what systems as old as the table of targets promises lack, and what they have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.processes import ran
from toolchains.compilers import libstdcxx, zig
from toolchains.compilers.libstdcxx import library, sysroot
from toolchains.inspect import needs as inspect
from toolchains.targets import Target, get_target
from toolchains.tools import table

pytestmark = pytest.mark.build


@pytest.fixture(scope="module", params=["linux-x86_64", "linux-arm64"])
def target(request: pytest.FixtureRequest) -> Target:
    return get_target(request.param)


@pytest.mark.parametrize(
    ("code", "symbol"),
    [
        ("#include <filesystem>\nbool f(const char* p) { return std::filesystem::exists(p); }", "std::filesystem"),
        ("#include <charconv>\nvoid f(double& d) { std::from_chars(nullptr, nullptr, d); }", "std::from_chars"),
    ],
)
def test_what_old_systems_lack_is_a_link_error(target: Target, tmp_path: Path, code: str, symbol: str) -> None:
    source = tmp_path / "main.cpp"
    source.write_text(f"{code}\nint main() {{}}\n", encoding="utf-8")
    words = [zig.ensure(target).cxx, "-std=c++17", str(source), "-o", str(tmp_path / "program")]
    done = ran(words)
    assert done.returncode != 0
    assert f"undefined symbol: {symbol}" in done.stderr


def test_the_stub_has_the_old_symbols_of_the_real_library(target: Target) -> None:
    """Every symbol the SDK's libraries could want is there, at the version it has on old systems, and none newer."""
    newest: dict[str, str] = table()["libstdcxx"]["newest"]
    adapted = libstdcxx.adapted(zig.program(), target, zig.caches())
    real = library(sysroot(target), target, "libstdc++.so.6")
    stub = next(path for path in adapted.inputs if path.name == "libstdc++.so.6")
    old = {symbol.name for symbol in libstdcxx.symbols(real) if libstdcxx.within(symbol.version, newest)}
    found = {symbol.name: symbol.version for symbol in libstdcxx.symbols(stub)}
    assert len(old) > 4000
    assert set(found) == old
    assert all(libstdcxx.within(version, newest) for version in found.values())
    assert inspect.read(stub).soname == "libstdc++.so.6"


def test_an_interrupted_install_of_zig_leaves_no_zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))

    def stop(folder: Path, *_: str) -> None:
        (folder / "ziglang").mkdir()
        shutil.copy("/bin/sh", folder / "ziglang" / "zig")
        raise KeyboardInterrupt

    monkeypatch.setattr(zig, "_install", stop)
    with pytest.raises(KeyboardInterrupt):
        zig.program()
    assert zig.installed() is None
    assert list((tmp_path / "cache" / "tools").iterdir()) == []
