"""Run some of upstream's own tests in this process, and keep every program that they serialize with what it computed.

``python -m verify.upstream.worker TESTS FOLDER``: TESTS is a file of pytest ids, FOLDER takes what is found; without
FOLDER, TESTS is written: the ids of all. The parent is `verify.upstream.suites`, which starts another of these where
one ends before its tests do. Upstream's tests run as they are: the collector stands at the stages of their tester, and
at upstream's runtime. Ids that begin with `OURS` are programs of `verify.sound`, which are kept in the same
way.
"""

from __future__ import annotations

import contextlib
import copy
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.files import sha256_bytes, write_atomic, write_json
from core.paths import ROOT
from models.loading import reference
from models.lowering import shortcuts
from models.reference import tolerances
from verify.operators.lowering import Program, Run
from verify.upstream.suites import OURS, RECORD, RUNNING, STARTED, folder_of

BACKENDS = ("xnnpack", "portable")
"""Of the flows of upstream's suite of operators: those whose programs need XNNPACK and portable kernels."""
SUITES = ("xnnpack/test/ops", "test/suite/operators")
"""Below `executorch.backends`."""
FLOAT, HALF, STATIC, DYNAMIC = "float", "half", "static", "dynamic"
_MEANT = "slipway_meant"
"""Attribute of a tester: what it exported."""
_KEPT_WORDS = 400
"""Letters of a reason that are kept."""


@dataclass(frozen=True)
class Meant:
    """What an exported program computes, as it was before lowering rewrote it."""

    kind: str = FLOAT
    """The kind of arithmetic that has to be allowed most."""
    steps: tuple[float | None, ...] = ()
    """In which each output is quantized."""
    shallow: bool = False
    """Whether only inputs of the program are quantized dynamically."""

    @classmethod
    def of(cls, program: Any) -> Meant:
        """What an exported program computes."""
        found = set()
        for node in program.graph.nodes:
            value = node.meta.get("val")
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(one, torch.Tensor) and one.dtype in (torch.float16, torch.bfloat16):
                    found.add(HALF)
            name = str(node.target)
            if "choose_qparams" in name or "per_token" in name:
                found.add(DYNAMIC)
            elif "quantize_per_tensor" in name or "quantize_affine" in name:
                found.add(STATIC)
        kind = next((one for one in (DYNAMIC, STATIC, HALF) if one in found), FLOAT)
        steps = tuple(tolerances.output_steps(program)) if kind == STATIC else ()
        return cls(kind, steps, kind == DYNAMIC and tolerances.inputs_quantized_directly(program))


@dataclass
class _Serialized:
    """What one tester serialized."""

    data: bytes
    tester: Any
    ran: bool = False


@dataclass(eq=False)  # pytest keeps plugins in sets
class Collector:
    """A pytest plugin: what the current test serializes and runs goes into a folder of its own."""

    base: Path
    folder: Path = Path()
    cases: list[dict[str, Any]] = field(default_factory=list)
    serialized: list[_Serialized] = field(default_factory=list)
    eager: list[Any] | None = None
    tester: Any = None
    meant: dict[str, Meant] = field(default_factory=dict)
    """By methods: what our own test lowered last."""

    @pytest.fixture
    def collector(self) -> Collector:
        """What our own tests give their programs to."""
        return self

    def pytest_runtest_protocol(self, item: Any) -> None:
        """Begin a test: the same random numbers in every run of it, alone or among others."""
        seed = zlib.crc32(item.nodeid.encode())
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # the one that upstream's tests would use
        self.folder = folder_of(self.base, item.nodeid)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / STARTED).touch()
        self.cases, self.serialized, self.eager, self.tester, self.meant = [], [], None, None, {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """End a test with its outcome and the reason for it."""
        if report.when == "setup" and report.outcome == "passed":
            return
        if report.when == "teardown":
            if report.outcome != "failed":
                return
        elif report.when == "call":
            self._run_the_rest()
        write_json(
            self.folder / RECORD,
            {"test": report.nodeid, "outcome": report.outcome, "why": _reason(report), "cases": self.cases},
        )
        for name in (STARTED, RUNNING):
            (self.folder / name).unlink(missing_ok=True)

    def _run_the_rest(self) -> None:
        """Programs that a test serialized and did not run: with its example inputs."""
        for one in self.serialized:
            if not one.ran:
                self.eager = None
                with contextlib.suppress(Exception):  # what upstream's runtime said is kept with the case
                    self.tester = one.tester
                    one.tester.stages[_stage_type().SERIALIZE].run_artifact(one.tester.example_inputs)

    def keep(self, data: bytes, inputs: Sequence[Any], run: Callable[[], Any]) -> Any:
        """Run a program on upstream's runtime, and keep both sides of it."""
        leaves, _ = torch.utils._pytree.tree_flatten(inputs)
        given = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        for one in self.serialized:
            one.ran = one.ran or one.data == data
        what = getattr(self.tester, _MEANT, Meant())
        case = self._case(data, what)
        try:
            answer = run()
        except Exception as error:
            case["refused"] = _short(f"{type(error).__name__}: {error}")
            self._add(case, given, [])
            raise
        self._add(case, given, reference.flat(answer))
        return answer

    def keep_program(self, program: Program) -> None:
        """Start a program of our own on upstream's runtime in each of its ways, and keep both sides of it."""
        kept = []
        for name, blob in program.data.items():
            write_atomic(self.folder / f"{name}.ptd", blob)
            kept.append(f"{name}.ptd")
        for run in program.runs:
            if not run.results:
                continue  # inputs that have to be refused
            case = self._case(program.buffer, self.meant.get(run.method, Meant()))
            case |= {"method": run.method, "runs": run.executions, "data": kept, "first": []}
            for at, (method, given) in enumerate(run.first):
                files = [f"{case['number']}-first{at}-{index}" for index in range(len(given))]
                for file, one in zip(files, reference.flat(given), strict=True):
                    reference.save(self.folder, file, one)
                case["first"].append([method, [f"{file}.npy" for file in files]])
            outputs = []
            try:
                outputs = reference.flat(_started(program, run))
            except RuntimeError as error:
                case["refused"] = _short(f"{type(error).__name__}: {error}")
            self._add(case, run.inputs, outputs, run.results)

    def _case(self, data: bytes, what: Meant) -> dict[str, Any]:
        case: dict[str, Any] = {"program": _put(self.folder, data), "number": len(self.cases), **asdict(what)}
        # Should the runtime end this process, the parent knows with which program.
        write_json(self.folder / RUNNING, {"program": case["program"], "kind": what.kind})
        return case

    def _add(
        self, case: dict[str, Any], inputs: Sequence[Any], outputs: Sequence[Any], eager: Sequence[Any] | None = None
    ) -> None:
        self.cases.append(case)
        if eager is None and not all(isinstance(one, torch.Tensor) for one in inputs):
            case["left_out"] = "an input is no tensor"
            return
        number = case["number"]
        right = self._eager(inputs, len(outputs)) if eager is None else list(eager)
        for kind, values in (("input", inputs), ("output", outputs), ("eager", right)):
            tensors = reference.flat(values)
            case[kind] = len(tensors)
            for index, one in enumerate(tensors):
                reference.save(self.folder, f"{number}-{kind}{index}", one)

    def _eager(self, inputs: Sequence[Any], count: int) -> list[Any]:
        """What PyTorch computes, in double precision where nothing is quantized; nothing when it cannot be had."""
        found: list[Any] = []
        tester = self.tester
        if tester is not None and tester.stages.get(_stage_type().QUANTIZE) is None:
            with contextlib.suppress(Exception), torch.no_grad():  # whatever cannot be computed in float64
                module = copy.deepcopy(tester.original_module).double()
                wide = [one.double() if one.dtype.is_floating_point else one for one in inputs]
                found = reference.flat(module(*wide))
        if len(found) != count:
            found = [one.detach().clone() for one in self.eager or []]
        return found if len(found) == count else []


def _started(program: Program, run: Run) -> Any:
    """What upstream's runtime gives for one start of a program; all its methods are loaded at first."""
    from executorch.extension.pybindings import portable_lib

    data = next(iter(program.data.values()), None)
    module = portable_lib._load_for_executorch_from_buffer(program.buffer, *([data] if data else []))

    def given(inputs: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(one.detach().clone() if isinstance(one, torch.Tensor) else one for one in inputs)

    for method, inputs in run.first:
        module.run_method(method, given(inputs))
    found = None
    for _ in range(run.executions):
        found = module.run_method(run.method, given(run.inputs))
    return found


def _short(text: str) -> str:
    return " ".join(text.split())[:_KEPT_WORDS]


def _reason(report: Any) -> str:
    """Why a test was skipped or failed: the last line of what pytest has."""
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):  # skipped: file, line and reason
        return _short(str(report.longrepr[2]))
    crash = getattr(report.longrepr, "reprcrash", None)
    return _short(crash.message if crash is not None else str(report.longrepr))


def _put(folder: Path, data: bytes) -> str:
    """Keep a program beside the others of its test, once; its name."""
    name = f"{sha256_bytes(data)[:16]}.pte"
    if not (folder / name).is_file():
        write_atomic(folder / name, data)
    return name


def _stage_type() -> Any:
    from executorch.backends.test.harness.stages import StageType

    return StageType


@contextlib.contextmanager
def hooked(collector: Collector) -> Iterator[None]:
    """Put the collector at the tester's stages and at the runtime, for as long as the context is open."""
    from executorch import exir
    from executorch.backends.test.harness import Tester
    from executorch.backends.test.harness.stages import Serialize
    from executorch.runtime import Method, Runtime
    from executorch.runtime import Program as Loaded

    patch = pytest.MonkeyPatch()
    run_artifact, run_stage, compare = Serialize.run_artifact, Tester._run_stage, Tester.run_method_and_compare_outputs
    calculate = Tester._calculate_reference_output
    load_program, load_method, execute = Runtime.load_program, Loaded.load_method, Method.execute
    lower = exir.to_edge_transform_and_lower

    def keep_artifact(stage: Any, inputs: Any) -> Any:
        return collector.keep(bytes(stage.artifact), inputs, lambda: run_artifact(stage, inputs))

    def see_stage(tester: Any, stage: Any, *args: Any, **options: Any) -> Any:
        result = run_stage(tester, stage, *args, **options)
        if stage.stage_type() == _stage_type().EXPORT:
            setattr(tester, _MEANT, Meant.of(stage.artifact))
        if stage.stage_type() == _stage_type().SERIALIZE:
            collector.serialized.append(_Serialized(bytes(stage.artifact), tester))
        return result

    def see_tester(tester: Any, *args: Any, **options: Any) -> Any:
        collector.tester = tester
        return compare(tester, *args, **options)

    def see_reference(program: Any, inputs: Any) -> Any:
        result = calculate(program, inputs)
        collector.eager = reference.flat(result[0])
        return result

    def see_load(runtime: Any, data: Any, **options: Any) -> Any:
        program = load_program(runtime, data, **options)
        program.slipway_data = Path(data).read_bytes() if isinstance(data, (str, Path)) else bytes(data)
        return program

    def see_method(program: Any, name: str) -> Any:
        method = load_method(program, name)
        if method is not None:
            method.slipway_data = program.slipway_data
        return method

    def see_lowering(programs: Any, *args: Any, **options: Any) -> Any:
        named = programs if isinstance(programs, dict) else {"forward": programs}
        collector.meant = {name: Meant.of(one) for name, one in named.items()}
        return lower(programs, *args, **options)

    def keep_execute(method: Any, inputs: Any) -> Any:
        return collector.keep(method.slipway_data, inputs, lambda: execute(method, inputs))

    with patch.context() as at:
        at.setattr(Serialize, "run_artifact", keep_artifact)
        at.setattr(Tester, "_run_stage", see_stage)
        at.setattr(Tester, "run_method_and_compare_outputs", see_tester)
        at.setattr(Tester, "_calculate_reference_output", staticmethod(see_reference))
        at.setattr(Runtime, "load_program", see_load)
        at.setattr(Loaded, "load_method", see_method)
        at.setattr(Method, "execute", keep_execute)
        at.setattr(exir, "to_edge_transform_and_lower", see_lowering)
        yield


class Lister:
    """A pytest plugin: writes the ids of the tests whose flow is one of ours, or which have none."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep what is ours."""
        found = []
        for item in items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            flow = parameters.get("test_runner")
            if flow is None or flow.backend in BACKENDS:
                found.append(item.nodeid)
        write_atomic(self._file, "\n".join(found) + "\n")


def run_pytest(words: Sequence[str], plugin: Any) -> int:
    """Run pytest on upstream's tests, or on ours; of our own settings nothing counts.

    Args:
        words: paths or ids below `executorch.backends`, or all of them `OURS`.
    """
    import importlib.util

    spec = importlib.util.find_spec("executorch.backends")
    (root,) = spec.submodule_search_locations if spec and spec.submodule_search_locations else [""]
    if any(word.startswith(OURS) for word in words):
        root = str(ROOT)
    own = ["-c", "/dev/null", f"--rootdir={root}", "--import-mode=importlib", "-p", "no:cacheprovider"]
    own += ["-q", "-W", "ignore", "--tb=line"]
    paths = [word if word.startswith("-") else f"{root}/{word}" for word in words]
    return int(pytest.main([*own, *paths], plugins=[plugin]))


def main(tests: Path, folder: Path | None) -> int:
    """Run the tests that a file names; or list all into the file."""
    if folder is None:
        return run_pytest(["--collect-only", *SUITES], Lister(tests))
    import importlib

    importlib.import_module("executorch.kernels.quantized")  # registers its kernels with the runtime
    collector = Collector(folder)
    with hooked(collector), shortcuts.in_torch():
        return run_pytest(tests.read_text(encoding="utf-8").split("\n"), collector)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
