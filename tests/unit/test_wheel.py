"""The wheel: every module below one package, and nothing else changed."""

from __future__ import annotations

import csv
import functools
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.environment import wheel
from core.paths import ROOT

LEFT = 'M = "core", "deploy.svg", "models.list", "deploy now"\n'
COMMANDS = 'H = ("./inv", "a ./inv-like", "./inv.lock")  # ./inv\n'


@pytest.mark.parametrize(
    ("source", "shipped"),
    [
        ("from core import console\n", "from slipway.core import console\n"),
        (
            "def f():\n    from deploy.run import x  # core.x\n",
            "def f():\n    from slipway.deploy.run import x  # core.x\n",
        ),
        ("from corelib import x\nfrom .core import y\n", "from corelib import x\nfrom .core import y\n"),
        ('M = "deploy.matrix.worker"\n', 'M = "slipway.deploy.matrix.worker"\n'),
        ('M = "models.nets.layers:mlp"\n', 'M = "slipway.models.nets.layers:mlp"\n'),
        ('M = f"toolchains.compilers.{x}"\n', 'M = f"slipway.toolchains.compilers.{x}"\n'),
        (LEFT, LEFT),
        ('"""Try ./inv doctor.\n\nOr ./inv.\n"""\nX = 1\n', '"""Try slipway doctor.\n\nOr slipway.\n"""\nX = 1\n'),
        (COMMANDS, COMMANDS.replace('"./inv"', '"slipway"')),
        ('H = f"./inv {x}", "é", "./inv"\n', 'H = f"slipway {x}", "é", "slipway"\n'),
    ],
)
def test_a_module_below_slipway(source: str, shipped: str) -> None:
    assert wheel.below_slipway(source, "x.py") == shipped


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
    assert count > 300
    assert b'"slipway.models.nets.layers:mlp"' in tables
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
