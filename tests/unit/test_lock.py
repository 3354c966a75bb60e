"""The locks and the installer: only pins and hashes, only what changed; and the wheel of Slipway itself."""

from __future__ import annotations

import csv
import functools
import io
import itertools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.environment import bootstrap, lock, wheel
from core.errors import ConfigError, HostError
from core.files import write_atomic
from core.paths import ROOT

SETS = tuple(bootstrap.LABELS)
FOLDER = "https://download.pytorch.org/whl/cpu/"


def _pin(text: str) -> tuple[str, str, str]:
    """Name, version and condition of a pin, as either file writes it."""
    left, _, condition = text.partition(" ; ")
    name, _, version = left.partition("==")
    return re.sub(r"[-_.]+", "-", name).lower(), version, condition.replace("python_full_version", "python_version")


ADDRESSED = re.compile(
    r"(?P<name>\S+) @ (?P<address>\S+) ; sys_platform == 'linux' and platform_machine == '(?P<machine>x86_64|aarch64)' "
    r"and python_version == '3\.(?P<minor>\d+)' \\\n    --hash=sha256:(?P<digest>[0-9a-f]{64})\n"
)
"""What a lock has for a wheel with an address."""


@pytest.mark.parametrize("name", SETS)
def test_the_lock_has_pyprojects_pins_with_hashes_and_nothing_else(name: str) -> None:
    text = ADDRESSED.sub("", bootstrap.lock_file(name).read_text(encoding="utf-8"))
    pins = [line.removesuffix(" \\") for line in text.splitlines() if line[0] not in " #"]
    wanted = [pin for pin in lock.requirements(name) if not lock.own_build(pin)]
    assert sorted(map(_pin, pins)) == sorted(map(_pin, wanted)), "./inv self.lock writes it"
    pin = r"[a-z0-9.-]+==[0-9][0-9A-Za-z.]*(?: ; [a-z_]+ [<>=!]+ '[^']+'(?: or [a-z_]+ == '[^']+')?)? \\\n"
    digest = r"    --hash=sha256:[0-9a-f]{64}"
    assert re.fullmatch(rf"# [^\n]+\n(?:{pin}(?:{digest} \\\n)*{digest}\n)+", text), "no index, no option, no URL"


def test_a_package_is_locked_alike_in_every_set() -> None:
    """`bootstrap.missing` relies on it: two sets must not take turns in replacing each other's package."""
    seen: dict[str, str] = {}
    others = {"language", "peers"}  # in folders of their own, with other versions
    for name in (name for name in SETS if name not in others):
        for package, lines in bootstrap.locked(bootstrap.lock_file(name).read_text(encoding="utf-8")).items():
            if name in ("adb", "text"):  # in folders of their own, also where other sets leave the package out
                plain = re.sub(r" ; .*(?= \\\n)", "", seen[package])
                assert (lines, seen[package].count(" ; ")) == (plain, 1)
            else:
                assert seen.setdefault(package, lines) == lines, package


def test_builds_beside_the_index_are_those_of_their_own_versions() -> None:
    """Every Python and machine that Slipway runs on has PyTorch's build at PyTorch's own address, with its digest."""
    pins = [pin for name in SETS for pin in lock.requirements(name) if lock.own_build(pin)]
    assert [pin.partition(" ;")[0] for pin in pins] == ["torch==2.13.0+cpu"]
    texts = {name: bootstrap.lock_file(name).read_text(encoding="utf-8") for name in SETS}
    assert [name for name, text in texts.items() if " @ " in text] == ["export"]
    rows = list(ADDRESSED.finditer(texts["export"]))
    assert lock.lines_of_build(pins[0], lock.builds(), FOLDER) == "".join(row.group() for row in rows)
    pairs = {(int(row["minor"]), row["machine"]) for row in rows}
    assert pairs == set(itertools.product(range(10, 14), ["x86_64", "aarch64"]))
    for row in rows:
        python = f"cp3{row['minor']}"
        file = f"torch-2.13.0+cpu-{python}-{python}-manylinux_2_28_{row['machine']}.whl"
        assert row["address"] == FOLDER + file.replace("+", "%2B")
        assert row["digest"] == lock.builds()[file]
    wheel = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    pin = "torch==2.13.0+cpu ; sys_platform == 'linux'"
    (row,) = ADDRESSED.finditer(lock.lines_of_build(pin, {wheel: "c" * 64}, FOLDER))
    assert (row["minor"], row["machine"], row["digest"]) == ("11", "x86_64", "c" * 64)
    with pytest.raises(ConfigError, match="No wheel is known"):
        lock.lines_of_build(pin, {wheel.replace("2.13.0", "2.13.1"): "cc"}, FOLDER)


def _pylock(*files: str) -> str:
    rows = [f'{{ url = "https://x/{file}", hashes = {{ sha256 = "{index}" }} }},' for index, file in enumerate(files)]
    package = 'name = "one"\nversion = "1.0"\nmarker = "python_full_version < \'3.11\'"'
    return "\n".join(["[[packages]]", package, "wheels = [", *rows, "]"])


def test_only_wheels_for_the_hosts_are_locked() -> None:
    fit = ["py3-none-any", "cp39-abi3-manylinux2014_aarch64", "cp313-cp313-manylinux_2_34_x86_64"]
    fit += ["cp310-cp310-macosx_11_0_universal2", "py2.py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"]
    other = ["cp314-cp314-manylinux_2_17_x86_64", "cp313-cp313t-manylinux_2_17_x86_64", "cp312-cp312-win_amd64"]
    other += [
        "cp312-cp312-musllinux_1_2_x86_64",
        "cp312-cp312-macosx_11_0_x86_64",
        "pp311-pypy311_pp73-macosx_11_0_arm64",
    ]
    found = lock.lines_of_index(_pylock(*(f"one-1.0-{tag}.whl" for tag in fit + other)))
    assert found == " \\\n    --hash=sha256:".join(["one==1.0 ; python_full_version < '3.11'", *"01234"]) + "\n"
    with pytest.raises(ConfigError, match="has no wheel for any host"):
        lock.lines_of_index(_pylock("one-1.0-cp312-cp312-win_amd64.whl"))


def test_no_hint_lets_a_second_index_in() -> None:
    files = [ROOT / "inv", ROOT / "pyproject.toml", ROOT / "README.md"]
    for folder in ("core", "toolchains", "models", "deploy", "docs", "recipes", ".github", "locks"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in {".py", ".md", ".yml", ".txt", ".toml"}]
    assert len(files) > 100
    hints = re.compile(r"extra[-_]index|--index-url|PIP_INDEX|trusted-host", re.IGNORECASE)
    assert [str(file) for file in files if hints.search(file.read_text(encoding="utf-8"))] == []


def test_only_what_changed_is_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    venv = tmp_path / "venv"

    def write(name: str, *pins: str) -> None:
        lines = "".join(f"{pin} \\\n    --hash=sha256:{pin[-1] * 64}\n" for pin in pins)
        write_atomic(bootstrap.lock_file(name), f"# A head.\n{lines}")

    def kept(name: str) -> None:
        write_atomic(bootstrap.stamp(venv, name), bootstrap.lock_file(name).read_bytes())

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


@pytest.mark.parametrize(
    ("built_for", "words"),
    [
        ("Linux x86_64 x86_64-pc-linux-gnu cpython-311-x86_64-linux-gnu", ""),
        ("Linux aarch64 aarch64-unknown-linux-gnu None", ""),
        ("Darwin arm64 aarch64-apple-darwin24.0.0 cpython-313-darwin", ""),
        ("Linux x86_64 x86_64-alpine-linux-musl cpython-312-x86_64-linux-musl", "musl (Alpine)"),
        ("Linux aarch64 None cpython-313-aarch64-linux-musl", "musl (Alpine)"),
        ("Darwin x86_64 x86_64-apple-darwin23.6.0 cpython-312-darwin", "Intel processors"),
        ("Windows AMD64 None None", "does not run on Windows itself"),
    ],
)
def test_a_machine_without_the_packages_is_refused_at_the_door(
    built_for: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    system, machine, *names = built_for.split()
    triple, soabi = (None if name == "None" else name for name in names)

    def went_on(_: Path) -> None:
        raise HostError("went on", "because", "to stop")

    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("sysconfig.get_config_var", {"HOST_GNU_TYPE": triple, "SOABI": soabi}.get)
    monkeypatch.setattr(bootstrap, "_make_venv", went_on)
    assert bootstrap.guarded(["core", str(tmp_path / "venv")]) == 4
    lines = capsys.readouterr().err.splitlines()[-3:]
    assert (words or "went on") in lines[0]
    assert [line.partition(":")[0] for line in lines[1:]] == ["Cause", "Try"]
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("source", "shipped"),
    [
        ("from core import console\n", "from slipway.core import console\n"),
        ("if 1:\n    from deploy.run import x  # core.x\n", "if 1:\n    from slipway.deploy.run import x  # core.x\n"),
        ("from corelib import x\nfrom .core import y\n", ""),
        ('M = "deploy.matrix.devices"\n', 'M = "slipway.deploy.matrix.devices"\n'),
        ('M = "models.nets.convolutional:mlp"\n', 'M = "slipway.models.nets.convolutional:mlp"\n'),
        ('M = f"toolchains.compilers.{x}"\n', 'M = f"slipway.toolchains.compilers.{x}"\n'),
        ('M = "core", "deploy.svg", "models.list", "deploy now"\n', ""),
        ('"""Try ./inv doctor.\n\nOr ./inv.\n"""\nX = 1\n', '"""Try slipway doctor.\n\nOr slipway.\n"""\nX = 1\n'),
        ('H = "./inv", "a ./inv-x", "./inv.lock"  # ./inv\n', 'H = "slipway", "a ./inv-x", "./inv.lock"  # ./inv\n'),
        ('H = f"./inv {x}", "é", "./inv"\n', 'H = f"slipway {x}", "é", "slipway"\n'),
    ],
)
def test_a_module_below_slipway(source: str, shipped: str) -> None:
    assert wheel.below_slipway(source, "x.py") == (shipped or source)


def test_an_import_that_cannot_be_renamed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x\.py:2: write from"):
        wheel.below_slipway("import os\nimport core.errors\n", "x.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheel, "below_slipway", functools.cache(wheel.below_slipway))  # it takes seconds for all modules
        yield folder / wheel.build_wheel(str(folder))


def test_no_import_of_ours_is_left_at_the_top(built: Path) -> None:
    ours = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(wheel.ROOMS)})\b(?:[\w., ]*$|[\w.]* import)", re.MULTILINE)
    count = 0
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
        for name in names:
            if not name.endswith(".py") or "/_dist/" not in name:
                continue
            if name.split("/")[3] not in {*wheel.ROOMS, "tasks.py"}:
                continue
            count += 1
            text = archive.read(name).decode()
            assert not ours.search(text), name
            for module in re.findall(r"^\s*from (slipway\.[\w.]+) import", text, re.MULTILINE):
                path = f"slipway/_dist/{module.replace('.', '/')}"
                assert {f"{path}.py", f"{path}/__init__.py"} & names, f"{name}: {module}"
        tables = b"".join(archive.read(name) for name in names if re.search(r"_dist/slipway/models/.*\.toml$", name))
    assert count > 255
    assert b'"slipway.models.nets.convolutional:mlp"' in tables
    assert b'"models.' not in tables


def test_the_list_of_files_is_right_and_the_bytes_are_the_same_every_time(built: Path, tmp_path: Path) -> None:
    again = tmp_path / wheel.build_wheel(str(tmp_path))
    assert again.read_bytes() == built.read_bytes()
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert sorted(row[0] for row in rows) == sorted(names)
        assert all(int(size) == len(archive.read(name)) for name, digest, size in rows if digest)
        runner = archive.getinfo("slipway/_dist/slipway/conanfile.py")
        assert archive.read(runner) == (ROOT / "conanfile.py").read_bytes()
    assert not [name for name in names if "__pycache__" in name or "/tests/unit/" in name]
    tops = {name.split("/")[0] for name in names}
    assert tops == {"slipway", next(top for top in tops if top.endswith(".dist-info"))}
