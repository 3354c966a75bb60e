"""When an export is still good: its key, what is looked at, what was read; and those that fail, said once. No torch."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from commands import export as command
from core.errors import ConfigError, ExportError, SlipwayError
from core.files import write_atomic
from core.paths import ROOT
from deploy.matrix.plan import Exportable
from models import export, request, warm
from models.request import Request, current, key, resolve
from models.request.options import Options
from models.users import watching as noted
from models.users.watching import Watch, watching
from models.zoo.schemes import CODE, HERE
from models.zoo.trained import WEIGHTS

OWN = f"{ROOT}/tests/fixtures/models/partitioning.py:relu_only"
SOURCE = "def make_model():\n    return None\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    return path


def pretend(wanted: request.Request, **changes: Any) -> None:
    """Leave what an export of ``wanted`` would leave, as far as is looked at."""
    write_atomic(wanted.folder / "model.pte", "12345")
    (wanted.folder / "output0.npy").write_bytes(b"123")
    description = {"export_key": key(wanted), "files": {"model.pte": 5, "output0.npy": 3}, **changes}
    (wanted.folder / "program.json").write_text(json.dumps(description))


def test_programs_are_named_after_file_and_function(file: Path, tmp_path: Path) -> None:
    wanted = resolve(f"{file}:make_model", "qs8", out=tmp_path)
    assert wanted.name == "net-make_model-qs8"
    assert wanted.folder == tmp_path / "net-make_model-qs8"
    assert wanted.zoo is None
    files = [tmp_path / folder / "net.py" for folder in ("a", "b")]
    for path in files:
        write_atomic(path, SOURCE)
    first, second = (resolve(f"{path}:make_model", out=tmp_path) for path in files)
    assert (first.name, first.folder) == ("net-make_model-fp32", tmp_path / "net-make_model-fp32")
    assert (second.folder.parent, second.name) == (tmp_path, second.folder.name)
    assert second.name.startswith("net-make_model-") and second.name.endswith("-fp32") and second.name != first.name
    pretend(first, source=str(files[0]))
    request._named.clear()  # another process
    assert resolve(f"{files[1]}:make_model", out=tmp_path).name == second.name
    assert resolve(f"{files[0]}:make_model", out=tmp_path).name == first.name
    files[0].unlink()  # moved: the program is this one's
    assert resolve(f"{files[1]}:make_model", out=tmp_path).name == first.name


def test_the_key_depends_on_each_choice(file: Path) -> None:
    assert key(resolve("mlp", "qs8")) == key(resolve("mlp", "qs8"))
    assert key(resolve(f"{file}:make_model")) == key(resolve(f"{file}:make_model"))
    choices = [
        resolve("mlp", "qs8"),
        resolve("mlp", "fp32"),
        resolve("linear", "qs8"),
        resolve("mlp", "qs8", options={"per_op_mode": True}),
        resolve("mlp", "qs8", options=Options(layers=("0:float",))),
        resolve("mlp", "qs8", partitioners=(OWN, "xnnpack")),
        resolve("mlp", "qs8", partitioners=("xnnpack", OWN)),
        resolve(f"{file}:make_model", "qs8"),
    ]
    assert len({key(one) for one in choices}) == len(choices)
    before = key(resolve(f"{file}:make_model"))
    file.write_text(SOURCE.replace("None", "True"))
    assert key(resolve(f"{file}:make_model")) != before


def test_the_key_follows_the_code_that_exports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = key(resolve("mlp"))
    for path in HERE.glob("*.py"):
        shutil.copy(path, tmp_path)
    for folder in filter(None, CODE):
        shutil.copytree(HERE / folder, tmp_path / folder)
    monkeypatch.setattr(request, "HERE", tmp_path)
    assert key(resolve("mlp")) == before
    (tmp_path / "samples" / "taking.py").write_text("# changed\n")
    assert key(resolve("mlp")) != before
    shutil.copy(HERE / "samples" / "taking.py", tmp_path / "samples")
    shutil.copytree(HERE / "onnx", tmp_path / "onnx")
    as_onnx = key(resolve("mlp", format="onnx"))
    (tmp_path / "onnx" / "making.py").write_text("# changed\n")
    assert key(resolve("mlp", format="onnx")) != as_onnx
    assert key(resolve("mlp")) == before, "what only .onnx files depend on leaves .pte files alone"
    (tmp_path / "quantize.py").write_text("# changed\n")
    assert key(resolve("mlp")) != before


def test_the_key_follows_versions_and_weights_are_trained_or_random(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(resolve("mlp"))
    monkeypatch.setattr(request, "versions", lambda _: {"torch": "9.9", "executorch": "1"})
    assert key(resolve("mlp")) != before
    monkeypatch.setenv(WEIGHTS, "net.pth")
    with pytest.raises(ConfigError, match=r"mobilenet_v2 does not take the weights net\.pth"):
        resolve("mobilenet_v2")
    assert resolve("mlp").options.weights == "", "a model without trained weights ignores the variable"
    with pytest.raises(ConfigError, match="does not take the weights"):
        resolve("mlp", options={"weights": "trained.pth"})
    assert resolve("mobilenet_v2", options={"weights": "random"}).options.weights == ""


def test_a_whole_export_is_current(file: Path, tmp_path: Path) -> None:
    model = f"{file}:make_model"
    assert not current(resolve(model, out=tmp_path))
    pretend(resolve(model, out=tmp_path))
    assert current(resolve(model, out=tmp_path))
    assert not current(resolve(model, "qs8", out=tmp_path))
    assert not current(resolve(model, options={"per_op_mode": True}, out=tmp_path))
    file.write_text(SOURCE + "x = 1\n")
    assert not current(resolve(model, out=tmp_path))
    part = tmp_path / "part.py"
    part.write_text("WIDTH = 4\n")
    pretend(resolve("mlp", out=tmp_path), depends={"files": {str(part): noted.file(part)}})
    assert current(resolve("mlp", out=tmp_path))
    part.write_text("WIDTH = 5\n")
    assert not current(resolve("mlp", out=tmp_path))
    part.unlink()
    assert not current(resolve("mlp", out=tmp_path))


@pytest.mark.parametrize("damage", ["missing", "short", "no description", "not json", "a list", "no files"])
def test_a_damaged_export_is_not_current(tmp_path: Path, damage: str) -> None:
    wanted = resolve("mlp", out=tmp_path)
    pretend(wanted, **({"files": {}} if damage == "no files" else {}))
    description = wanted.folder / "program.json"
    if damage == "missing":
        (wanted.folder / "output0.npy").unlink()
    elif damage == "short":
        (wanted.folder / "model.pte").write_bytes(b"1234")
    elif damage == "no description":
        description.unlink()
    elif damage in ("not json", "a list"):
        description.write_text("{" if damage == "not json" else "[]")
    assert not current(resolve("mlp", out=tmp_path))


@pytest.mark.parametrize(
    ("content", "spec", "error", "words_of_it"),
    [
        (None, "{file}:make_model", ConfigError, "There is no file"),
        (SOURCE, "{file}", ConfigError, "does not say which function"),
        (SOURCE, "{file}:make", ConfigError, "has no function 'make'"),
        ("x = 1\n", "{file}:make_model", ConfigError, "it has no function"),
        ("def make_model(:\n", "{file}:make_model", ExportError, "is not Python, line 1"),
        ("\0", "{file}:make_model", ExportError, "is not Python"),
        ("class A: pass\nclass Net: pass\n", "{file}", ConfigError, "it has only classes: A, Net"),
        ("class Net: pass\n", "{file}", ConfigError, "def make_model(): return Net().eval(), (torch.randn(SHAPE),)"),
        (SOURCE, "{folder}/nte.py:make_model", ConfigError, "did you mean net.py?"),
        (SOURCE, "{folder}/qqqq.py:make_model", ConfigError, "has no file of this name"),
        (SOURCE, "{folder}/gone/net.py:make_model", ConfigError, "there is no folder"),
    ],
)
def test_a_wrong_file_is_named_before_anything_runs(
    tmp_path: Path, content: str | None, spec: str, error: type[Exception], words_of_it: str
) -> None:
    path = tmp_path / "net.py"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error) as caught:
        resolve(spec.format(file=path, folder=tmp_path))
    assert words_of_it in str(caught.value)


def test_a_users_file_is_looked_at_quickly_and_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("raise SystemExit('it ran')\n" + SOURCE)
    wanted = resolve(f"{path}:make_model", out=tmp_path)
    assert key(wanted)
    assert not current(resolve(f"{path}:make_model", out=tmp_path))
    pretend(resolve("mobilenet_v2", "qs8", out=tmp_path))
    current(resolve("mobilenet_v2", "qs8", out=tmp_path))  # reads the tables
    times = []
    for _ in range(5):
        start = time.process_time()  # others may have the processors
        assert current(resolve("mobilenet_v2", "qs8", out=tmp_path))
        times.append(time.process_time() - start)
    assert min(times) < 0.05


def test_what_an_onnx_cannot_be() -> None:
    with pytest.raises(ConfigError, match="not as qd8_qc8w"):
        resolve("mlp", "qd8_qc8w", format="onnx")
    with pytest.raises(ConfigError, match="does not suit linear as"):
        resolve("linear", "qs8", format="onnx")
    with pytest.raises(ConfigError, match="has no xnnpack"):
        resolve("mlp", partitioners=["xnnpack"], format="onnx")
    with pytest.raises(ConfigError, match="has no per_op_mode"):
        resolve("mlp", options={"per_op_mode": True}, format="onnx")
    with pytest.raises(ConfigError, match="no program format 'tflite'"):
        resolve("mlp", format="tflite")
    as_onnx = resolve("mlp", format="onnx")
    assert (as_onnx.name, as_onnx.file, as_onnx.partitioners) == ("mlp-fp32-onnx", "model.onnx", ())
    assert key(as_onnx) != key(resolve("mlp"))


Run = Callable[[str], dict[str, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run lines as a user's file and give what they depend on."""
    source = tmp_path / "user" / "net.py"
    source.parent.mkdir()
    path = list(sys.path)

    def call(lines: str) -> dict[str, dict[str, Any]]:
        source.write_text(textwrap.dedent(lines))
        before = set(sys.modules)
        watch = Watch(source)
        with watching(watch):
            exec(compile(source.read_text(), source, "exec"), {"__name__": "net", "__file__": str(source)})  # noqa: S102
            found = watch.found()
            own = watch.modules()
        for name in own:
            del sys.modules[name]
        assert set(own) <= set(sys.modules) - before | set(own)
        return cast("dict[str, dict[str, Any]]", json.loads(json.dumps(found)))

    yield call
    sys.path[:] = path


def test_files_that_are_read_are_noted(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_bytes(b"0" * 256)
    found = run(
        f"""
        import os, pathlib, numpy
        open({str(tmp_path / "a")!r}).close()
        (pathlib.Path({str(tmp_path)!r}) / "b").read_bytes()
        numpy.fromfile({str(tmp_path / "c")!r}, "u1")
        os.close(os.open({str(tmp_path / "d")!r}, os.O_RDONLY))
        pathlib.Path("/proc/self/stat").read_text()
        pathlib.Path(os.__file__).read_text()
        """
    )
    assert set(found["files"]) == {str(tmp_path / name) for name in "abcd"}
    assert noted.changed(found) == ""
    assert found["packages"]["numpy"] == noted.version("numpy") != "absent"
    (tmp_path / "c").write_bytes(b"1" * 256)
    assert noted.changed(found) == f"{tmp_path / 'c'} has changed"
    (tmp_path / "c").unlink()
    assert noted.changed(found) == f"{tmp_path / 'c'} is missing"


def test_what_changes_behind_the_files_look_is_noticed(run: Run, tmp_path: Path) -> None:
    weights = tmp_path / "w.bin"
    weights.write_bytes(b"0000")
    os.utime(weights, (1, 1))
    found = run(f"open({str(weights)!r}, 'rb').close()")
    other = tmp_path / "other"
    other.write_bytes(b"1111")
    os.utime(other, (1, 1))
    other.replace(weights)
    assert noted.changed(found) == f"{weights} has changed"
    weights.write_bytes(b"0000")
    before = noted.looks(weights)
    weights.write_bytes(b"00000")
    assert noted.changed({"files": {str(weights): noted.file(weights, before)}}) != ""


def test_another_checkpoint_in_a_listed_folder_is_noticed(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    write_atomic(folder / "1.pt", "1")
    found = run(f"import glob; glob.glob({str(folder)!r} + '/*.pt')")
    assert noted.changed(found) == ""
    (folder / ".hidden").write_text("1")
    assert noted.changed(found) == ""
    (folder / "2.pt").write_text("2")
    assert noted.changed(found) == f"the folder {folder} has other files"


def test_modules_from_anywhere_and_versions_of_packages_count(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    write_atomic(shared / "slipway_shared_part.py", "WIDTH = 4\n")
    found = run(f"import sys; sys.path.insert(0, {str(shared)!r}); import slipway_shared_part")
    assert str(shared / "slipway_shared_part.py") in found["files"]
    assert "slipway_shared_part" not in sys.modules
    found = run("import numpy")
    monkeypatch.setattr(noted, "version", lambda name: "9.9" if name == "numpy" else noted.version.__wrapped__(name))
    assert noted.changed(found).startswith("numpy is now 9.9, it was ")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each export fails with the exporter's kind of message; the names in their order."""
    tried: list[str] = []

    def fail(request: Request, force: bool, host: object) -> Path:
        tried.append(request.name)
        raise ExportError(f"{request.name}: Lowering failed.", "no kernel", "another scheme")

    monkeypatch.setattr(export, "export_request", fail)

    def attempt(requests: Sequence[Request], force: bool, at_once: int) -> dict[str, SlipwayError]:
        assert (force, at_once) == (False, 1)
        return export.attempt(requests, force)

    monkeypatch.setattr(warm, "attempt", attempt)
    monkeypatch.setattr("core.environment.ensure_export", lambda: None)
    return tried


@pytest.mark.usefixtures("refusing")
def test_failures_are_said_once_and_the_only_one_is_left_to_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExportError, match=r"^mlp-qs8: Lowering failed\.\n"):
        command.exported([resolve("mlp", "qs8")])
    assert capsys.readouterr().err == ""
    with pytest.raises(ExportError) as caught:
        command.exported([resolve("mlp", scheme) for scheme in ("qs8", "fp32")])
    assert capsys.readouterr().err.splitlines() == [
        "mlp-qs8: failed: Lowering failed.", "mlp-fp32: failed: Lowering failed.",
    ]  # fmt: skip
    assert caught.value.cause.splitlines() == [
        "mlp-qs8: Lowering failed. no kernel", "mlp-fp32: Lowering failed. no kernel",
    ]  # fmt: skip


def test_a_matrix_tries_each_program_once(refusing: list[str]) -> None:
    programs = [Exportable(f"mlp-{scheme}", "mlp", scheme, "pte") for scheme in ("fp32", "qs8")]
    programs += [
        Exportable("mlp-qs8-none", "mlp", "qs8", "pte", variant="none"),
        Exportable("mlp-fp32-group_64", "mlp", "fp32", "pte", variant="group=64"),
    ]
    found = command.each(programs)
    assert refusing == ["mlp-fp32", "mlp-qs8", "mlp-qs8-none"]
    assert list(found) == programs
    for program, error in found.items():
        assert isinstance(error, SlipwayError)
        assert error.what.startswith(program.name) or "group does not go with" in error.what
