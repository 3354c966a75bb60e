"""The doctor: quick, complete, and every fault with the command that fixes it; and what works on other hosts."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from core import environment
from core.environment import bootstrap
from core.errors import HostError
from core.files import write_atomic
from deploy.virtual import machines
from deploy.virtual.spec import get_spec
from tests.support.processes import quickest
from toolchains import doctor
from toolchains.compilers import zig
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.emulation import emulators, wine
from toolchains.targets import get_target

Said = dict[str, tuple[bool, str]]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """No program is run: what it would say is taken from here, by a part of its command."""
    answers: Said = {}

    def answer(argv: list[str | Path]) -> tuple[bool, str]:
        command = " ".join(map(str, argv))
        return next((one for part, one in answers.items() if part in command), (True, "version 1.0"))

    monkeypatch.setattr(doctor, "_said", answer)
    return answers


def test_it_is_quick_and_asks_no_network(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it went to the network"))
    found = doctor.checks()
    assert quickest(doctor.checks) < 2
    names = [check.name for check in found]
    assert names[:2] == ["Python", "disk"]
    assert {"linux-arm64 with zig", "linux-arm64 with gnu", "running linux-arm64"} <= set(names)
    assert len(set(names)) == len(names)
    assert [check for check in doctor.checks() if not check.ok and not check.fix] == []


def _row(name: str) -> doctor.Check:
    return {check.name: check for check in doctor.checks()}[name]


def test_the_exporter_is_ok_only_if_it_can_be_imported(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    row = _row("exporter")
    assert (row.ok, row.later) == (True, True)
    assert "the first export fetches it" in row.detail
    stamp = bootstrap.stamp(tmp_path, "export")
    write_atomic(stamp, bootstrap.lock_file("export").read_bytes())
    said["import torch"] = (True, "torch 1.0+cpu")
    row = _row("exporter")
    assert (row.ok, row.later, row.detail) == (True, False, "torch 1.0+cpu: they load")
    said["import torch"] = (False, "ImportError: libgomp.so.1")
    row = _row("exporter")
    assert (row.ok, row.fix) == (False, f"rm {stamp}; then the same command again")
    assert "does not load: ImportError: libgomp.so.1" in row.detail


def test_why_the_exporter_could_not_be_installed_and_the_way_out(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ensure` ends with the reason itself, and so does the doctor later: no "Try" leads in a circle."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    error = HostError("torch could not be downloaded.", "no network,\nsee a log", "PIP_FIND_LINKS=FOLDER")

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(bootstrap, "install", fails)
    with pytest.raises(HostError) as caught:
        environment.ensure("export")
    assert caught.value is error
    row = _row("exporter")
    assert (row.ok, row.detail, row.fix) == (
        False, "torch could not be downloaded. no network,\nsee a log", "PIP_FIND_LINKS=FOLDER",
    )  # fmt: skip


def test_tools_are_run(said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _row("Conan, CMake, Ninja").detail == "conan 1.0, cmake 1.0, ninja 1.0"
    said["cmake"] = (False, "cmake ends with 127: no such library")
    row = _row("Conan, CMake, Ninja")
    assert (row.ok, row.detail) == (False, "cmake ends with 127: no such library")
    assert row.fix.startswith("rm ") and "core.lock" in row.fix
    gone = "cmake: error while loading shared libraries: libstdc++.so.6: cannot open shared object file: No such file"
    said["cmake"] = (False, gone)
    lacks = _row("Conan, CMake, Ninja")
    assert lacks.fix.startswith("install libstdc++.so.6 with your distribution's packages (Debian:")
    said["cmake"] = (False, gone.replace("libstdc++.so.6", "libz.so.1"))
    assert _row("Conan, CMake, Ninja").fix == "install libz.so.1 with your distribution's packages; then ./inv doctor"
    program = tmp_path / "zigs" / "cache" / "zig"
    monkeypatch.setattr(zig, "program_path", lambda: program)
    assert (_row("zig").ok, _row("zig").later) == (True, True)
    write_atomic(program, "")
    assert (_row("zig").ok, _row("zig").later) == (True, False)
    said["/cache/zig version"] = (False, "zig ends with -11: it says nothing")
    assert (_row("zig").ok, _row("zig").fix[:19]) == (False, "./inv clean --cache")


def test_emulators_are_run(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian, "runnable", lambda: "")
    monkeypatch.setattr(emulators, "unpacked", lambda target: Path("/tree") / target.qemu)
    said["qemu-arm "] = (False, "qemu-arm ends with 1: bad")
    assert (_row("running linux-arm64").ok, _row("running linux-arm64").later) == (True, False)
    assert (_row("running linux-armv7").ok, _row("running linux-armv7").detail) == (False, "qemu-arm ends with 1: bad")
    monkeypatch.setattr(emulators, "unpacked", lambda _: None)
    assert (_row("running linux-armv7").ok, _row("running linux-armv7").later) == (True, True)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo one; echo two", (True, "one")),
        ("echo one >&2; echo two >&2; exit 3", (False, "sh ends with 3: two")),
        ("kill -9 $$", (False, "sh ends with -9: it says nothing")),
    ],
)
def test_what_a_program_says(script: str, found: tuple[bool, str]) -> None:
    assert doctor._said(["sh", "-c", script]) == found
    assert doctor._said(["/nowhere/zig"]) == (False, "/nowhere/zig: No such file or directory")


@pytest.mark.usefixtures("said")
def test_a_mac_is_told_what_works_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with Apple's processor and nothing but Python."""
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLIPWAY_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")
    found = {check.name: check for check in doctor.checks()}
    assert {name for name, check in found.items() if not check.ok and not check.optional} <= {"disk"}
    assert "signatures checked" in found["Debian packages"].detail
    assert found["linux-arm64 with zig"].ok, "zig with the libraries of Debian's archive"
    assert found["macos-arm64 with zig"].ok
    assert not found["running linux-arm64"].ok
    assert "docs/build.md" in found["running linux-arm64"].fix
    assert "not run here" in found["running windows-x86_64"].detail
    with pytest.raises(HostError, match="virtual device pi does not run on Darwin") as caught:
        machines.ensure("pi")
    assert "devices.add" in caught.value.hint
    with pytest.raises(HostError, match="no qemu-aarch64"):
        emulators.user_argv(get_target("linux-arm64"))
    with pytest.raises(HostError, match="no qemu-system-aarch64"):
        emulators.system_argv("arm64")
    with pytest.raises(HostError, match="Debian's programs do not run"):
        host_arch()
    assert not wine.runs(get_target("windows-x86_64"))


@pytest.mark.usefixtures("said")
def test_a_debian_on_64_bit_arm_is_native_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    asked: list[tuple[object, ...]] = []

    def tree(*words: object, **_: object) -> Path:
        asked.append(words)
        return Path("/tree")

    monkeypatch.setattr(debian, "tree", tree)
    assert emulators.user_argv(get_target("linux-arm64")) == []
    assert emulators.describe(get_target("linux-arm64")) == "native"
    assert emulators.user_argv(get_target("linux-x86_64"))[0] == "/tree/usr/bin/qemu-x86_64"
    assert asked == [("trixie", "arm64", ["qemu-user"])]
    assert not wine.runs(get_target("windows-x86_64"))
    found = {check.name: check for check in doctor.checks()}
    assert found["running linux-arm64"].family == "natively"
    assert found["running linux-x86_64"].family == "QEMU"
    assert get_spec("pi").arch == host_arch() == "arm64"
