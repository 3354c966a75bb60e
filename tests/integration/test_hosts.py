"""Other hosts than this one, as far as they can be seen from here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core import environment
from core.paths import ROOT
from tests.support.processes import ran

NOT_ON_MACOS = """
import importlib, os, pathlib, select, signal, socket, sys, time
import asyncio, concurrent.futures, ctypes, multiprocessing, shutil, subprocess, tempfile, urllib.request
import adbutils, capstone, cryptography, elftools, invoke, jinja2, lief, numpy, paramiko, pydantic, rich, tenacity
import paramiko.agent, requests, rich.live, rich.progress, rich.table
for module, names in {
    os: "memfd_create pidfd_open sched_getaffinity sched_setaffinity posix_fadvise posix_fallocate copy_file_range "
        "splice eventfd setns unshare getrandom sendfile O_TMPFILE O_PATH O_DIRECT setresuid setresgid getxattr",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGSTKFLT SIGPOLL",
    select: "epoll",
    socket: "AF_NETLINK AF_PACKET AF_VSOCK SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK",
    time: "CLOCK_BOOTTIME",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
opened = []
def watch(event, args):
    if event == "open" and str(args[0]).startswith(("/proc/", "/sys/")):
        opened.append(args[0])
root = pathlib.Path(sys.argv[1])
names = ["tasks"]
for package in ("core", "toolchains", "deploy", "commands"):
    for file in sorted((root / package).rglob("*.py")):
        if file.name != "pytest_plugin.py" and "lab" not in file.parts and "scripts" not in file.parts:
            names.append(".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"))
sys.path.insert(0, str(root))
sys.addaudithook(watch)
for name in names:
    importlib.import_module(name)
assert not opened, opened
print(len(names))
"""


def test_no_module_needs_linux_to_be_imported() -> None:
    """What Linux alone has is missing on macOS: a module that names it at its top would end the front door there."""
    done = ran([sys.executable, "-c", NOT_ON_MACOS, ROOT], timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 180


def test_adbutils_of_another_platforms_wheel_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 64-bit Arm it is taken so; the digest is that of the lock."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    folder = environment.apart("adb")
    program = "import sys, adbutils; print(adbutils.__file__, adbutils.AdbClient(host='127.0.0.1', port=1))"
    done = ran([sys.executable, "-c", program], env={"PYTHONPATH": str(folder)}, timeout=60)
    assert done.stdout.startswith(str(folder)), done.stderr
