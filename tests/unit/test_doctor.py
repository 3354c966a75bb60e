"""The doctor: quick, complete, and every fault with the command that fixes it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from core import console
from core.errors import HostError
from core.paths import ROOT
from tests.conftest import Inv
from tests.support.timing import quickest
from toolchains import doctor
from toolchains.compilers import zig
from toolchains.debian import packages as debian
from toolchains.emulation import emulators
from toolchains.targets import get_target


class Usage(NamedTuple):
    total: float
    used: float
    free: float


def test_it_is_quick_and_asks_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it went to the network"))
    found = doctor.checks()
    assert quickest(doctor.checks) < 2
    names = [check.name for check in found]
    assert names[:3] == ["Python", "disk", "pip"]
    assert {"linux-arm64 with zig", "linux-arm64 with gnu", "running linux-arm64"} <= set(names)
    assert len(set(names)) == len(names)


def test_it_fits_a_screen(inv: Inv) -> None:
    """A terminal of 80 columns and 24 lines, the last of which is the shell's."""
    done = inv("doctor", env={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 23, done.stdout
    assert max(map(len, lines)) <= 80


def test_the_build_of_pytorch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux it is one that the package index lacks, so a user may have to fetch it before anything is exported."""
    lock = (ROOT / "locks" / "export.txt").read_text(encoding="utf-8")
    mine = "==" if sys.platform == "linux" else "!="
    version = re.findall(rf"^torch==(\S+) ; sys_platform {mine} 'linux'", lock, re.MULTILINE)[0]
    for prefix in (sys.prefix, str(tmp_path)):
        monkeypatch.setattr(sys, "prefix", prefix)
        row = {check.name: check for check in doctor.checks()}["exporter"]
        assert row.ok
        assert row.detail.startswith(f"torch {version}")
    assert row.detail == f"torch {version}, which the first export fetches"


def test_every_fault_names_its_cure() -> None:
    assert [check for check in doctor.checks() if not check.ok and not check.fix] == []


def test_what_no_machine_of_ours_runs_is_not_claimed_to_run() -> None:
    """Neither an emulator nor Wine runs programs of macOS and of Windows on Arm."""
    found = {check.name: check for check in doctor.checks()}
    for name in ("macos-arm64", "macos-x86_64", "windows-arm64"):
        if emulators.is_native(get_target(name)):
            continue
        row = found[f"running {name}"]
        assert (row.ok, row.optional) == (False, True)
        assert row.detail == f"not run here: {get_target(name).proof}"
    assert not [check.detail for check in found.values() if check.detail.startswith(", ")]


def test_a_full_disk_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 99, 1e9))
    with pytest.raises(HostError, match="lacks disk") as caught:
        doctor.report(as_json=True)
    assert "SLIPWAY_CACHE" in caught.value.hint
    listed = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert listed["disk"]["ok"] is False


def test_a_machine_without_apt_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "available", lambda: "This machine names no mirror: it has no apt")
    monkeypatch.setattr(debian, "fix", lambda: "export SLIPWAY_DEBIAN_MIRROR=ADDRESS")
    bad = {check.name: check for check in doctor.checks() if not check.ok and not check.optional}
    assert {"Debian packages", "linux-arm64 with zig"} <= set(bad)
    assert "SLIPWAY_DEBIAN_MIRROR" in bad["linux-arm64 with zig"].fix


def test_a_machine_without_a_pinned_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zig, "_host", lambda: "Plan9-sparc")
    bad = {check.name: check for check in doctor.checks() if not check.ok}
    assert "tools.toml" in bad["zig"].fix
    assert "Plan9-sparc" in bad["linux-arm64 with zig"].detail


def test_what_is_optional_does_not_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    checks = [doctor.Check("a", True, "fine"), doctor.Check("b", False, "absent", "get it", optional=True)]
    monkeypatch.setattr(doctor, "checks", lambda: checks)
    doctor.report(as_json=False)
    assert "optional" in capsys.readouterr().out


def test_whether_builds_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {check.name: check for check in doctor.checks()}["ccache"]
    assert (found.ok, found.optional) == (True, True)
    monkeypatch.setenv("SLIPWAY_CCACHE", "off")
    found = {check.name: check for check in doctor.checks()}["ccache"]
    assert (found.ok, found.fix) == (False, "unset SLIPWAY_CCACHE")
    monkeypatch.delenv("SLIPWAY_CCACHE")
    monkeypatch.setattr(debian, "available", lambda: "This machine names no mirror: it has no apt")
    monkeypatch.setattr(debian, "fix", lambda: "export SLIPWAY_DEBIAN_MIRROR=ADDRESS")
    monkeypatch.setenv("PATH", "/nowhere")
    found = {check.name: check for check in doctor.checks()}["ccache"]
    assert not found.ok
    assert "no ccache is installed" in found.detail


def test_trouble_comes_first_and_all_of_it_fits_a_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.out(), "width", 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 99, 1e9))
    with pytest.raises(HostError, match="lacks disk"):
        doctor.report(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "Missing"
    assert lines[1].split()[:2] == ["disk", "MISSING"]
    assert len(lines) <= 40
    assert [line.strip() for line in lines if line and line[0] != " "][1:4] == list(doctor.GROUPS)
    assert sum("disk" in line.split() for line in lines) == 2  # once in its group, once as a word of the fix


def test_targets_share_a_line_only_where_it_is_true_of_all() -> None:
    def made(name: str, ok: bool, fix: str = "") -> doctor.Check:
        return doctor.Check(f"{name} with gnu", ok, "", fix, True, doctor.COMPILERS, "gnu", name)

    found = doctor._together(
        [
            made("linux-arm64", False, "sudo apt-get install g++-aarch64-linux-gnu"),
            made("linux-x86_64", True),
            made("linux-armv7", False, "sudo apt-get install g++-arm-linux-gnueabihf"),
        ]
    )
    assert [(each.name, each.ok, each.detail, each.fix) for each in found] == [
        ("gnu", True, "linux-x86_64", ""),
        ("gnu", False, "linux-arm64, armv7", "sudo apt-get install g++-aarch64-linux-gnu g++-arm-linux-gnueabihf"),
    ]
