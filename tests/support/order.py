"""The order of the tests when several workers share them: what takes longest first, so that none is left with it alone.

Worth minutes, nothing else: any order gives the same results.
"""

from __future__ import annotations

FIRST = (
    "test_unforeseen", "test_command_line", "test_zoo", "test_readme", "test_export", "test_deploy_pi",
    "test_virtual_phone", "test_onnx", "test_cuts", "test_virtual_pi", "test_inv", "test_labgrid", "test_matrix",
    "test_first_run", "test_libslipway", "test_sound_programs", "test_apple",
    "test_sdk", "test_conan_package", "test_native", "test_virtual_machines[pi-zero]",
    "test_onnxruntime", "test_runner",
)  # fmt: skip
"""Files that take longest; those that wait for builds come after those that do not. The first two are unit tests."""

LAST = ("test_selective", "test_windows_device", "test_virtual_machines[phone-armv7]", "test_toolchain")
"""Files, or one parameter's tests of a file, that wait for builds that no other test needs."""

APART = ("test_toolchain",)
"""Files whose tests share nothing: each goes to whichever worker is free."""

BY_PARAMETER = ("test_virtual_machines",)
"""Files whose tests share what is made for their parameter (a booted machine), and nothing else."""


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")


def _parameter(nodeid: str) -> str:
    """The test's parameters with their brackets; empty without any."""
    return nodeid[nodeid.find("[") :] if nodeid.endswith("]") else ""


def rank(nodeid: str) -> int:
    """Where the test comes: lower numbers first, equal ones in the order of their files."""
    name = _file(nodeid)
    if name in BY_PARAMETER:
        name += _parameter(nodeid)
    if name in LAST:
        return len(FIRST) + 1 + LAST.index(name)
    return FIRST.index(name) if name in FIRST else len(FIRST)


def unit(nodeid: str) -> str:
    """What one worker runs as a whole: a file's tests share devices and what is costly to make."""
    name, file = _file(nodeid), nodeid.partition("::")[0]
    if name in BY_PARAMETER:
        return file + _parameter(nodeid)
    return nodeid if name in APART else file
