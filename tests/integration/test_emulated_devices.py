"""Emulation without a boot: CPU models of QEMU's user mode and Wine as devices; the plugin that counts instructions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import ConfigError, NotSupportedError
from core.formats.bundle import RUNNER, Bundle
from core.paths import ROOT
from core.processes.commands import run
from deploy.devices.inventory import Device, get_device
from deploy.run.execute import execute
from deploy.run.pipeline import deploy
from deploy.run.result import Result
from deploy.run.settings import Settings
from tests.support.deploying import program
from toolchains.bundle.builder import build
from toolchains.compilers import zig
from toolchains.emulation import emulators
from toolchains.emulation.emulators import system_argv

__all__ = ["program"]

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
    assert "asimd" in first.facts.cpu_features
    assert "asimddp" not in first.facts.cpu_features
    assert first.facts.loaders == ("/lib/ld-linux-aarch64.so.1",)
    again = go("cpu:cortex-a53", "linux-arm64")
    again.check()
    assert again.upload.bytes == 0  # the store is an ordinary one
    newer = go("cpu:cortex-a76", "linux-arm64")
    newer.check()
    assert {"asimd", "asimddp"} <= set(newer.facts.cpu_features)


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


ASK = ROOT / "runtime" / "runner" / "measure.cpp"
"""The runner's side: the instruction that asks is taken from it."""
PROGRAM = """
__asm__(".globl _start\\n_start: ldr STACK, =0x48000000\\n mov sp, STACK\\n bl start\\n"
        "ldr ANSWER, =0x84000008\\n hvc #0\\n");  // PSCI's SYSTEM_OFF
__attribute__((noinline)) static unsigned long executed(void) {
  register unsigned long count __asm__("ANSWER") = 0;
  __asm__ volatile(".inst ASK" : "+r"(count) : : "memory");
  return count;
}
__attribute__((noinline)) static unsigned long counted(unsigned long rounds) {
  const unsigned long begin = executed();
  __asm__ volatile("1: subs %0, %0, #1\\n bne 1b" : "+r"(rounds) : : "cc");
  return executed() - begin;
}
void start(void) {
  volatile unsigned* serial = (unsigned*)0x09000000;
  const unsigned long numbers[] = {executed() != 0, counted(1000), counted(3000), counted(1000)};
  for (int i = 0; i < 4; ++i) {
    for (unsigned long ten = 1000000; ten != 0; ten /= 10) {
      *serial = '0' + numbers[i] / ten % 10;
    }
    *serial = ' ';
  }
}
"""
MACHINES = {
    "arm64": ("aarch64-freestanding-none", "max", "x0", "x1"),
    "armhf": ("arm-freestanding-eabi", "cortex-a15", "r0", "r1"),
}


@pytest.mark.parametrize("arch", MACHINES)
def test_a_machine_counts_each_instruction_of_its_program(arch: str, tmp_path: Path) -> None:
    triple, cpu, answer, stack = MACHINES[arch]
    (ask,) = re.findall(rf'asm__\("{answer}"\) = 0;\n.*\(".inst (0x[0-9a-f]+)"', ASK.read_text(encoding="utf-8"))
    text = PROGRAM.replace("ANSWER", answer).replace("ASK", ask).replace("STACK", stack)
    (tmp_path / "counted.c").write_text(text, encoding="ascii")
    flags = ["-mgeneral-regs-only"] if arch == "arm64" else ["-mcpu=cortex_a15"]
    run(
        [zig.program(), "cc", "-target", triple, *flags, "-O2", "-ffreestanding", "-nostdlib", "-o", "counted",
         "-Wl,--image-base=0x40100000", "counted.c"], cwd=tmp_path,
    )  # fmt: skip
    argv = [*system_argv(arch), "-machine", "virt", "-cpu", cpu, "-nodefaults", "-display", "none", "-serial", "stdio"]
    assert "-plugin" in argv
    done = subprocess.run(
        [*argv, "-monitor", "none", "-kernel", tmp_path / "counted"], capture_output=True, text=True, check=True,
        timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    counts, short, long, again = map(int, done.stdout.split())
    assert (counts, short) == (1, again), "the same work is the same number, from run to run"
    assert long - short == 2 * 2000
    assert 2000 <= short < 2040


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
