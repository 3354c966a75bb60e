"""Every shell script is read by shellcheck (``./inv test --lint``), and what it finds fails the check."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.paths import ROOT
from verify.suite import shells


def test_every_script_that_git_has_is_read() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    there = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    ours = {name for name in there if name.endswith(".sh") or (ROOT / name).read_bytes().startswith(b"#!/bin/sh\n")}
    assert len(ours) > 10
    assert ours == {file.relative_to(ROOT).as_posix() for file in shells.scripts()}


@pytest.mark.parametrize(
    ("line", "found"),
    [("rm -rf $1", "SC2086"), ("[[ -e $1 ]]", "SC3010")],
)
def test_a_wrong_script_is_found(tmp_path: Path, line: str, found: str) -> None:
    script = tmp_path / "wrong.sh"
    script.write_text(f"# shellcheck shell=sh\n{line}\n", encoding="utf-8")
    done = shells.check([script], tmp_path)
    assert done.returncode == 1
    assert found in done.stdout
