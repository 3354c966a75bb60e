"""The recipe of doctest: its own test package, in which a wrong sum must be found."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.files import locked
from core.paths import ROOT
from toolchains.bundle import conan, conan_packages
from toolchains.targets import get_target

pytestmark = pytest.mark.build

RECIPE = ROOT / "recipes" / "doctest" / "all"


def test_it_tells_a_right_sum_from_a_wrong_one(tmp_path: Path) -> None:
    log = tmp_path / "conan.log"
    with conan_packages.building(), locked(conan.LOCK):
        host, own = conan.profile(get_target("linux-x86_64")), conan.build_profile()
        conan.conan(
            ["create", RECIPE, "--version=2.4.11", f"--profile:host={host}", f"--profile:build={own}",
             f"--lockfile={conan.lockfile(log)}", "--lockfile-partial", f"--remote={conan.remote()}", "--build=missing",
             f"--conf=tools.cmake.cmake_layout:test_folder={tmp_path}",
             "--conf=tools.cmake.cmaketoolchain:user_presets="],
            log=log,
        )  # fmt: skip
    assert "doctest: a right sum passes, a wrong one fails" in log.read_text(encoding="utf-8")
