"""``./inv profiles``: what is written where the user says, and what is left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.paths import ROOT
from tests.conftest import Inv
from toolchains.bundle import conan, profiles
from toolchains.bundle.profiles import BUILD, Profile
from toolchains.targets import get_target

MADE = [Profile("linux-arm64", "zig", "[settings]\nos=Linux\n"), Profile(BUILD, "", "[settings]\nos=Linux\n")]


def test_a_file_for_each_target_and_one_for_this_machine(tmp_path: Path) -> None:
    files = profiles.write(tmp_path / "a" / "b", MADE)
    assert [file.name for file in files] == ["linux-arm64", "build"]
    assert files[0].read_text().splitlines()[0].endswith("linux-arm64 with zig, for --profile:host.")
    assert files[1].read_text().splitlines()[0].endswith("build, for --profile:build.")
    assert profiles.write(tmp_path / "a" / "b", MADE) == files


def test_somebody_elses_profile_stays(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("[settings]\nos=Macos\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="did not write it"):
        profiles.write(tmp_path, MADE)
    assert [file.name for file in tmp_path.iterdir()] == ["build"]
    assert (tmp_path / "build").read_text(encoding="utf-8") == "[settings]\nos=Macos\n"
    (tmp_path / "build").unlink()
    (tmp_path / "linux-arm64").mkdir()
    with pytest.raises(ConfigError, match="did not write it"):
        profiles.write(tmp_path, MADE)


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a folder"):
        profiles.write(tmp_path / "file", MADE)


def test_they_are_the_profiles_of_slipways_own_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conan, "_text", lambda target, toolchain, build_type: f"{target.name} {toolchain} {build_type}")
    made = profiles.make([get_target("linux-armv6")])
    assert [profile.name for profile in made] == ["linux-armv6", "build"]
    assert made[0].text == "linux-armv6 zig Release"
    assert made[1].text.endswith("Debug")


def test_what_cannot_be_built_here_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found, reasons = profiles.usable("gnu")
    assert "linux-armv6" in reasons
    assert "ARMv7" in reasons["linux-armv6"]
    assert "linux-armv6" not in {target.name for target in found}


def test_it_needs_a_folder(inv: Inv) -> None:
    done = inv("profiles")
    assert done.returncode == 2
    assert "./inv profiles --output" in done.stderr


def test_the_packages_version_is_the_librarys() -> None:
    version = re.search(r"project\(slipway_runtime VERSION (\S+)", (ROOT / "runtime/CMakeLists.txt").read_text())
    assert version
    recipe = (ROOT / "recipes/slipway/all/conanfile.py").read_text(encoding="utf-8")
    assert f'version = "{version[1]}"' in recipe
    assert f'"{version[1]}":' in (ROOT / "recipes/slipway/config.yml").read_text(encoding="utf-8")
    assert f'version = "{version[1]}"' in (ROOT / "conanfile.py").read_text(encoding="utf-8")


def test_no_recipe_takes_upstreams_address_for_its_own() -> None:
    """``url`` is where a recipe is, ``homepage`` where the library is."""
    recipes = sorted((ROOT / "recipes").glob("*/*/conanfile.py"))
    assert len(recipes) > 10
    for file in recipes:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"^ +url = ", text, re.MULTILINE), file
        assert re.search(r'^ +license = "', text, re.MULTILINE), file
