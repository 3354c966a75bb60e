"""Conan's profiles for every target and compiler family, from the table alone."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path

import pytest

from core.paths import cache_dir
from toolchains.bundle import conan
from toolchains.compilers import ccache, zig
from toolchains.compilers.families import Compilers, cross_conf
from toolchains.debian import packages as debian
from toolchains.targets import Target, get_target, load_targets

ZIG = [target for target in load_targets().values() if "zig" in target.toolchains]


def compilers(target: Target) -> Compilers:
    """zig's for ``target``, without fetching anything."""
    library = "libstdc++11" if target.libc == "glibc" else "libc++"
    made = Compilers("zig", "1", "zig-1-abc", "/c/cc", "/c/c++", "/c/ar", "/c/ranlib", zig._conan(target, library))
    return dataclasses.replace(made, conf=cross_conf(target))


def profile(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("slipway-"))


@pytest.mark.parametrize("target", ZIG, ids=lambda target: target.name)
def test_conans_own_schema_takes_the_settings(target: Target) -> None:
    from conan.internal.default_settings import default_settings_yml
    from conan.internal.model.settings import Settings

    values = profile(conan.render(target, compilers(target)).partition("[conf]")[0])
    settings = Settings.loads(default_settings_yml)
    settings.update_values([(name, value) for name, value in values.items()], raise_undefined=True)
    settings.validate()
    # A static executable for Android's kernel is a Linux program: Conan's Android means the NDK.
    assert values["os"] == ("Linux" if target.os == "android" else target.conan_os)
    assert values["arch"] == {"android-armv7": "armv7hf"}.get(target.name, target.conan_arch)
    assert values.get("os.version", "") == target.os_version


def test_cmake_is_told_that_it_cross_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it CMAKE_SYSTEM_PROCESSOR is this machine's where Conan thinks that programs of the target run here."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    name = "tools.cmake.cmaketoolchain:system_name"
    told = {target.name: profile(conan.render(target, compilers(target))).get(name) for target in ZIG}
    assert told["linux-x86_64"] is None
    assert told["linux-x86"] == told["android-x86_64"] == told["linux-arm64"] == "Linux"
    assert told["windows-x86"] == "Windows"


def test_only_the_runner_loses_its_symbols() -> None:
    """What proves packages to work is asked which kernels ran, by its symbol table."""
    text = conan.render(get_target("linux-arm64"), compilers(get_target("linux-arm64")))
    assert any(line.startswith("slipway-runtime/*:tools.build:exelinkflags+=") for line in text.splitlines())
    assert "tools.build:exelinkflags" not in profile(text)


def test_no_package_depends_on_ccache() -> None:
    target = get_target("linux-arm64")
    launchers = {"CMAKE_C_COMPILER_LAUNCHER": "/l/ccache;zig-1-abc"}
    without, through = (profile(conan.render(target, compilers(target), launchers=given)) for given in ({}, launchers))
    name = "tools.cmake.cmaketoolchain:extra_variables"
    assert json.loads(through[name]) == {**json.loads(without[name]), **launchers}
    assert through["user.slipway:toolchain"] == without["user.slipway:toolchain"]


def test_where_the_cache_is_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that one machine made are another's, wherever it keeps its cache."""
    target, keys = get_target("android-arm64"), []
    monkeypatch.setattr(zig, "program", lambda: cache_dir("tools") / "zig")
    for name in ("one", "two"):
        monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / name))
        made = zig.ensure(target)
        assert made.cc.startswith(str(tmp_path / name))
        keys.append(profile(conan.render(target, made))["user.slipway:toolchain"])
    assert keys[0] == keys[1]


def test_ccache_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ccache, "_program", lambda: ["/c/ccache"])
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    assert set(ccache.variables(tmp_path, "k")) == {f"CMAKE_{name}_COMPILER_LAUNCHER" for name in ("C", "CXX", "ASM")}
    monkeypatch.undo()
    monkeypatch.setenv("SLIPWAY_CCACHE", "off")
    assert ccache.variables(tmp_path, "k") == {}
    assert ccache.environment(tmp_path) == {}


def test_without_debians_the_systems_own_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "available", lambda: "it is not Debian-like")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ccache._program() == []
    own = tmp_path / "ccache"
    own.write_text("#!/bin/sh\n", encoding="utf-8")
    own.chmod(0o755)
    assert ccache._program() == [str(own)]


def test_hits_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "counted"
    assert ccache.hits(log) == (0, 0)
    log.write_text(
        "# a.c\ndirect_cache_hit\n# b.c\ncache_miss\n# c.c\npreprocessed_cache_hit\n# d.c\n", encoding="utf-8"
    )
    assert ccache.hits(log) == (2, 3)
