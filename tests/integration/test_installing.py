"""What pip installs by a lock, and Slipway itself in a project with a ``core`` of its own; what other hosts lack."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pip
import pytest

from core.environment import apart, bootstrap
from core.environment.installer import marker
from core.errors import HostError
from core.paths import ROOT
from tests.support import conan_homes
from tests.support.archive import Served, make_wheel, serving
from tests.support.processes import ran, reserved, well


def _wheel(folder: Path, version: str, word: str) -> Path:
    """A wheel of a package that no real index has; ``word`` is what its module says."""
    return make_wheel(folder, "slipway_sample", version, {"slipway_sample.py": f"WORD = {word!r}\n"})


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A package index on this machine: its address and the folder of the package it offers."""
    folder = tmp_path / "index" / "slipway-sample"
    folder.mkdir(parents=True)
    port = reserved()
    argv = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(folder.parent), str(port)]
    with conan_homes.serving(argv, port, tmp_path):
        yield f"http://127.0.0.1:{port}/", folder


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with this one's pip, and an empty ``locks/``."""
    venv = tmp_path / "venv"
    well(ran([sys.executable, "-I", "-m", "venv", "--without-pip", venv]))
    (packages,) = (venv / "lib").glob("python3*/site-packages")
    (packages / "pip").symlink_to(Path(pip.__file__).parent)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    (tmp_path / "locks").mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return venv


def _lock(file: Path) -> None:
    text = f"slipway-sample==1.0 \\\n    --hash=sha256:{_digest(file)}\n"
    bootstrap.lock_file("core").write_text(text, encoding="utf-8")


def _installed(venv: Path) -> str:
    code = "import slipway_sample; print(slipway_sample.WORD)"
    return ran([venv / "bin" / "python", "-I", "-c", code]).stdout.strip()


def test_a_changed_byte_is_refused_and_what_was_there_is_replaced(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = _wheel(tmp_path / "good", "1.0", "good")
    bad = _wheel(tmp_path / "bad", "1.0", "evil")
    assert len(good.read_bytes()) == len(bad.read_bytes())
    _lock(good)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "bad"))
    with pytest.raises(HostError, match=r"slipway-sample==1\.0.* is not in Slipway's lock") as caught:
        bootstrap.install("core", environment)
    assert _digest(bad) in str(caught.value)
    assert "Try: pip config list" in str(caught.value)
    assert _installed(environment) == ""
    assert not bootstrap.is_installed(environment, "core")
    # The same version, brought in by other means: pip alone would call it satisfied.
    well(ran([environment / "bin" / "python", "-I", "-m", "pip", "install", "--no-deps", bad]))
    assert _installed(environment) == "evil"
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    assert bootstrap.install("core", environment)
    assert _installed(environment) == "good"
    assert not bootstrap.install("core", environment), "a second time there is nothing to do"


@pytest.mark.parametrize("version", ["1.0", "1.0.post1", "9.0"])
def test_a_second_index_supplies_nothing(
    version: str, environment: Path, index: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dependency confusion: the same version with other content, or a higher one, offered beside the right one."""
    address, folder = index
    _lock(_wheel(tmp_path / "good", "1.0", "good"))
    _wheel(folder, version, "evil")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(HostError, match="slipway-sample"):
        bootstrap.install("core", environment)
    assert _installed(environment) == ""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    if version == "1.0":  # pip cannot know beforehand which of the two is the right one, and takes the index's
        with pytest.raises(HostError, match="is not in Slipway's lock"):
            bootstrap.install("core", environment)
        assert _installed(environment) == ""
        return
    assert bootstrap.install("core", environment)
    assert _installed(environment) == "good"


def test_a_source_package_is_not_built(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``setup.py`` would run: not even with the right hash."""
    folder = tmp_path / "sources"
    folder.mkdir()
    source = folder / "slipway_sample-1.0.zip"
    ran = tmp_path / "ran"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr("slipway_sample-1.0/setup.py", f"open({str(ran)!r}, 'w')\n")
        archive.writestr("slipway_sample-1.0/PKG-INFO", "Metadata-Version: 2.1\nName: slipway-sample\nVersion: 1.0\n")
    _lock(source)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    with pytest.raises(HostError, match=r"did not offer slipway-sample==1\.0"):
        bootstrap.install("core", environment)
    assert not ran.exists()


def test_modules_of_the_current_folder_are_not_imported(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``./inv`` may be typed in a folder that holds somebody's ``pip.py``."""
    _lock(_wheel(tmp_path / "good", "1.0", "good"))
    planted = tmp_path / "planted"
    planted.mkdir()
    for name in ("pip", "venv"):
        (planted / f"{name}.py").write_text("open('ran', 'w')\n", encoding="utf-8")
    monkeypatch.chdir(planted)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    assert bootstrap.install("core", environment)
    bootstrap._make_venv(tmp_path / "another")
    assert (tmp_path / "another" / "bin" / "python").exists()
    assert not (planted / "ran").exists()


@pytest.fixture
def addressed(environment: Path, tmp_path: Path) -> Iterator[Served]:
    """A lock that names a wheel by an address on this machine, as the exporter's does PyTorch's."""
    wheel = _wheel(tmp_path / "good", "1.0", "good")
    python = ".".join(map(str, sys.version_info[:2]))
    with serving(wheel.read_bytes()) as served:
        address = f"{served.address}/{wheel.name}"
        rows = [(sys.platform, platform.machine(), python, _digest(wheel)), ("linux", "vax", "3.9", "0" * 64)]
        bootstrap.lock_file("core").write_text(
            "".join(
                f"slipway-sample @ {address} ; {marker(*where)} \\\n    --hash=sha256:{digest}\n"
                for *where, digest in rows
            )
        )
        yield served


def test_its_address_serves_what_pips_own_settings_do_not_have(
    environment: Path, addressed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try finds no server that answers; the second goes through the proxy that pip is told."""
    monkeypatch.setenv("PIP_RETRIES", "0")
    addressed.status = 404
    with pytest.raises(HostError) as caught:
        bootstrap.install("core", environment)
    what, cause, hint = str(caught.value).splitlines()
    assert what == "slipway_sample==1.0 could not be downloaded."
    assert f"{addressed.address}/slipway_sample-1.0-py3-none-any.whl: " in cause
    assert "pip's own sources have no such file" in cause
    assert "once the network or the proxy" in hint
    assert "then PIP_FIND_LINKS=FOLDER" in hint
    assert _installed(environment) == ""
    addressed.status = 0
    monkeypatch.setenv("PIP_PROXY", addressed.address)
    lock = bootstrap.lock_file("core")
    lock.write_text(lock.read_text().replace(addressed.address, "http://mirror.invalid/wheels"))
    addressed.asked.clear()
    assert bootstrap.install("core", environment)
    assert set(addressed.asked) == {"http://mirror.invalid/wheels/slipway_sample-1.0-py3-none-any.whl"}
    assert _installed(environment) == "good"
    assert not (environment / ".slipway" / "wheels").exists()
    assert not bootstrap.install("core", environment), "a second time there is nothing to do"


def test_another_file_in_pips_own_folder_is_passed_over(
    environment: Path, addressed: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = _wheel(tmp_path / "bad", "1.0", "evil")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "bad"))
    good, addressed.data = addressed.data, b"not that wheel"
    with pytest.raises(HostError, match="has another file than Slipway's lock names") as caught:
        bootstrap.install("core", environment)
    assert hashlib.sha256(b"not that wheel").hexdigest() in str(caught.value)
    assert _digest(bad) in str(caught.value)
    addressed.data = good
    assert bootstrap.install("core", environment)
    assert _installed(environment) == "good"


TESTS = """\
import core
import deploy

def test_the_same(slipway_deploy):
    assert slipway_deploy("mlp", num_executions=2).outputs[0].max_abs < 1e-4
    assert (core.MINE, deploy.MINE) == (1, 2)

def test_a_program_of_my_own(slipway_run, tmp_path):
    script = tmp_path / "mine.sh"
    script.write_text("#!/bin/sh\\necho mine\\n")
    assert slipway_run(script).stdout == b"mine\\n"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an environment, in which pip has installed Slipway and what it chose beside it."""
    folder = tmp_path_factory.mktemp("project")
    for name, value in (("core", 1), ("deploy", 2)):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"MINE = {value}\n")
    (folder / "tasks.py").write_text('raise RuntimeError("these are the tasks of the project")\n')
    (folder / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    (folder / "test_mine.py").write_text(TESTS)
    well(ran([sys.executable, "-m", "venv", folder / "venv"]))
    python = folder / "venv" / "bin" / "python"
    well(ran([python, "-m", "pip", "install", "-q", "--no-compile", "pytest", ROOT], cwd=folder))
    return folder


def run(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    # The environment of the commands is made from the same locks as the one of these tests: it need not be made again.
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SLIPWAY_DIST"}}
    environment |= {"SLIPWAY_VENV": sys.prefix, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return ran([project / "venv" / "bin" / words[0], *words[1:]], cwd=project, env=environment)


def files(project: Path) -> dict[str, str]:
    top = next(project.glob("venv/lib/python*/site-packages/slipway"))
    found = (file for file in top.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


@pytest.mark.build
@pytest.mark.export
def test_the_commands(project: Path) -> None:
    before = files(project)
    done = run(project, "slipway", "--version")
    assert (done.returncode, done.stdout) == (0, "Slipway 0.1.0\n"), done.stderr
    done = run(project, "slipway", "targets", "--json")
    assert "linux-arm64" in done.stdout, done.stderr
    rows = json.loads(well(run(project, "slipway", "doctor", "--json")).stdout)
    assert {each["name"] for each in rows} >= {"Python", "linux-arm64 with zig"}
    done = run(project, "slipway", "depoly")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "Try: slipway deploy")
    done = well(run(project, "slipway", "deploy", "--device", "local", "--model", "mlp", "--json"))
    assert json.loads(done.stdout)["verdict"] in {"agrees", "identical"}
    assert (project / "dist" / "programs" / "mlp-fp32" / "model.pte").is_file()
    assert (project / "dist" / "results").is_dir()
    assert files(project) == before, "what is installed stays as it is"


@pytest.mark.build
@pytest.mark.export
def test_tests_of_the_project_on_devices(project: Path) -> None:
    words = ("pytest", "-p", "no:cacheprovider", "-W", "error", "--junitxml=report.xml")
    done = well(run(project, *words))
    assert "2 passed" in done.stdout
    assert "slipway: running mlp-fp32 on local" in done.stdout
    found = {each.attrib["name"]: each.attrib["value"] for each in ET.parse(project / "report.xml").iter("property")}  # noqa: S314
    assert found["slipway.device"] == "local"
    assert float(found["slipway.p50_ms"]) > 0


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
    done = well(ran([sys.executable, "-c", NOT_ON_MACOS, ROOT], timeout=300))
    assert int(done.stdout) > 160


def test_adbutils_of_another_platforms_wheel_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 64-bit Arm it is taken so; the digest is that of the lock."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    folder = apart("adb")
    program = "import sys, adbutils; print(adbutils.__file__, adbutils.AdbClient(host='127.0.0.1', port=1))"
    done = ran([sys.executable, "-c", program], env={"PYTHONPATH": str(folder)}, timeout=60)
    assert done.stdout.startswith(str(folder)), done.stderr
