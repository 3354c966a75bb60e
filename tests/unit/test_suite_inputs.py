"""Which files of tests a change runs: the table from rooms to suites, held against the real checkout."""

from __future__ import annotations

import functools

import pytest

from core.paths import ROOT
from verify.suite import choosing, inputs
from verify.suite.inputs import Suite, Tree

FOLDERS = ("tests/integration/", "tests/faults/")


@functools.cache
def tree() -> Tree:
    return Tree(ROOT, inputs.tracked(ROOT))


@functools.cache
def needs(name: str) -> frozenset[str]:
    file = next(one for one in tree().files if one.startswith(FOLDERS) and one.endswith(f"/test_{name}.py"))
    return frozenset(Suite(tree(), file).needs())


@pytest.mark.parametrize(
    ("changed", "run", "not_run"),
    [
        ("deploy/transport/ssh/auth.py", ("deploy_pi", "cuts", "ssh_ways", "windows_device"), ("lean_operators",)),
        ("deploy/transport/adb/files.py", ("virtual_phone", "hostile_adb"), ("deploy_local", "lean_operators")),
        ("deploy/transport/windows/__init__.py", ("windows_device",), ("deploy_local", "deploy_pi", "virtual_phone")),
        ("deploy/lab/places.py", ("labgrid", "labgrid_power"), ("deploy_pi", "runner")),
        ("deploy/virtual/virtual.toml", ("deploy_pi", "virtual_machines", "labgrid"), ("recipes",)),
        ("deploy/scripts/probe.sh", ("deploy_pi", "deploy_local", "userlands"), ("recipes",)),
        ("deploy/run/preflight.py", ("deploy_local", "deploy_pi", "matrix"), ("native", "runner")),
        ("models/lowering/lowering.py", ("export", "zoo", "deploy_local", "deploy_pi"), ("recipes", "userlands")),
        ("runtime/runner/main.cpp", ("runner", "deploy_local", "deploy_pi", "libslipway"), ("userlands",)),
        ("runtime/engines/lean/kernels/views.cpp", ("lean_operators", "sweep", "zoo", "virtual_phone"), ("userlands",)),
        ("runtime/engines/onnxruntime/CMakeLists.txt", ("onnx", "onnxruntime"), ("userlands",)),
        ("toolchains/compilers/zig_wrapper.sh", ("build", "toolchain", "deploy_pi"), ()),
        ("runtime/bindings/java/jni/slipway_jni.cpp", ("java",), ("deploy_local",)),
        ("runtime/examples/run_once.c", ("deploy_pi", "libslipway"), ("runner",)),
        ("docs/deploy.md", ("readme", "site"), ("deploy_local", "zoo")),
        ("recipes/xnnpack/config.yml", ("recipes", "userlands", "site"), ()),
        ("locks/core.txt", ("inv", "userlands"), ()),
        ("tests/support/lab.py", ("labgrid",), ("runner",)),
    ],
)
def test_a_change_runs_what_it_can_break(changed: str, run: tuple[str, ...], not_run: tuple[str, ...]) -> None:
    assert changed in tree().files
    assert [name for name in run if changed not in needs(name)] == []
    assert [name for name in not_run if changed in needs(name)] == []


def test_the_tables_name_what_is_there_and_what_depends_on_everything() -> None:
    for file in inputs.ALL:
        assert Suite(tree(), file).needs() == tree().files
    found = frozenset().union(*(Suite(tree(), file).needs() for file in choosing.WAYS))
    rooms = ("deploy/run/", "deploy/store/", "deploy/scripts/", "runtime/runner/", "runtime/program/", "models/zoo")
    assert sorted(name for name in tree().files - found if name.startswith(rooms)) == []
    assert set(choosing.WAYS) <= tree().files
    assert set(inputs.TASKS) | set(inputs.ALL) <= tree().files
    for name in (*inputs.EVERYWHERE, *inputs.FOLDERS, *inputs.BUILDS):
        assert any(file == name or file.startswith(f"{name}/") for file in tree().files), name
    assert set(inputs.CHOSEN) <= tree().modules.keys()


def test_each_folder_of_the_table_has_files_that_prove_it_and_depend_on_it() -> None:
    for folder, names in choosing.PROVES.items():
        for name in names.split():
            assert any(file.startswith(f"{folder}/") for file in needs(name)), (folder, name)
