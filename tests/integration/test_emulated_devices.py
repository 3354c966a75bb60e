"""Emulation without a boot: CPU models of QEMU's user mode and Wine as devices; the plugin that counts instructions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import ConfigError, NotSupportedError
from core.formats.bundle import RUNNER, Bundle
from deploy.devices.inventory import Device, get_device
from deploy.run.execute import execute
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings
from toolchains.bundle.builder import build
from toolchains.emulation import emulators

pytestmark = [pytest.mark.build, pytest.mark.export]

Go = Callable[..., Result]


def device(name: str, root: Path, **keys: str) -> Device:
    return get_device(name).model_copy(update={"root": str(root / "a device"), "timeout": 300.0, **keys})


@pytest.fixture(scope="module")
def bundles() -> dict[str, Bundle]:
    targets = ("linux-arm64", "linux-armv6", "windows-x86_64", "linux-x86_64")
    return {target: build(target, "lean") for target in targets}


@pytest.fixture
def go(bundles: dict[str, Bundle], program: Path, dist: Path, tmp_path: Path) -> Go:
    def call(name: str, target: str, **keys: str) -> Result:
        settings = Settings(num_executions=1, warmup=0)
        return deploy(device(name, tmp_path, **keys), bundles[target], program, settings, listeners=[])

    return call


def test_an_emulated_cpu_runs_programs_and_has_its_own_features(go: Go) -> None:
    first = go("cpu:cortex-a53", "linux-arm64")
    first.check()
    assert (first.emulated, first.transport, first.facts.machine) == (True, "local", "aarch64")
    assert first.runner.engine.name == "lean"
    assert first.facts.cpu_features == ("fp", "asimd")
    assert first.facts.loaders == ("/lib/ld-linux-aarch64.so.1",)
    again = go("cpu:cortex-a53", "linux-arm64")
    again.check()
    assert again.upload.bytes == 0  # the store is an ordinary one
    newer = go("cpu:cortex-a76", "linux-arm64")
    newer.check()


def test_one_cpu_runs_the_programs_of_all_its_targets_and_of_no_other(go: Go) -> None:
    go("cpu:arm1176", "linux-armv6").check()
    go("cpu:cortex-a7", "linux-armv6").check()
    with pytest.raises(ConfigError, match="arm1176 is not one on which linux-arm64"):
        go("cpu:arm1176", "linux-arm64")


def test_windows_programs_run_under_wine(go: Go, bundles: dict[str, Bundle], tmp_path: Path) -> None:
    result = go("wine", "windows-x86_64")
    result.check()
    assert (result.facts.system, result.facts.machine) == ("Windows", "x86_64")
    assert result.emulated  # Windows' own times are others
    assert result.runner.weights is not None  # its file is below the root, which Wine sees under another name
    assert list((tmp_path / "a device" / "weights").iterdir())
    runner = bundles["windows-x86_64"].path / f"{RUNNER}.exe"
    done = execute(device("wine", tmp_path), runner, ["--capabilities", "--json"], timeout=120)
    assert (done.code, b'"lean"' in done.stdout) == (0, True)
    with pytest.raises(NotSupportedError, match="Wine does not run programs for linux-x86_64"):
        go("wine", "linux-x86_64")


def test_a_qemu_that_refuses_the_plugin_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    qemu = tmp_path / "qemu"
    qemu.write_text("#!/bin/sh\necho tried >>$0.tried\necho 'needs another version' >&2\nexit 1\n", encoding="ascii")
    qemu.chmod(0o755)
    monkeypatch.setattr(emulators, "cache_dir", tmp_path.joinpath)
    assert emulators.plugin_argv([str(qemu)]) == []
    assert "do not count instructions: this QEMU does not take the plugin (needs another version)" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert emulators.plugin_argv([str(qemu)]) == []
    assert (tmp_path / "qemu.tried").read_text() == "tried\n", "one trial for each QEMU"
