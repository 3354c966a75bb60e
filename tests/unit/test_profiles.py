"""Conan's profiles and recipes: from tables alone, hardened as promised, with the pins of one library each."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from conan.errors import ConanException

from core.errors import BuildError, ConfigError
from core.paths import ROOT
from tests.support.processes import executable
from toolchains.bundle import conan, profiles
from toolchains.bundle.profiles import BUILD, Profile
from toolchains.compilers import ccache, families, zig
from toolchains.compilers.families import Compilers, cross_conf
from toolchains.debian import packages as debian
from toolchains.inspect import checks
from toolchains.inspect import needs as inspect
from toolchains.inspect.archives import Kind
from toolchains.targets import Target, get_target, load_targets
from verify.operators import coverage

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


def test_only_the_runner_loses_its_symbols_and_no_package_depends_on_ccache() -> None:
    """Other programs keep their table of symbols, by which the check of instructions knows kernels."""
    text = conan.render(get_target("linux-arm64"), compilers(get_target("linux-arm64")))
    assert any(line.startswith("slipway-runtime/*:tools.build:exelinkflags+=") for line in text.splitlines())
    assert "tools.build:exelinkflags" not in profile(text)
    target = get_target("linux-arm64")
    launchers = {"CMAKE_C_COMPILER_LAUNCHER": "/l/ccache;zig-1-abc"}
    without, through = (profile(conan.render(target, compilers(target), launchers=given)) for given in ({}, launchers))
    name = "tools.cmake.cmaketoolchain:extra_variables"
    assert json.loads(through[name]) == {**json.loads(without[name]), **launchers}
    assert through["user.slipway:toolchain"] == without["user.slipway:toolchain"]


def test_ccache_is_counted_and_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(debian, "available", lambda: "it is not Debian-like")
        assert ccache._program() == []
    log = tmp_path / "counted"
    assert ccache.hits(log) == (0, 0)
    log.write_text(
        "# a.c\ndirect_cache_hit\n# b.c\ncache_miss\n# c.c\npreprocessed_cache_hit\n# d.c\n", encoding="utf-8"
    )
    assert ccache.hits(log) == (2, 3)
    monkeypatch.setattr(ccache, "_program", lambda: ["/c/ccache"])
    assert set(ccache.variables(tmp_path, "k")) == {f"CMAKE_{name}_COMPILER_LAUNCHER" for name in ("C", "CXX", "ASM")}
    monkeypatch.undo()
    monkeypatch.setenv("SLIPWAY_CCACHE", "off")
    assert ccache.variables(tmp_path, "k") == {}
    assert ccache.environment(tmp_path) == {}


MADE = [Profile("linux-arm64", "zig", "[settings]\nos=Linux\n"), Profile(BUILD, "", "[settings]\nos=Linux\n")]


def test_somebody_elses_profile_and_file_stay(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("[settings]\nos=Macos\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="did not write it"):
        profiles.write(tmp_path, MADE)
    assert [file.name for file in tmp_path.iterdir()] == ["build"]
    assert (tmp_path / "build").read_text(encoding="utf-8") == "[settings]\nos=Macos\n"
    (tmp_path / "build").unlink()
    (tmp_path / "linux-arm64").mkdir()
    with pytest.raises(ConfigError, match="did not write it"):
        profiles.write(tmp_path, MADE)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a folder"):
        profiles.write(tmp_path / "file", MADE)


def test_recipes_have_the_librarys_version_and_addresses_of_their_own() -> None:
    version = re.search(r"project\(slipway_runtime VERSION (\S+)", (ROOT / "runtime/CMakeLists.txt").read_text())
    assert version
    for name in ("recipes/slipway/all/conanfile.py", "conanfile.py"):
        assert f'version = "{version[1]}"' in (ROOT / name).read_text(encoding="utf-8")
    assert f'"{version[1]}":' in (ROOT / "recipes/slipway/config.yml").read_text(encoding="utf-8")
    recipes = [file for file in (ROOT / "recipes").glob("*/*/conanfile.py") if file.parent.name != "test_package"]
    assert len(recipes) > 10
    for file in recipes:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"^ +url = ", text, re.MULTILINE), file
        assert re.search(r'^ +license = "', text, re.MULTILINE), file


ALL = tuple(checks.MEANINGS)


def binary(target: Target, kind: Kind = "program", *, without: str = "") -> inspect.Binary:
    have = tuple(name for name in ALL if name != without)
    return inspect.Binary(
        Path("/b/bin/pte_runner"), target.machine, "none", "", "", (), (), {}, kind=kind, hardening=have
    )


@pytest.mark.parametrize("target", load_targets().values(), ids=lambda target: target.name)
def test_every_target_promises_something_and_its_profile_has_the_flags(target: Target) -> None:
    names = checks.promised(target, binary(target))
    assert {"pie", "nx", "stack_protector"} <= set(names) <= set(ALL)
    assert ("high_entropy" in names) == (target.os == "windows" and target.machine in ("x86_64", "aarch64"))
    assert {"relro", "bind_now"} <= set(names) or target.os in ("windows", "macos", "ios")
    flags = families.hardening(target)
    values = profile(conan.render(target, compilers(target)))
    for language in ("cflags", "cxxflags"):
        words = json.loads(values[f"tools.build:{language}"])
        assert {*flags.compile, *flags.optimized, "-fstack-protector-strong"} <= set(words)
    assert json.loads(values["tools.build:exelinkflags+"]) == [*flags.link, *flags.program]
    assert json.loads(values["tools.build:sharedlinkflags"]) == ["-s", *flags.link]


@pytest.mark.parametrize("missing", ["pie", "relro", "bind_now", "nx", "stack_protector", "fortify", "assertions"])
def test_a_program_without_it_is_refused_by_name(missing: str) -> None:
    target = get_target("linux-arm64")
    with pytest.raises(BuildError) as caught:
        checks.check_hardening(target, [binary(target, without=missing)], Path("/b"))
    assert caught.value.names == (f"pte_runner {checks.MEANINGS[missing]}",)


RECIPES = ROOT / "recipes"


def test_sources_are_the_librarys() -> None:
    pins = [
        yaml.safe_load((RECIPES / name / "all" / "conandata.yml").read_text(encoding="utf-8"))["sources"]
        for name in ("xnnpack", "xnnpack_internals")
    ]
    assert pins[0] == pins[1]


slipway = SimpleNamespace(**runpy.run_path(str(RECIPES / "slipway/all/conanfile.py")))


def test_the_operators_of_the_package_are_the_engines() -> None:
    rows = [row["operators"] for row in coverage.OPERATORS.rows() if not row["kernel, and its test"].startswith("no")]
    named = set(re.findall(r"`([^`]+)`", " ".join(rows)))
    assert {name.replace("/", "::") for name in slipway.kernels_in(ROOT)} >= named
    assert len(named) > 200


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("all", ""),
        ("none", ""),
        ("aten/add.out", ""),
        ("aten/add.out+aten/mul.out", ""),
        ("aten/ad.out", "operators: there is no 'aten/ad.out'. did you mean aten/add.out? It takes"),
        ("aten/add.out+zzz", "operators: there is no 'zzz'. It takes all, none, or names with + between them: aten/"),
        ("", "operators: there is no ''."),
    ],
)
def test_an_operator_that_the_engine_lacks_is_refused(value: str, said: str) -> None:
    found = slipway.refused("operators", value, slipway.kernels_in(ROOT))
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_library_that_is_not_the_one_the_fix_is_for_is_refused(tmp_path: Path) -> None:
    recipe = runpy.run_path(str(RECIPES / "onnxruntime/all/conanfile.py"))["OnnxruntimeConan"]
    fix = {"file": "a.so", "offset": 2, "old": "0102", "new": "ffee"}
    (tmp_path / "a.so").write_bytes(b"\0\0\1\2\0")
    recipe._fix(tmp_path, **fix)
    assert (tmp_path / "a.so").read_bytes() == b"\0\0\xff\xee\0"
    with pytest.raises(ConanException, match="is not the library"):
        recipe._fix(tmp_path, **fix)


def test_npm_brings_the_pinned_package_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = runpy.run_path(str(RECIPES / "onnxruntime/android/conanfile.py"))["OnnxruntimeConan"]
    module = SimpleNamespace(**runpy.run_path(str(RECIPES / "slipway_sources/all/conanfile.py")))
    folder, cache = tmp_path / "folder", tmp_path / "cache"
    folder.mkdir()
    cache.mkdir()
    pinned = {"package": "a@1", "file": "a-1.tgz", "sha256": hashlib.sha256(b"a@1\n").hexdigest()}
    itself = SimpleNamespace(
        _archive=pinned, _sha256=cls._sha256, python_requires={"slipway_sources": SimpleNamespace(module=module)},
        conf=SimpleNamespace(get=lambda *_, **__: str(cache)), output=SimpleNamespace(info=print),
    )  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    npm = executable(tmp_path / "npm", '#!/bin/sh\nfor last; do :; done\necho $last > "${4#*=}/a-1.tgz"\n')
    assert cls._fetched(itself, folder).read_bytes() == b"a@1\n"
    npm.write_text("#!/bin/sh\necho down >&2\nexit 1\n", encoding="utf-8")
    assert cls._fetched(itself, folder) == cache / "a-1.tgz"
    (cache / "a-1.tgz").write_bytes(b"another")
    with pytest.raises(ConanException, match=r"npm could not fetch a-1\.tgz:\ndown"):
        cls._fetched(itself, folder)
    npm.write_text('#!/bin/sh\necho other > "${4#*=}/a-1.tgz"\n', encoding="utf-8")
    with pytest.raises(ConanException, match="not the file that was pinned"):
        cls._fetched(itself, folder)
