"""pte_runner of the real bundle, natively: flags, JSON, numbers, and an exit code for each fault."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest

from core.formats.bundle import RUNNER, Bundle
from core.formats.program import load_program
from core.paths import ROOT
from tests.support.processes import ran, well

pytestmark = [pytest.mark.build, pytest.mark.export]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.out)
        return answer


Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def runner(bundle: Bundle) -> Path:
    return bundle.path / RUNNER


@pytest.fixture(scope="module")
def run(runner: Path) -> Run:
    def call(*words: str | Path, limit: str = "", stdout: int = subprocess.PIPE) -> Ran:
        env = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
        argv = [*(["prlimit", limit] if limit else []), runner, *words]
        done = subprocess.run(argv, stdout=stdout, stderr=subprocess.PIPE, env=env, timeout=120, check=False)
        return Ran(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())

    return call


def files(folder: Path, name: str, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{name}.{kind}?.npy"))


def joined(paths: Sequence[Path]) -> str:
    return ",".join(map(str, paths))


def digest(array: numpy.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def altered(program: Path, old: bytes, new: bytes, folder: Path) -> Path:
    """A copy of a program with one word in it changed for another of the same length."""
    data = program.read_bytes()
    assert len(old) == len(new)
    assert old in data
    copy = folder / program.name
    copy.write_bytes(data.replace(old, new))
    return copy


def test_a_run_computes_what_upstreams_runtime_computes(run: Run, program: Path, tmp_path: Path) -> None:
    facts, model = load_program(program), program / "model.pte"
    ran = run(
        f"--model_path={model}", "--inputs", joined([program / item.file for item in facts.inputs]),
        f"--output_file={tmp_path / 'y'}", "--num_executions", "20", "--warmup=3", "--cpu_threads=2", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert ran.err == ""
    answer = ran.json
    assert list(answer) == [
        "schema", "engine", "program", "method", "load_ms", "latency_ms", "peak_rss_bytes", "threads", "inputs",
        "outputs", "backends", "operators", "cpu", "digests",
    ]  # fmt: skip
    assert answer["schema"] == 1
    assert answer["engine"] == {"name": "executorch", "version": "1.5.1"}
    assert answer["program"] == {"path": str(model), "size": facts.size}
    assert (answer["method"], answer["threads"]) == ("forward", 2)
    assert answer["backends"] == ["XnnpackBackend"]
    assert {"aten::add.out", "aten::embedding.out"} < set(answer["operators"])
    assert 1 << 20 < answer["peak_rss_bytes"] < 1 << 28
    assert answer["load_ms"] > 0
    assert [item["sha256"] for item in answer["inputs"]] == [item.sha256 for item in facts.inputs]
    for index, (item, reference) in enumerate(zip(answer["outputs"], facts.outputs, strict=True)):
        assert item["file"] == str(tmp_path / f"y{index}.npy")
        written = numpy.load(item["file"])
        assert (item["dtype"], tuple(item["shape"])) == (str(written.dtype), written.shape)
        # Bit for bit what the same version of ExecuTorch computed on this machine through Python.
        assert item["sha256"] == digest(written) == reference.sha256


def test_help_and_version(run: Run) -> None:
    assert "'|V2'" in run("--help").out
    assert run("--version").out == "pte_runner 0.1.0 (executorch 1.5.1)\n"


@pytest.mark.parametrize("name", ["delegated", "portable", "dynamic", "bf16", "numbers", "kinds", "channels_last"])
def test_every_kind_of_input_and_output(run: Run, programs: Path, tmp_path: Path, name: str) -> None:
    ran = run(
        f"--model_path={programs / f'{name}.pte'}", f"--inputs={joined(files(programs, name, 'in'))}",
        f"--output_file={tmp_path / 'y'}", "--json", "--num_executions=2",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    given = [numpy.load(path) for path in files(programs, name, "in")]
    assert [item["sha256"] for item in ran.json["inputs"]] == [digest(array) for array in given]
    expected = [numpy.load(path) for path in files(programs, name, "out")]
    assert len(ran.json["outputs"]) == len(expected)
    for item, want in zip(ran.json["outputs"], expected, strict=True):
        got = numpy.load(item["file"])
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert item["dtype"] == ("bfloat16" if want.dtype == "V2" else str(want.dtype))
        if want.dtype.kind == "f":
            assert numpy.allclose(got, want, rtol=1e-5, atol=1e-6)
        else:
            assert got.tobytes() == want.tobytes()


def test_inputs_are_ones_when_none_are_given(run: Run, programs: Path) -> None:
    ran = run("--model_path", programs / "delegated.pte", "--json")
    assert ran.json["inputs"][0]["sha256"] == digest(numpy.ones((2, 16), numpy.float32))
    assert "Inputs are ones in the shapes the method declares: float32 2x16" in ran.err
    # Numbers are what the program was exported with: it takes no others.
    numbers = run("--model_path", programs / "numbers.pte", "--json").json["inputs"]
    assert numbers[1]["sha256"] == digest(numpy.asarray(3))
    assert numbers[2]["sha256"] == digest(numpy.asarray(0.5))


def test_weights_stored_apart(run: Run, programs: Path, tmp_path: Path) -> None:
    weights = next(programs.glob("*.ptd"))
    words = ["--model_path", programs / "apart.pte", f"--inputs={programs / 'apart.in0.npy'}", "--json"]
    ran = run(*words, f"--data_path={weights}", f"--output_file={tmp_path / 'y'}", "--digests")
    assert ran.code == 0, ran.err
    assert [(Path(each["path"]), each["sha256"]) for each in ran.json["digests"]["files"]] == [
        (file, hashlib.sha256(file.read_bytes()).hexdigest()) for file in (programs / "apart.pte", weights)
    ]
    assert numpy.allclose(numpy.load(tmp_path / "y0.npy"), numpy.load(programs / "apart.out0.npy"), atol=1e-6)
    without = run(*words)
    assert without.code == 3
    assert "0.weight" in without.json["error"]["names"]
    assert "--data_path" in without.json["error"]["fix"]
    cut = tmp_path / "cut.ptd"
    cut.write_bytes(weights.read_bytes()[:-1])
    truncated = run(*words, f"--data_path={cut}")
    assert truncated.code == 3
    assert f"{weights.stat().st_size - 1} bytes found" in truncated.err


def test_describe_lists_what_a_program_asks_for(run: Run, programs: Path) -> None:
    path = programs / "portable.pte"
    answer = run("--model_path", path, "--describe", "--json").json
    assert list(answer) == ["schema", "engine", "program", "methods", "backends", "operators"]
    assert answer["program"] == {"path": str(path), "size": path.stat().st_size, "version": 0}
    (method,) = answer["methods"]
    tensor = {"dtype": "float32", "kind": "tensor", "dynamism": "static"}
    assert method == {
        "name": "forward",
        "inputs": [{**tensor, "shape": [2, 16], "ranges": [[2, 2], [16, 16]]}],
        "outputs": [{**tensor, "shape": [2, 4], "ranges": [[2, 2], [4, 4]]}],
        "planned_bytes": method["planned_bytes"],
        "backends": [],
        "operators": ["aten::addmm.out", "aten::permute_copy.out", "aten::relu.out"],
        "missing_backends": [],
        "missing_operators": [],
        "external_weights": [],
    }
    assert 2 * 16 * 4 + 2 * 4 * 4 <= method["planned_bytes"] < 1 << 16
    several = run("--model_path", programs / "methods.pte", "--describe", "--json").json["methods"]
    assert [item["name"] for item in several] == ["first", "second"]
    (dynamic,) = run("--model_path", programs / "dynamic.pte", "--describe", "--json").json["methods"]
    assert dynamic["inputs"] == [
        {**tensor, "shape": [8, 16], "dynamism": "bounded", "ranges": [[0, 8], [0, 16]]}  # which is fixed it cannot say
    ]
    assert dynamic["backends"] == ["XnnpackBackend"]
    (numbers,) = run("--model_path", programs / "numbers.pte", "--describe", "--json").json["methods"]
    assert [item["kind"] for item in numbers["inputs"]] == ["tensor", "int", "double"]


def test_missing_operators_are_named_all_at_once(run: Run, programs: Path, tmp_path: Path) -> None:
    program = altered(programs / "portable.pte", b"aten::relu", b"mine::relu", tmp_path)
    program = altered(program, b"aten::addmm", b"mine::addmm", tmp_path)
    ran = run("--model_path", program, "--json")
    assert ran.code == 4
    error = ran.json["error"]
    assert (error["kind"], error["exit_code"]) == ("missing-operator", 4)
    assert error["names"] == ["mine::addmm.out", "mine::relu.out"]
    assert "mine::addmm.out, mine::relu.out" in ran.err
    described = run("--model_path", program, "--describe", "--json")
    assert described.code == 0
    assert described.json["methods"][0]["missing_operators"] == ["mine::addmm.out", "mine::relu.out"]


def test_a_missing_backend_is_named(run: Run, programs: Path, tmp_path: Path) -> None:
    program = altered(programs / "delegated.pte", b"XnnpackBackend", b"UnheardBackend", tmp_path)
    ran = run("--model_path", program, "--json")
    assert ran.code == 5
    assert ran.json["error"]["names"] == ["UnheardBackend"]
    assert "not registered: the linker dropped it" in ran.err
    assert run("--model_path", program, "--describe", "--json").json["methods"][0]["missing_backends"] == [
        "UnheardBackend"
    ]


def test_a_damaged_program_never_crashes_the_runner(run: Run, programs: Path, tmp_path: Path) -> None:
    for name in ("delegated", "portable"):
        whole = (programs / f"{name}.pte").read_bytes()
        program = tmp_path / f"{name}.pte"
        codes = set()
        for place in range(0, len(whole), 41):
            data = bytearray(whole)
            data[place] ^= 0xFF
            program.write_bytes(bytes(data))
            ran = run("--model_path", program, "--json")
            assert ran.code in {0, 2, 3, 4, 5, 6, 7, 9}, f"byte {place}: {ran}"
            assert ("error" in ran.json) == (ran.code != 0)
            codes.add(ran.code)
        assert {0, 3} <= codes


@pytest.mark.parametrize(("words", "code", "says"), [
    ([], 2, "--model_path is missing"),
    (["--roofline", "--describe", "--model_path={p}/delegated.pte"], 2, "exclude each other"),
    (["--roofline", "--cpu_threads=1025"], 2, "from 1 to 1024"),
    (["--model_path={p}/methods.pte"], 2, "give --method_name one of: first, second"),
    (["--model_path={p}/none.pte"], 3, "No such file"),
    (["--model_path={p}"], 3, "it is a folder"),
    (["--model_path={p}/delegated.in0.npy"], 3, "not a program"),
    (["--model_path={p}/_default_external_constant.ptd"], 3, "--data_path"),
    (["--model_path={p}/delegated.pte", "--input_shapes=3x16"], 6, "expected float32 2x16, given float32 3x16"),
    (["--model_path={p}/dynamic.pte", "--input_shapes=9x16"], 6, "at most 8x16, given float32 9x16"),
    (["--model_path={p}/delegated.pte", "--input_shapes=2x16,1"], 6, "takes 1 inputs (float32 2x16), 2 given"),
    (["--model_path={p}/delegated.pte", "--inputs={p}/none.npy"], 6, "No such file"),
    (["--model_path={p}/delegated.pte", "--inputs={p}/delegated.pte"], 6, "not a .npy file"),
    (["--model_path={p}/delegated.pte", "--inputs={p}/dynamic.in0.npy"], 6, "given float32 4x16"),
    (["--model_path={p}/delegated.pte", "--inputs={p}/numbers.in1.npy"], 6, "given int64 scalar"),
    (["--model_path={p}/bf16.pte", "--inputs={p}/delegated.in0.npy,{p}/bf16.in1.npy"], 6, "array.view('V2')"),
    (["--model_path={p}/dynamic.pte", "--input_shapes=2x15"], 6, "at most 8x16, given float32 2x15"),
    (["--model_path={p}/dynamic.pte", "--input_shapes=16"], 6, "at most 8x16, given float32 16"),
    (["--model_path={p}/dynamic.pte", "--input_shapes=2x16x1"], 6, "at most 8x16, given float32 2x16x1"),
    (["--model_path={p}/delegated.pte", "--output_file={p}/none/y"], 8, "none/y0.npy"),
    (["--model_path={p}/delegated.pte", "--etdump_path={p}/none/e"], 8, "none/e"),
])  # fmt: skip
def test_faults(run: Run, programs: Path, words: list[str], code: int, says: str) -> None:
    ran = run(*[word.format(p=programs) for word in words], "--json")
    assert ran.code == code, ran
    error = ran.json["error"]
    assert list(error) == ["kind", "exit_code", "message", "fix", "names"]
    assert error["exit_code"] == code
    assert error["fix"]
    assert says in error["message"] + error["fix"]
    assert error["message"] in ran.err


def test_output_that_does_not_fit_leaves_no_file(run: Run, programs: Path, tmp_path: Path) -> None:
    words = ["--model_path", programs / "dynamic.pte", f"--output_file={tmp_path / 'y'}"]
    ran = run(*words, limit="--fsize=100")
    assert ran.code == 8
    assert "y0.npy: File too large" in ran.err
    assert list(tmp_path.iterdir()) == []
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert run("--model_path", programs / "dynamic.pte", "--json", stdout=full).code == 8
    finally:
        os.close(full)


def test_too_little_memory_is_said_so(run: Run, programs: Path) -> None:
    for limit in (300 << 20, 700 << 20):  # too little for the input; for the input, not for the output
        ran = run("--model_path", programs / "large.pte", "--json", limit=f"--as={limit}")
        assert ran.code == 9, ran
        assert ran.json["error"]["kind"] == "memory"


def test_a_crash_is_said_to_be_ours_or_the_devices(runner: Path, programs: Path) -> None:
    """By this signal; runtime/tests/test_files.cpp has all of them."""
    words = [f"--model_path={programs / 'portable.pte'}", "--num_executions=1000000", "--json"]
    process = subprocess.Popen([runner, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert b"Inputs are ones" in process.stderr.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGBUS)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 10
    error = json.loads(out)["error"]
    assert (error["kind"], error["exit_code"], error["names"]) == ("crash", 10, ["SIGBUS"])
    assert "a defect of Slipway or of this device" in error["message"]
    assert "damaged" not in error["message"] + error["fix"]
    assert "report it" in error["fix"]
    assert error["message"] in err.decode()


def test_the_manual_knows_every_flag_and_its_commands_work(runner: Path, program: Path) -> None:
    manual = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    flags = re.findall(r"^  --(\w+)", ran([runner, "--help"]).stdout, re.MULTILINE)
    assert len(flags) > 30
    # That one is between the runner and a talk's command.
    assert [flag for flag in flags if f"`--{flag}" not in manual] == ["turns"]
    block = re.search(r"^```sh\n(.*?)^```", manual, re.MULTILINE | re.DOTALL)
    assert block
    commands = block[1].splitlines()
    assert len(commands) == 5
    for command in commands:
        words = [
            word.replace("dist/linux-x86_64/executorch/bin/pte_runner", str(runner))
            .replace("dist/programs/mlp-fp32", str(program))
            for word in shlex.split(command)
        ]  # fmt: skip
        well(ran(words))
