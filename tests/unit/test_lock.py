"""The locks: they fit pyproject.toml, hold only pins and hashes, and pip installs nothing that they do not name."""

from __future__ import annotations

import functools
import hashlib
import http.server
import importlib.util
import itertools
import os
import platform
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import bootstrap, download, installer, lock
from core.addressed import MIRROR, marker
from core.errors import ConfigError
from core.paths import ROOT
from tests.support.files_server import Served, serving

SETS = tuple(bootstrap.LABELS)
FOLDER = "https://download.pytorch.org/whl/cpu/"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pin(text: str) -> tuple[str, str, str]:
    """Name, version and condition of a pin, as either file writes it."""
    left, _, condition = text.partition(" ; ")
    name, _, version = left.partition("==")
    return _normal(name), version, condition.replace("python_full_version", "python_version")


ADDRESSED = re.compile(
    r"(?P<name>\S+) @ (?P<address>\S+) ; sys_platform == 'linux' and platform_machine == '(?P<machine>x86_64|aarch64)' "
    r"and python_version == '3\.(?P<minor>\d+)' \\\n    --hash=sha256:(?P<digest>[0-9a-f]{64})\n"
)
"""What a lock has for a wheel with an address."""


@pytest.mark.parametrize("name", SETS)
def test_the_lock_has_pyprojects_pins_and_no_others(name: str) -> None:
    lines = ADDRESSED.sub("", bootstrap.lock_file(name).read_text(encoding="utf-8")).splitlines()
    pins = [line.removesuffix(" \\") for line in lines if line[0] not in " #"]
    wanted = [pin for pin in lock.requirements(name) if not lock.own_build(pin)]
    assert sorted(map(_pin, pins)) == sorted(map(_pin, wanted)), "./inv lock writes it"


@pytest.mark.parametrize("name", SETS)
def test_every_pin_has_hashes_and_nothing_else_stands_in_the_lock(name: str) -> None:
    text = ADDRESSED.sub("", bootstrap.lock_file(name).read_text(encoding="utf-8"))
    pin = r"[a-z0-9.-]+==[0-9][0-9A-Za-z.]*(?: ; [a-z_]+ [<>=!]+ '[^']+'(?: or [a-z_]+ == '[^']+')?)? \\\n"
    digest = r"    --hash=sha256:[0-9a-f]{64}"
    assert re.fullmatch(rf"# [^\n]+\n(?:{pin}(?:{digest} \\\n)*{digest}\n)+", text), "no index, no option, no URL"


def test_a_package_is_locked_alike_in_every_set() -> None:
    """`bootstrap.missing` relies on it: two sets must not take turns in replacing each other's package."""
    seen: dict[str, str] = {}
    for name in SETS:
        for package, lines in bootstrap.locked(bootstrap.lock_file(name).read_text(encoding="utf-8")).items():
            if name == "adb":  # in a folder of its own, on the machines for which the core set has none
                plain = re.sub(r" ; .*(?= \\\n)", "", seen[package])
                assert (lines, seen[package].count(" ; ")) == (plain, 1)
            else:
                assert seen.setdefault(package, lines) == lines, package


def test_builds_beside_the_index_are_those_of_the_pins_with_a_local_version() -> None:
    """Every Python and machine that Slipway runs on has PyTorch's build at PyTorch's own address, with its digest."""
    pins = [pin for name in SETS for pin in lock.requirements(name) if lock.own_build(pin)]
    assert [pin.partition(" ;")[0] for pin in pins] == ["torch==2.13.0+cpu"]
    texts = {name: bootstrap.lock_file(name).read_text(encoding="utf-8") for name in SETS}
    assert [name for name, text in texts.items() if " @ " in text] == ["export"]
    rows = list(ADDRESSED.finditer(texts["export"]))
    assert lock.lines_of_build(pins[0], lock.builds(), FOLDER) == "".join(row.group() for row in rows)
    pairs = {(int(row["minor"]), row["machine"]) for row in rows}
    assert pairs == set(itertools.product(range(10, 15), ["x86_64", "aarch64"]))
    for row in rows:
        python = f"cp3{row['minor']}"
        file = f"torch-2.13.0+cpu-{python}-{python}-manylinux_2_28_{row['machine']}.whl"
        assert row["address"] == FOLDER + file.replace("+", "%2B")
        assert row["digest"] == lock.builds()[file]


def test_a_build_goes_to_its_own_version_only() -> None:
    wheel = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    pin = "torch==2.13.0+cpu ; sys_platform == 'linux'"
    (row,) = ADDRESSED.finditer(lock.lines_of_build(pin, {wheel: "c" * 64}, FOLDER))
    assert (row["minor"], row["machine"], row["digest"]) == ("11", "x86_64", "c" * 64)
    with pytest.raises(ConfigError, match="No wheel is known"):
        lock.lines_of_build(pin, {wheel.replace("2.13.0", "2.13.1"): "cc"}, FOLDER)


def test_no_hint_lets_a_second_index_in() -> None:
    """Neither code nor docs name or suggest another package index."""
    files = [ROOT / "inv", ROOT / "pyproject.toml", ROOT / "README.md"]
    for folder in ("core", "toolchains", "models", "deploy", "docs", "recipes", ".github", "locks"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in {".py", ".md", ".yml", ".txt", ".toml"}]
    assert len(files) > 100
    hints = re.compile(r"extra[-_]index|--index-url|PIP_INDEX|trusted-host", re.IGNORECASE)
    assert [str(file) for file in files if hints.search(file.read_text(encoding="utf-8"))] == []


# --- attacks: an index on 127.0.0.1 that serves something else ---


def _wheel(folder: Path, version: str, word: str) -> Path:
    """A wheel of a package that no real index has; ``word`` is what its module says."""
    info = f"slipway_sample-{version}.dist-info"
    files = {
        "slipway_sample.py": f"WORD = {word!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: slipway-sample\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"slipway_sample-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return path


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A package index on this machine: its address and the folder of the package it offers."""
    folder = tmp_path / "index" / "slipway-sample"
    folder.mkdir(parents=True)
    handler = functools.partial(_Quiet, directory=str(tmp_path / "index"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
        thread.join()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with this one's pip, and an empty ``locks/``."""
    venv = tmp_path / "venv"
    words = [sys.executable, "-I", "-m", "venv", "--without-pip", str(venv)]
    subprocess.run(words, check=True, capture_output=True)
    (packages,) = (venv / "lib").glob("python3*/site-packages")
    spec = importlib.util.find_spec("pip")
    assert spec is not None
    assert spec.origin is not None
    (packages / "pip").symlink_to(Path(spec.origin).parent)
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    (tmp_path / "locks").mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return venv


def _lock(version: str, *digests: str) -> None:
    text = f"slipway-sample=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in digests) + "\n"
    bootstrap.lock_file("core").write_text(text, encoding="utf-8")


def _installed(venv: Path) -> str:
    code = "import slipway_sample; print(slipway_sample.WORD)"
    done = subprocess.run([str(venv / "bin" / "python"), "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def test_a_changed_byte_is_refused_and_what_was_there_is_replaced(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = _wheel(tmp_path / "good", "1.0", "good")
    bad = _wheel(tmp_path / "bad", "1.0", "evil")
    assert len(good.read_bytes()) == len(bad.read_bytes())
    _lock("1.0", _digest(good))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "bad"))
    with pytest.raises(installer.SetupError, match=r"slipway-sample==1\.0.* is not in Slipway's lock") as caught:
        bootstrap.install("core", environment)
    assert _digest(bad) in str(caught.value)
    assert "Try: pip config list" in str(caught.value)
    assert _installed(environment) == ""
    assert not bootstrap.is_installed(environment, "core")
    # The same version, brought in by other means: pip alone would call it satisfied.
    words = [str(environment / "bin" / "python"), "-I", "-m", "pip", "install", "--no-deps", str(bad)]
    subprocess.run(words, check=True, capture_output=True)
    assert _installed(environment) == "evil"
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    assert bootstrap.install("core", environment)
    assert _installed(environment) == "good"
    assert not bootstrap.install("core", environment), "a second time there is nothing to do"


@pytest.mark.parametrize("version", ["1.0", "9.0"])
def test_a_second_index_supplies_nothing(
    version: str, environment: Path, index: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dependency confusion: the same version with other content, or a higher one, offered beside the right one."""
    address, folder = index
    good = _wheel(tmp_path / "good", "1.0", "good")
    _wheel(folder, version, "evil")
    _lock("1.0", _digest(good))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(installer.SetupError, match="slipway-sample"):
        bootstrap.install("core", environment)
    assert _installed(environment) == ""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    if version == "1.0":  # pip cannot know beforehand which of the two is the right one, and takes the index's
        with pytest.raises(installer.SetupError, match="is not in Slipway's lock"):
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
    _lock("1.0", _digest(source))
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    with pytest.raises(installer.SetupError, match=r"did not offer slipway-sample==1\.0"):
        bootstrap.install("core", environment)
    assert not ran.exists()


def test_modules_of_the_current_folder_are_not_imported(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``./inv`` may be typed in a folder that holds somebody's ``pip.py``."""
    _lock("1.0", _digest(_wheel(tmp_path / "good", "1.0", "good")))
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


def test_pip_is_renewed_first_and_a_source_without_it_does_not_matter(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = _digest(_wheel(tmp_path / "good", "1.0", "good"))
    text = "".join(f"{pin} \\\n    --hash=sha256:{digest}\n" for pin in ("slipway-sample==1.0", "pip==99.0"))
    bootstrap.lock_file("core").write_text(text)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    assert bootstrap.install("core", environment)
    assert _installed(environment) == "good"
    said = (environment / ".slipway" / "setup.log").read_text()
    assert said.index("No matching distribution found for pip==99.0") < said.index("Successfully installed")


# --- wheels with an address ---


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
    """The first try ends in the middle for good; the second goes on there, through the proxy that pip is told."""
    size = len(addressed.data)
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    addressed.cuts = [size // 2, 0, 0, 0]
    with pytest.raises(installer.SetupError) as caught:
        bootstrap.install("core", environment)
    what, cause, hint = str(caught.value).splitlines()
    assert what == "slipway_sample==1.0 could not be downloaded."
    assert f"{addressed.address}/slipway_sample-1.0-py3-none-any.whl: " in cause
    assert "pip's own sources have no such file" in cause
    assert "once the network or the proxy" in hint
    assert "then PIP_FIND_LINKS=FOLDER" in hint
    assert _installed(environment) == ""
    monkeypatch.setenv("PIP_PROXY", addressed.address)
    monkeypatch.setenv(MIRROR, "http://mirror.invalid/wheels/")
    addressed.asked.clear()
    assert bootstrap.install("core", environment)
    asked = ("http://mirror.invalid/wheels/slipway_sample-1.0-py3-none-any.whl", f"bytes={size // 2}-")
    assert addressed.asked == [asked]
    assert _installed(environment) == "good"
    assert not (environment / ".slipway" / "wheels").exists()
    assert not bootstrap.install("core", environment), "a second time there is nothing to do"


def test_pips_own_settings_come_first_if_the_digest_fits(
    environment: Path, addressed: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "good"))
    assert bootstrap.install("core", environment)
    assert (_installed(environment), addressed.asked) == ("good", [])


def test_another_file_in_pips_own_folder_is_passed_over(
    environment: Path, addressed: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = _wheel(tmp_path / "bad", "1.0", "evil")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "bad"))
    good, addressed.data = addressed.data, b"not that wheel"
    with pytest.raises(installer.SetupError, match="has another file than Slipway's lock names") as caught:
        bootstrap.install("core", environment)
    assert hashlib.sha256(b"not that wheel").hexdigest() in str(caught.value)
    assert _digest(bad) in str(caught.value)
    addressed.data = good
    assert bootstrap.install("core", environment)
    assert _installed(environment) == "good"


def test_a_python_without_such_a_wheel_is_told(
    environment: Path, addressed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(installer.SetupError, match=r"^There is no slipway_sample==1\.0 for Python 3"):
        bootstrap.install("core", environment)
    assert addressed.asked == []


def test_the_same_wheel_under_a_new_lock_is_kept(environment: Path, addressed: Served) -> None:
    digest = hashlib.sha256(addressed.data).hexdigest()
    older = f"slipway-sample==1.0 \\\n    --hash=sha256:{'1' * 64} \\\n    --hash=sha256:{digest}\n"
    kept = bootstrap.stamp(environment, "core")
    kept.parent.mkdir()
    kept.write_text(older)
    assert not bootstrap.is_installed(environment, "core")
    assert bootstrap.install("core", environment)
    assert bootstrap.is_installed(environment, "core")
    assert addressed.asked == []
    kept.write_text(older.replace(digest, "2" * 64))
    assert set(bootstrap.missing(environment, "core")) == {"slipway-sample"}


def test_only_what_changed_is_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    venv = tmp_path / "venv"
    (tmp_path / "locks").mkdir()
    (venv / ".slipway").mkdir(parents=True)

    def write(name: str, *pins: str) -> None:
        lines = "".join(f"{pin} \\\n    --hash=sha256:{pin[-1] * 64}\n" for pin in pins)
        bootstrap.lock_file(name).write_text(f"# A head.\n{lines}", encoding="utf-8")

    def kept(name: str) -> None:
        bootstrap.stamp(venv, name).write_bytes(bootstrap.lock_file(name).read_bytes())

    write("core", "one==1", "two==2", "two==3 ; python_version < '3.11'")
    assert set(bootstrap.missing(venv, "core")) == {"one", "two"}
    kept("core")
    write("test", "one==1", "three==3")
    assert set(bootstrap.missing(venv, "test")) == {"three"}, "the core set brought one==1"
    kept("test")
    write("core", "one==4", "two==2", "two==3 ; python_version < '3.11'")
    assert not bootstrap.is_installed(venv, "core")
    assert set(bootstrap.missing(venv, "core")) == {"one"}
    assert not bootstrap.is_installed(venv, "test"), "its one==1 is about to be replaced"
    assert set(bootstrap.missing(venv, "core")) == {"one", "two"}, "interrupted: no stamp says what is there"
