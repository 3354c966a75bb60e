"""Models of a user's own: what they read, keep and bring along; schemes of theirs, and upstream's further options."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from core.errors import ExportError, UsageError
from core.formats.bundle import Bundle
from core.formats.program import Program, load_program
from core.paths import ROOT
from deploy.devices.inventory import Device
from deploy.run.pipeline import deploy
from deploy.run.settings import DEFAULT, Settings
from models import export as exporting
from models.export import export
from models.reference.host import Host
from models.request import current, resolve
from tests.support.builds import lend_bundle
from verify.agree.look import outputs_of

pytestmark = pytest.mark.export

FIXTURES = ROOT / "tests" / "fixtures" / "models"


def test_retrained_weights_and_only_changed_models_are_exported(
    tmp_path: Path, host: Host, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch

    weights = tmp_path / "weights.pt"
    torch.save({"bias": torch.zeros(4)}, weights)
    file = tmp_path / "net.py"
    text = (
        "import torch\nfrom pathlib import Path\n\n\nclass Trained(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.bias = torch.load(Path(__file__).parent / 'weights.pt')['bias']\n\n"
        "    def forward(self, x):\n        return x + self.bias\n\n\n"
        "def trained():\n    return Trained(), (torch.ones(2, 4),)\n\n\n"
        "def plain():\n    return torch.nn.ReLU(), (torch.ones(2, 4),)\n"
    )
    file.write_text(text)
    models = f"{file}:trained", f"{file}:plain"

    def outputs() -> list[Any]:
        return [numpy.load(export(model, out=tmp_path / "out", host=host) / "output0.npy")[0, 0] for model in models]

    assert outputs() == [1.0, 1.0]
    assert [current(resolve(model, out=tmp_path / "out")) for model in models] == [True, True]
    stamps = [file.stat().st_ino for file in sorted((tmp_path / "out").rglob("model.pte"))]
    capfd.readouterr()
    assert outputs() == [1.0, 1.0]
    assert capfd.readouterr().err == ""
    assert [file.stat().st_ino for file in sorted((tmp_path / "out").rglob("model.pte"))] == stamps
    torch.save({"bias": torch.ones(4)}, weights)
    assert [current(resolve(model, out=tmp_path / "out")) for model in models] == [False, True]
    capfd.readouterr()
    assert outputs() == [2.0, 1.0]
    assert f"exporting again: {weights} has changed" in capfd.readouterr().err.replace("\n", "")
    file.write_text(text.replace("return x + self.bias", "return x - self.bias"))
    assert [current(resolve(model, out=tmp_path / "out")) for model in models] == [False, False]


REPOSITORY = {
    "models/__init__.py": "from .net import Net\n",
    "models/net.py": (
        "import importlib\nimport torch\n\n\nclass Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.first = torch.nn.Linear(4, 4)\n"
        "        self.last = importlib.import_module('deploy.head').Head()\n\n"
        "    def forward(self, x):\n        from core.acts import act\n\n        return self.last(act(self.first(x)))\n"
    ),
    "deploy/head.py": (
        "import torch\n\n\nclass Head(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    ),
    "core/acts.py": "import torch\n\n\ndef act(x):\n    return torch.relu(x)\n",
    "net.py": (
        "import io\nimport torch\nfrom models import Net\n\n\ndef make():\n    file = io.BytesIO()\n"
        "    torch.save(Net(), file)\n    file.seek(0)\n"
        "    return torch.load(file, weights_only=False), {'x': torch.ones(2, 4)}\n"
    ),
}
"""As research code looks: packages named as ours are, a checkpoint of a whole model, an import in ``forward``."""


@pytest.mark.parametrize("strict", [False, True])
def test_packages_of_the_users_may_be_named_as_ours_are(tmp_path: Path, host: Host, strict: bool) -> None:
    for name, text in REPOSITORY.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    model = f"{tmp_path / 'net.py'}:make"
    how: dict[str, Any] = {"options": {"strict": strict}, "out": tmp_path / "out"}
    program = load_program(export(model, host=host, **how))
    assert program.agreement is not None
    assert program.agreement.max_abs < 1e-5
    assert set(program.depends["files"]) == {str(tmp_path / name) for name in REPOSITORY if name != "net.py"}
    assert current(resolve(model, **how))
    (tmp_path / "core/acts.py").write_text(REPOSITORY["core/acts.py"].replace("relu", "tanh"))
    assert not current(resolve(model, **how))


def test_any_form_of_a_call_becomes_a_row_of_tensors(tmp_path: Path, host: Host) -> None:
    import torch

    from tests.fixtures.models import good

    folder = export(f"{FIXTURES / 'good.py'}:keywords", "qs8", out=tmp_path, host=host)
    program = load_program(folder)
    # In the order of the call: parts, x, more.
    assert [one.shape for one in program.inputs] == [(3, 8), (3, 8), (3, 6), (4,), (8,)]
    assert ["x".join(size.text for size in sizes) for sizes in program.sizes[:3]] == ["1..6x8", "1..6x8", "1..6x6"]
    assert (program.sizes[0][0].symbol, program.sizes[3][0].text) == (program.sizes[2][0].symbol, "4")
    module, call, *_ = good.keywords()
    with torch.no_grad():
        want = module(**call)
    for file, right in zip(program.outputs, (want["scores"], want["again"][0]), strict=True):
        assert numpy.abs(numpy.load(folder / file.file) - right.numpy()).max() <= 0.5


@pytest.mark.build
def test_the_least_and_the_greatest_size_are_checked_on_the_device(
    tmp_path: Path, host: Host, bundle: Bundle, bench: Device, dist: Path
) -> None:
    folder = export(f"{FIXTURES / 'good.py'}:belonging", out=tmp_path, host=host)
    least, greatest = load_program(folder).cases
    assert [one.shape for one in least.inputs] == [(2, 3), (2, 3), (4,)]
    assert [one.shape for one in greatest.inputs] == [(8, 3), (8, 3), (16,)]
    result = deploy(bench, bundle, folder, listeners=[])
    assert [(one.name, one.shape) for one in result.outputs] == [
        ("output0", (4, 3)), ("output1", (8,)), ("output0 (least)", (2, 3)), ("output1 (least)", (4,)),
        ("output0 (greatest)", (8, 3)), ("output1 (greatest)", (16,)),
    ]  # fmt: skip
    assert result.verdict == "identical"
    # A wrong element at one size alone.
    file = folder / greatest.outputs[1].file
    spoilt = numpy.load(file)
    spoilt[15] += 1
    numpy.save(file, spoilt)
    wrong = deploy(bench, bundle, folder, listeners=[])
    assert [one.name for one in wrong.outputs if one.verdict == "differs"] == ["output1 (greatest)"]
    given = Settings(inputs=tuple(folder / one.file for one in least.inputs))
    assert deploy(bench, bundle, folder, given, listeners=[]).outputs[2:] == ()


def test_a_sample_of_another_form_is_refused(tmp_path: Path, host: Host) -> None:
    with pytest.raises(ExportError, match="other constants than the example inputs"):
        export(f"{FIXTURES / 'good.py'}:positions", out=tmp_path, host=host)


@pytest.mark.parametrize(("scheme", "error"), [("fp32", 1e-6), ("qs8", 0.03)])
def test_a_state_is_kept_over_executions(tmp_path: Path, host: Host, scheme: str, error: float) -> None:
    import torch

    from tests.fixtures.models import stateful

    folder = export(f"{FIXTURES / 'stateful.py'}:gru", scheme, out=tmp_path, host=host)
    program = load_program(folder)
    assert program.state == ("state",)
    assert sorted(program.executions) == list(range(1, 12))
    assert program.executions[1] == program.outputs
    module, inputs = stateful.gru()
    previous = None
    for number, (file,) in sorted(program.executions.items()):
        with torch.no_grad():
            want = module(*inputs).numpy()
        got = numpy.load(folder / file.file)
        assert numpy.abs(got - want).max() < error, number
        assert previous is None or not numpy.array_equal(got, previous)
        previous = got
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit


@pytest.mark.build
def test_a_deploy_compares_the_same_execution(
    tmp_path: Path, host: Host, bundle: Bundle, bench: Device, dist: Path
) -> None:
    folder = export(f"{FIXTURES / 'stateful.py'}:gru", out=tmp_path, host=host)
    for settings, execution in ((DEFAULT, 11), (Settings(num_executions=1, warmup=0), 1)):
        result = deploy(bench, bundle, folder, settings, listeners=[])
        assert result.verdict in ("identical", "agrees")
        assert (result.program.execution, result.program.state) == (execution, ("state",))
    with pytest.raises(UsageError, match="has no execution 51") as caught:
        deploy(bench, bundle, folder, Settings(num_executions=50), listeners=[])
    assert caught.value.hint == "--num-executions 10 --warmup 1"
    # The first execution's reference is not the eleventh's.
    (folder / "output0-11.npy").write_bytes((folder / "output0.npy").read_bytes())
    assert deploy(bench, bundle, folder, listeners=[]).verdict == "differs"


def test_strict_mode_is_tried_where_the_exporter_needs_it(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    make: Any = exporting._made

    def failing(*arguments: Any, strict: bool) -> Any:
        tried.append(strict)
        if not strict:
            raise ExportError("Lowering failed.", "AssertionError: expected compiled_fn to be GraphModule, got ...")
        return make(*arguments, strict=strict)

    monkeypatch.setattr(exporting, "_made", failing)
    program = load_program(export("linear", out=tmp_path, host=host))
    assert tried == [False, True]
    assert program.options == {"strict": True}


FILE = FIXTURES / "quantized.py"

Exporter = Callable[..., Program]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def exported(out: Path, host: Host) -> Exporter:
    def call(function: str, scheme: str, **options: Any) -> Program:
        return load_program(export(f"{FILE}:{function}", scheme, options=options, out=out, host=host))

    return call


@pytest.mark.parametrize(("function", "words"), [("converted", "one rounding flipped"), ("by_torchao", "dynamic int8")])
def test_a_model_that_its_owner_has_quantized(exported: Exporter, function: str, words: str) -> None:
    program = exported(function, "fp32")
    whole = exported("plain", "fp32")
    assert program.quantization.scheme == "own"
    assert words in program.tolerance.why
    assert program.size < whole.size / 2, "its weights are whole numbers"
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.tolerance.atol
    with pytest.raises(ExportError, match="quantized already") as caught:
        exported(function, "qs8")
    assert caught.value.hint.startswith("--scheme fp32")


@pytest.mark.build
def test_a_model_trained_with_fake_quantization(exported: Exporter, lean: Bundle, out: Path, tmp_path: Path) -> None:
    program = exported("trained", "fp32")
    assert (program.quantization.scheme, program.delegates, program.undelegated) == ("own", 1, ())
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.tolerance.atol, "its dropout left things out"
    assert numpy.abs(_off(lean, out / program.name, tmp_path)).max() <= program.tolerance.atol
    with pytest.raises(ExportError, match="prepared for quantization, but not quantized") as caught:
        exported("half_way", "fp32")
    assert "convert_pt2e" in caught.value.hint


def _off(lean: Bundle, folder: Path, to: Path) -> Any:
    """How far lean's first output is from the reference."""
    found = outputs_of(lean, folder / "model.pte", [folder / "input0.npy"], to)
    return found[0] - numpy.load(folder / "output0.npy")


def test_an_own_quantizer(exported: Exporter) -> None:
    program = exported("plain", "qs8", quantizer=f"{FILE}:quantizer")
    assert program.quantization.skipped == ()
    assert program.delegates == 1
    with pytest.raises(ExportError, match="returned tuple, not a quantizer"):
        exported("plain", "qs8", quantizer=f"{FILE}:plain")
    with pytest.raises(ExportError, match="Static quantization failed") as caught:
        exported("plain", "qs8", quantizer=f"{FILE}:faulty")
    assert "in annotate: return model.nowhere" in caught.value.cause


def test_four_bits_for_each_channel_and_other_groups(exported: Exporter) -> None:
    eight, four = exported("plain", "qd8_qc8w"), exported("plain", "qd8_qc8w", layers="*:int4")
    blocks, larger = exported("plain", "qd8_qb4w"), exported("plain", "qd8_qb4w", group=64)
    # Of 64 input features a group of 64 is a whole channel.
    assert four.size == larger.size < blocks.size < eight.size
    for program in (eight, four, blocks, larger):
        assert program.agreement is not None
        assert 0 < program.agreement.max_abs <= program.agreement.limit
        assert {one.name for one in program.undelegated} == set()


@pytest.mark.build
def test_a_program_that_upstreams_runtime_gets_wrong_has_pytorchs_reference(
    exported: Exporter, lean: Bundle, out: Path, tmp_path: Path
) -> None:
    program = exported("fork", "qd8_qc8w")
    assert program.reference_engine.startswith("torch ")
    assert any("gets the program wrong" in line for line in program.warnings)
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit
    folder = out / program.name
    assert numpy.abs(_off(lean, folder, tmp_path)).max() <= program.tolerance.atol
    # One activation may round to the next integer: its step, times a weight below 1/8.
    given = numpy.load(folder / "input0.npy")
    step = (given.max() - given.min()) / 255
    assert program.tolerance.atol == pytest.approx(step / 8, rel=0.05)


def test_a_layer_may_stay_in_float(exported: Exporter) -> None:
    all_of_them, some = exported("plain", "qd8_qc8w"), exported("plain", "qd8_qc8w", layers="0:float")
    assert 2 * 64 * 64 < some.size - all_of_them.size < 4 * 64 * 64
    assert some.quantization.skipped == ()
    assert not [one for one in some.warnings if "not quantized" in one]
    assert all_of_them.name != some.name


def test_layers_in_eight_and_in_four_bits(exported: Exporter) -> None:
    mixed = exported("plain", "qd8_qb4w", layers="2:int8")
    assert exported("plain", "qd8_qb4w").size < mixed.size < exported("plain", "qd8_qc8w").size
    assert numpy.prod(mixed.outputs[0].shape) == 32


MODEL = f"{FIXTURES / 'stateful.py'}:methods"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A method that fills a state, and one that computes with it and changes it."""
    return export(MODEL, out=tmp_path_factory.mktemp("methods"))


@pytest.mark.build
@pytest.mark.parametrize("engine", ["lean", "executorch"])
def test_a_method_finds_what_the_one_before_left(folder: Path, bench: Device, dist: Path, engine: str) -> None:
    bundle = lend_bundle(dist, bench.target, engine)
    program = load_program(folder)
    assert (program.method, [one.name for one in program.before]) == ("use", ["put"])
    assert program.agreement is not None
    assert program.agreement.max_abs <= program.agreement.limit
    result = deploy(bench, bundle, folder, listeners=[])
    assert [one.name for one in result.outputs] == ["output0", "output0 (put)"]
    assert result.verdict in ("identical", "agrees")
    (ran,) = result.methods
    assert (ran.name, ran.latency_ms > 0) == ("put", True)
    alone = deploy(bench, bundle, folder, Settings(method="put", num_executions=1, warmup=0), listeners=[])
    assert (alone.verdict, alone.program.method, len(alone.outputs)) == ("identical", "put", 1)


@pytest.mark.build
@pytest.mark.parametrize("scheme", ["qd8_qc8w", "qs8"])
def test_methods_in_a_scheme_agree_with_the_host(bench: Device, dist: Path, tmp_path: Path, scheme: str) -> None:
    folder = export(MODEL, scheme, out=tmp_path)
    program = load_program(folder)
    assert program.quantization.skipped == ()
    assert not [one for one in program.warnings if "calibrated on" not in one]
    for engine in ("lean", "executorch"):
        result = deploy(bench, lend_bundle(dist, bench.target, engine), folder, listeners=[])
        assert len(result.outputs) == 2
        assert result.verdict in ("identical", "agrees")


@pytest.mark.build
def test_what_one_method_gets_wrong_is_seen(
    folder: Path, lean: Bundle, bench: Device, dist: Path, tmp_path: Path
) -> None:
    changed = shutil.copytree(folder, tmp_path / folder.name)
    other = numpy.load(changed / "output0-put.npy")
    other[0, 0] += 1
    numpy.save(changed / "output0-put.npy", other)
    result = deploy(bench, lean, changed, listeners=[])
    assert [one.name for one in result.outputs if one.verdict == "differs"] == ["output0 (put)"]
    prompt = numpy.load(changed / "input0-put.npy")
    numpy.save(changed / "input0-put.npy", prompt + 1)
    assert deploy(bench, lean, changed, listeners=[]).outputs[0].verdict == "differs", "another state"
    with pytest.raises(UsageError, match="has no execution 11"):
        deploy(bench, lean, folder, Settings(method="put"), listeners=[])


@pytest.mark.build
@pytest.mark.parametrize(
    ("methods", "what"),
    [
        ("Methods(first=(x,), third=(x,))", "has no method third"),
        ("Methods(first=(x,))", "fewer than two methods"),
        ("Methods(first=(x,), second=())", "method second, gives example inputs without a tensor"),
    ],
)
def test_methods_that_cannot_be_exported_are_named(tmp_path: Path, methods: str, what: str) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom models.methods import Methods\n\n\nclass Both(torch.nn.Module):\n"
        "    def first(self, x):\n        return x + 1\n\n    def second(self, x):\n        return x - 1\n\n\n"
        f"def make():\n    x = torch.ones(2)\n    return Both(), {methods}\n"
    )
    with pytest.raises(ExportError, match=what):
        export(f"{tmp_path / 'net.py'}:make", out=tmp_path / "out")


@pytest.mark.build
def test_a_method_that_only_reads_the_state_sees_it_or_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom models.methods import Methods\n\n\nclass Scales(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('scale', torch.ones(4, 4))\n\n"
        "    def put(self, x):\n        self.scale.copy_(x)\n        return x + 0\n\n"
        "    def scaled(self, x):\n        return torch.nn.functional.linear(x, self.scale)\n\n\n"
        "def make():\n    x = torch.full((4, 4), 3.0)\n    return Scales(), Methods(put=(x,), scaled=(x,))\n"
    )
    with pytest.raises(ExportError, match=r"scaled only reads .*scale, which another method changes") as caught:
        export(f"{tmp_path / 'net.py'}:make", out=tmp_path / "out")
    assert "--partitioners none" in caught.value.hint
    folder = export(f"{tmp_path / 'net.py'}:make", partitioners=["none"], out=tmp_path / "out")
    assert numpy.load(folder / "output0.npy").ravel().tolist() == [36.0] * 16
