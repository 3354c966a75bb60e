"""The plugin that counts an emulated machine's instructions, on machines without an operating system."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from core.paths import ROOT
from core.processes.commands import run
from toolchains.compilers import zig
from toolchains.emulation import emulators
from toolchains.emulation.emulators import system_argv

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
