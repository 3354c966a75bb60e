"""What a Mac's sysctl says, in Linux's words."""

from __future__ import annotations

from deploy.devices.darwin import Mac, parse

INTEL = """\
machdep.cpu.brand_string: Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz
machdep.cpu.features: FPU VME SSE SSE2 SSE3 SSSE3 FMA SSE4.1 SSE4.2 POPCNT AVX1.0 F16C
machdep.cpu.leaf7_features: BMI1 AVX2 BMI2
machdep.cpu.extfeatures: SYSCALL LZCNT
hw.optional.arm64: 0
hw.memsize: 17179869184
vm.loadavg: { 2.10 1.93 1.88 }
"""


def test_an_intel_mac_an_arm_one_and_nonsense() -> None:
    mac = parse(INTEL.splitlines())
    assert (mac.cpu[:17], mac.memory_total, mac.load) == ("Intel(R) Core(TM)", 17_179_869_184, "2.10")
    assert {"sse2", "pni", "ssse3", "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "abm"} <= set(mac.features)
    assert "asimd" not in mac.features
    lines = ["hw.optional.arm64: 1", "hw.optional.arm.FEAT_I8MM: 1", "hw.optional.arm.FEAT_SME2: 0"]
    assert parse(lines).features == ("fp", "asimd", "i8mm")
    assert parse([]) == Mac()
    assert parse(["no colon", "hw.memsize: -1", "vm.loadavg: {}", "hw.optional.arm.FEAT_NEW: 1"]) == Mac()
