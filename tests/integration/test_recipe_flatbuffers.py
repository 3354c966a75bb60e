"""The recipe of FlatBuffers: its own test package, and what it says when the sources cannot be had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.files import locked
from core.paths import ROOT
from toolchains.bundle import conan, conan_packages
from toolchains.targets import get_target

pytestmark = pytest.mark.build

RECIPE = ROOT / "recipes" / "flatbuffers" / "all"
SHARED = ROOT / "recipes" / "slipway_sources" / "all"
VERSION = "23.5.26"
PROFILE = """\
[settings]
os=Linux
arch=x86_64
compiler=gcc
compiler.version=12
compiler.libcxx=libstdc++11
compiler.cppstd=17
build_type=Release
[conf]
{conf}
"""


@pytest.mark.parametrize("target_name", ["linux-x86_64", "linux-arm64"])
def test_headers_serve_the_target_and_flatc_the_machine_that_builds(target_name: str, tmp_path: Path) -> None:
    log = tmp_path / "conan.log"
    with conan_packages.building(), locked(conan.LOCK):
        host, own = conan.profile(get_target(target_name)), conan.build_profile()
        conan.conan(
            ["create", RECIPE, f"--version={VERSION}", f"--profile:host={host}", f"--profile:build={own}",
             f"--lockfile={conan.lockfile(log)}", "--lockfile-partial", f"--remote={conan.remote()}", "--build=missing",
             f"--conf=tools.cmake.cmake_layout:test_folder={tmp_path}",
             "--conf=tools.cmake.cmaketoolchain:user_presets="],
            log=log,
        )  # fmt: skip
    said = log.read_text(encoding="utf-8")
    assert "Generating point_generated.h" in said
    assert ("flatbuffers: written, verified, read" in said) is (target_name == "linux-x86_64")
    assert list(tmp_path.rglob("point_generated.h"))


def create_alone(folder: Path, conf: str) -> str:
    """``conan create`` in a Conan home of its own; its messages. It must fail."""
    profile = folder / "profile"
    profile.write_text(PROFILE.format(conf=conf), encoding="utf-8")
    env = {**os.environ, "CONAN_HOME": str(folder / "home"), "NO_COLOR": "1"}
    words = [
        "create",
        str(RECIPE),
        f"--version={VERSION}",
        "--no-remote",
        "--build=missing",
        f"--profile:all={profile}",
    ]
    run_conan(env, "export", str(SHARED), "--version=1.0").check_returncode()
    done = run_conan(env, *words)
    assert done.returncode != 0
    return str(done.stderr)


def run_conan(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "conans.conan", *words], capture_output=True, text=True, check=False, env=env
    )


def test_without_a_way_to_fetch_it_says_which_setting_is_missing(tmp_path: Path) -> None:
    said = create_alone(tmp_path, "user.slipway:sources=debian")
    assert "flatbuffers_23.5.26+dfsg.orig.tar.xz comes from the package flatbuffers of Debian trixie" in said
    assert 'set user.slipway:fetch=["COMMAND", ...]' in said


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import sys; sys.exit('the archive is closed')", "could not be fetched:\nthe archive is closed"),
        ("print('/nowhere/at/all')", "could not be fetched"),
        ("print({file!r})", "is not the file that was pinned: its sha256 is "),
    ],
)
def test_a_fetch_that_goes_wrong_is_told(tmp_path: Path, script: str, says: str) -> None:
    wrong = tmp_path / "wrong.tar.xz"
    wrong.write_bytes(b"something else")
    fetch = json.dumps([sys.executable, "-c", script.format(file=str(wrong))])
    assert says in create_alone(tmp_path, f"user.slipway:fetch={fetch}")


def test_a_fetch_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    said = create_alone(tmp_path, 'user.slipway:fetch=["/nowhere/at/all"]')
    assert "names a command that cannot be run" in said
