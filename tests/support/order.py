"""The order of the tests when several workers share them: what takes longest first, so that none is left with it alone.

Worth minutes, nothing else: any order gives the same results.
"""

from __future__ import annotations

FIRST = (
    "test_zoo",
    "test_readme",
    "test_export",
    "test_deploy_pi",
    "test_virtual_phone",
    "test_onnx",
    "test_cuts",
    "test_virtual_pi",
    "test_inv",
    "test_labgrid",
    "test_matrix",
    "test_export_mobilenet",
    "test_sdk",
    "test_native",
    "test_prove",
    "test_virtual_pi_zero",
    "test_onnxruntime",
    "test_runner",
)
"""Files that take more than a minute; those that wait for builds come after those that do not."""

LAST = ("test_selective", "test_windows_runner", "test_virtual_phone_armv7", "test_toolchain_everywhere")
"""Files whose builds are the last that verify.suite.ahead begins."""

APART = ("test_toolchain_everywhere",)
"""Files whose tests share nothing: each goes to whichever worker is free."""


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")


def rank(nodeid: str) -> int:
    """Where the test comes: lower numbers first, equal ones in the order of their files."""
    name = _file(nodeid)
    if name in LAST:
        return len(FIRST) + 1 + LAST.index(name)
    return FIRST.index(name) if name in FIRST else len(FIRST)


def unit(nodeid: str) -> str:
    """What one worker runs as a whole: a file's tests share devices and what is costly to make."""
    return nodeid if _file(nodeid) in APART else nodeid.partition("::")[0]
