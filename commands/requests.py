"""The commands' options, with their help: each class is one command, as `tasks` has them."""

from __future__ import annotations

import shlex
from pathlib import Path

from commands.shared import (
    ACCURACY,
    CELLS,
    COMPARED,
    DEVICE,
    ENGINES,
    FAILS,
    HOW,
    REPORTS,
    SAMPLES,
    SETTING,
    SEVERAL_ENGINES,
    VARIANTS,
    WHAT,
    WHERE,
    Chat,
    Limited,
    Measured,
    Sampled,
    device_names,
    model_names,
    scheme_names,
    target_names,
)
from core.cli.request import Reported, one_of, option, real, setting, whole
from core.errors import UsageError


class Targets(Reported):
    """List what Slipway builds for: every target, its ISA floor, its engines and what each still needs."""


class Doctor(Reported):
    """Check this machine: what works, what is missing, and the one command that fixes it."""


class Build(Reported):
    """Build the runtime for a target and leave a bundle in dist/<target>/<engine>/.

    A build with nothing to do ends at once. Compilers, system libraries and emulators are fetched as
    needed, without root, into a cache outside the checkout. --packages leaves XNNPACK, cpuinfo, pthreadpool and
    FXdiv as libraries in dist/<target>/native/ instead; --sdk leaves libslipway in dist/<target>/sdk/, and
    --wheel also its Python package in dist/wheels/. --sdk --engine leaves upstream's runtime for your own programs in
    dist/<target>/sdk-<engine>/. --aar leaves an archive for Android apps in dist/android/.
    --ops-from leaves a smaller bundle, for some programs only, in dist/<target>/lean-<programs>/.
    --profiles builds nothing: it writes the Conan profiles of Slipway's own builds into a folder of yours, one for each
    target and one for this machine, so that packages from a remote fit them.

    Example: ./inv build --target linux-arm64
    """

    letters = False
    resumes = "the same command again; what was compiled is kept"

    target: str = option(
        "what to build for; ./inv targets lists them (default: linux-x86_64)", setting=True, names=target_names
    )
    engine: str = option(
        "which runtime to build (default: the target's own default; without one, its native packages)",
        setting=True, names=ENGINES,
    )  # fmt: skip
    toolchain: str = option(
        "which compilers: zig, gnu or ndk (default: the target's own default)",
        setting=True, names=one_of("zig", "gnu", "ndk"),
    )  # fmt: skip
    ops_from: str = option(
        "link only what these programs need (comma-separated files or folders; the engine lean, --sdk)"
    )
    packages: bool = option("only the native packages: XNNPACK and what it needs, from source", False)
    sdk: bool = option(
        "for your own programs: libraries, headers, CMake files, and an archive; libslipway, or what --engine names",
        False,
    )
    wheel: bool = option("the same for Python: the SDK, and a wheel in dist/wheels/", False)
    aar: bool = option(
        "libslipway for Android apps, in dist/android/, for the targets named or all of Android's; needs an NDK", False
    )
    profiles: str = option("only Conan's profiles, into this folder, for the targets named or all that can be built")
    sources: str = setting(
        "origin of the sources: debian, git or auto (default: auto, Debian's archive if this machine can read it)"
    )
    force: bool = option("build even if nothing changed", False)
    allow_newer_glibc: str = setting(
        "yes: accept a bundle that needs newer C and C++ libraries than the target promises"
    )

    @property
    def named(self) -> str:
        """The targets that the command line itself names."""
        return self.target if "target" in self.typed else ""

    def _check(self) -> None:
        kinds = {"engine", "ops_from", "packages", "sdk", "wheel", "aar"}
        if self.profiles and (wrong := sorted(self.typed & {*kinds, "force"})):
            raise UsageError(
                f"--profiles cannot be used with --{wrong[0].replace('_', '-')}.", "it builds nothing",
                f"./inv build --profiles {self.profiles}",
            )  # fmt: skip
        if self.aar and self.typed & (kinds - {"aar"}):
            raise UsageError(
                "--aar cannot be used with --engine, --packages, --sdk, --wheel or --ops-from.", "", "./inv build --aar"
            )
        if (self.sdk or self.wheel) and "packages" in self.typed:
            raise UsageError("--sdk and --wheel cannot be used with --packages.", "", "./inv build --sdk")
        if (self.wheel or (self.sdk and self.ops_from)) and self.typed & {"engine"} and self.engine != "lean":
            raise UsageError(
                f"--wheel, and --sdk with --ops-from, cannot be used with --engine {self.engine}.",
                "they are for libslipway, which has the engine lean", "./inv build --sdk",
            )  # fmt: skip
        if self.wheel and self.ops_from:
            raise UsageError(
                "--wheel cannot be used with --ops-from.", "a wheel has all operators", "./inv build --wheel"
            )


class Export(Reported):
    """Turn a PyTorch model into a program (.pte or .onnx) with reference inputs and outputs.

    The result is dist/programs/<model>-<scheme>/: model.pte, model.etrecord, inputs and outputs as .npy
    (computed by upstream's runtime here) and program.json, which says what was delegated, what was not, and why.
    With --format onnx it is <model>-<scheme>-onnx/ with model.onnx. The first export installs torch and the
    other packages that it needs into .venv.

    Example: ./inv export --model mobilenet_v2 --scheme qs8
    """

    letters = False
    resumes = "the same command again; programs that were finished are kept"

    model: str = option(
        "a model of the zoo (./inv models lists them), 'all', or yours as path/to/file.py:make_model",
        setting=True, names=model_names, group="What to export",
    )  # fmt: skip
    scheme: str = option(
        "how it is quantized (./inv models lists the schemes), or 'all': each one that suits the model",
        setting=True, names=scheme_names, group="What to export",
    )  # fmt: skip
    format: str = option(
        "pte for ExecuTorch, onnx for ONNX Runtime (fp32 and qs8) (default: pte)",
        "pte", names=one_of("pte", "onnx"), group="What to export",
    )  # fmt: skip
    samples: str = option(SAMPLES, group="What to export")
    partitioners: str = option(
        "comma-separated, in priority order: xnnpack or FILE.py:FUNCTION; 'none': no delegate (default: xnnpack). "
        "Several lists with ';' between them make a program each, side by side: 'xnnpack;none'",
        group="How to divide it",
    )
    options: str = option(
        "further export options as KEY=VALUE;KEY=VALUE (docs/models.md lists them)", group="How to divide it"
    )
    force: bool = option("export even if nothing changed", False, group="How to run the export")
    jobs: int = whole(
        "how many programs to export at once; each takes 1 to 3 GB of memory (default: 1)", 1, 1, **SETTING
    )
    json: bool = option("print the program's description as JSON", False, group="What is printed")


class Models(Reported):
    """List the model zoo: each model, its schemes, and which are exported already.

    --add installs packages that a model's file imports, in versions that fit the exporter's torch, into a folder of the
    cache; the exporter's own packages stay as they are. requirements.txt beside the model's file gets their names and
    versions, and the next export finds them there.

    Example: ./inv models --add timm,torchvision --model net.py
    """

    letters = False

    add: str = option("comma-separated names of the package index, with or without versions: timm,torchvision==0.28.0")
    model: str = option("with --add: the model's file; requirements.txt beside it gets the packages")

    def _check(self) -> None:
        if self.model and not self.add:
            raise UsageError("--model goes with --add.", "the list has all models", "./inv models")


class Deploy(Limited, Sampled):
    """Build, export, push to a device, run there, and check the outputs against the host.

    It does only the steps that are not done yet: builds the bundle if needed, exports the program if needed, boots a
    virtual device that is down, uploads the files that the device lacks. Foreseeable failures are reported before
    anything is uploaded. Exit code 0 means that the outputs agree.

    Example: ./inv deploy --device pi --model mobilenet_v2
    """

    letters = False
    resumes = "the same command again; what was built, exported and uploaded is kept"

    model: str = option(
        "a model of the zoo, yours as path/to/file.py:make_model, or a program: a .pte or .onnx file, or a folder that "
        "./inv export left (default: mobilenet_v2)",
        setting=True, names=model_names, group=WHAT,
    )  # fmt: skip
    program: str = option("the same as --model, for a program", group=WHAT)
    scheme: str = option("how it is quantized (default: fp32)", setting=True, names=scheme_names, group=WHAT)
    partitioners: str = option(
        "comma-separated partitioners of the export; none: no delegate (default: xnnpack)", group=WHAT
    )
    options: str = option("options of the export, as KEY=VALUE;KEY=VALUE (docs/models.md)", group=WHAT)
    samples: str = option(SAMPLES, group=WHAT)
    data: str = option(
        "with a program: the .ptd file of its weights (default: the one beside it that has them)", group=WHAT
    )
    method: str = option("which of the program's methods (default: forward)", group=WHAT)
    inputs: str = option(
        "with a program: comma-separated .npy files to feed it, or shapes to fill with ones, as 1x3x224x224,1x8; to "
        "shapes, open sizes of an .onnx are fixed",
        group=WHAT,
    )
    expected: str = option("with a program: comma-separated .npy files to compare the outputs with", group=WHAT)
    device: str = DEVICE
    target: str = option("instead of the device's own target", names=target_names, group=WHERE)
    engine: str = option(
        "which runtime (default: by the program's format, then the target's own default)",
        setting=True, names=ENGINES, group=WHERE,
    )  # fmt: skip
    bundle: str = option(
        "instead of the target's full bundle: a folder, or a name in dist/<target>, as lean-mlp-fp32", group=WHERE
    )
    provider: str = option(
        "onnxruntime: xnnpack or cpu (default: xnnpack)", names=one_of("xnnpack", "cpu"), group=WHERE
    )
    prompt: str = option("text that a language model answers", group=HOW)
    prompt_file: str = option("the same from a file, in UTF-8", group=HOW)
    warmup: str = option(
        "executions before the timed ones (default: 1; 0 on an emulated device)", setting=True, group=HOW
    )
    cpu_threads: str = option("threads on the device, 0 for its physical cores (default: 0)", setting=True, group=HOW)
    cooldown: str = option("degrees Celsius to which the device may cool down before the run", setting=True, group=HOW)
    cpu_affinity: str = option("cores to keep the run to, as 0,2-3", setting=True, group=HOW)
    profile: bool = option("also show the time by operator", False, group=HOW)
    etdump: bool = option(
        "also bring back an ETDump (run.etdp) for ./inv inspect and upstream's Inspector", False, group=HOW
    )
    values: bool = option(
        "also bring back what each operator gave (run.values), for ./inv inspect --values; one execution",
        False, group=HOW,
    )  # fmt: skip

    def _check(self) -> None:
        Sampled._check(self)
        _check_program(self)
        if ";" in self.partitioners:
            raise UsageError(
                "A deploy runs one program, and --partitioners has several lists.",
                "they make a program each",
                f"./inv matrix --variants {shlex.quote(' '.join(self.partitioners.replace(' ', '').split(';')))}",
            )
        if self.bundle and "engine" in self.typed:
            raise UsageError("--bundle cannot be used with --engine.", "the bundle sets it", "leave it out")


class Matrix(Limited):
    """Run programs on devices with engines, as many as an expression selects, and report on all of it.

    Builds every bundle and exports every program once, then serves the devices in parallel. The reports are in
    dist/matrix/NAME: report.html, junit.xml, matrix.json. Exit code 0: every cell passed.

    Example: ./inv matrix --only 'pi & mlp*'
    """

    letters = False
    resumes = "the same command with --resume, which keeps the cells that passed"

    only: str = option(
        "cells to take, as 'linux-arm64 & (mobilenet* | mlp-qs8) & !phone' (docs/matrix.md)", group=CELLS
    )
    devices: str = option(
        "comma-separated names or patterns (default: all of the inventory)", names=device_names, group=CELLS
    )
    engines: str = option(
        "comma-separated names or patterns, 'default' or 'all' (default: each target's own default)",
        names=SEVERAL_ENGINES, group=CELLS,
    )  # fmt: skip
    models: str = option(
        "comma-separated models of the zoo, patterns, 'all', or yours as file.py:function (default: small)",
        names=model_names, group=CELLS,
    )  # fmt: skip
    schemes: str = option(
        "comma-separated quantization schemes, patterns, or 'all' (default: fp32,qs8)",
        names=scheme_names, group=CELLS,
    )  # fmt: skip
    variants: str = option(VARIANTS, group=CELLS)
    shard: str = option(
        "run only one part of the cells, as 2/5: the second of five; --merge makes one report of all parts", group=CELLS
    )
    list: bool = option(
        "only list the cells that would run, and the impossible ones with the reason", False, group=CELLS
    )
    print_matrix: bool = option("only print the jobs as JSON for GitHub Actions' fromJson", False, group=CELLS)
    rounds: int = whole(
        "times that each cell runs on a real device, in turns (default: 5 with a baseline, else 1)", 1, 0, group=HOW
    )
    jobs: int = whole("devices served at once (default: as many as there are cores here, at least 2)", 1, 0, **SETTING)
    resume: bool = option(
        "keep the cells of that folder that passed and whose bundle, program and device are unchanged",
        False, group=FAILS,
    )  # fmt: skip
    name: str = option("the reports' folder, dist/matrix/NAME (default: default)", "default", group=REPORTS)
    baseline: str = option("a baseline to compare with", group=REPORTS)
    fail_on_regression: str = option(
        "the fraction by which a figure may be worse than the baseline, as 10%", group=REPORTS
    )
    save_baseline: str = option("keep the figures in this file if every cell passed", group=REPORTS)
    merge: str = option(
        "run nothing: make one report of the matrix.json files (or folders with them) of several jobs", group=REPORTS
    )

    def _check(self) -> None:
        unfit = (
            *("only", "devices", "engines", "models", "schemes"),
            *("variants", "baseline", "fail_on_regression", "list", "print_matrix", "resume", "shard"),
        )
        if wrong := next((name for name in unfit if self.merge and name in self.typed), ""):
            option = f"--{wrong.replace('_', '-')}"
            raise UsageError(
                f"{option} does not go with --merge.", "the jobs have run, and were compared", "leave it out"
            )


class Compare(Measured):
    """Compare a model's quantization schemes: accuracy, size, latency, load time and memory in one table.

    Accuracy is measured on the devices: against the float model's outputs, and with labels against those. The Pareto
    front is marked, and all figures are in dist/matrix/compare-MODEL. Exit code 0: every program agrees with its
    reference.

    Example: ./inv compare --model mobilenet_v2 --devices local,pi
    """

    letters = False

    model: str = option(
        "a model of the zoo, or yours as path/to/file.py:make_model", setting=True, names=model_names, group=COMPARED
    )
    schemes: str = option(
        "comma-separated quantization schemes, or 'all' (default: all that make sense)",
        names=scheme_names, group=COMPARED,
    )  # fmt: skip
    variants: str = option(VARIANTS, group=COMPARED)
    engines: str = option(
        "comma-separated names, 'default' or 'all' (default: each target's own default)",
        names=SEVERAL_ENGINES, group=COMPARED,
    )  # fmt: skip
    devices: str = option("comma-separated names or patterns (default: local)", names=device_names, group=COMPARED)
    samples: str = option(
        "FILE.npz, a folder of pictures or .npy, or FILE.py:FUNCTION (default: the example inputs)", group=ACCURACY
    )
    most: int = whole("how many samples at most (default: 100, and 10 on emulated devices)", 1, 0, group=ACCURACY)
    metric: str = option(
        "FILE.py:FUNCTION, called with all outputs and all labels; it returns a number, more is better", group=ACCURACY
    )
    rounds: int = whole("processes of each program on a real device, in turns (default: 1)", 1, 0, group=HOW)

    def _check(self) -> None:
        model = self.model
        if not model or "," in model or "*" in model or model == "all":
            raise UsageError(
                "A comparison is of one model.", f"--model is {model!r}", "./inv compare --model mobilenet_v2"
            )


class Inspect(Reported):
    """Show where the time of a run went: each operator with its times, module, source line and kernel.

    Reads what ./inv deploy --etdump left (engines executorch and lean), by upstream's readers. Warm-up
    executions are apart from timed ones. With --values it shows how far each operator's results are from PyTorch's,
    and names the first one beyond the tolerance. docs/compare.md explains the columns.

    Example: ./inv inspect local-mlp-fp32-lean --only conv
    """

    letters = False

    run: str = option(
        "a result's name (local-mlp-fp32-lean), its file, its folder, or its ETDump (run.etdp)", positional=True
    )
    only: str = option(
        "only operators with one of these words in name, module, line or kernel, as 'conv* layers.0 portable'"
    )
    etrecord: str = option("the program's ETRecord (default: the one of dist/programs)")
    values: bool = option("compare what each operator gave with PyTorch's (of a deploy with --values)", False)


class Clean(Reported):
    """Remove what builds, exports and runs left in dist/, or old programs and bundles from a device with --device.

    --cache also stops running virtual devices. On a device, current bundles and the ones before them stay. A deploy
    removes old files by itself, within the limits of the inventory.

    Example: ./inv clean --device local --days 7
    """

    cache: bool = option(
        "also remove the cache outside the checkout: downloads, Conan packages, tools, device images", False
    )
    device: str = option("remove from this device instead", names=device_names)
    days: float = real(
        "with --device: what was not used for this number of days (default: the device's store_days, else 30)", 0, -1
    )

    def _check(self) -> None:
        if self.device and self.cache:
            raise UsageError(
                "--device cannot be used with --cache.", "it leaves this machine alone", "./inv clean --cache"
            )
        if "days" in self.typed and not self.device:
            raise UsageError("--days goes with --device.", "", "./inv clean --device pi --days 7")


def program_of(request: Deploy | Chat) -> Path | None:
    """The program's file or folder; ``None`` for a model of the zoo or of the user's own.

    Raises:
        UsageError: --program names something else, or both are given.
    """
    from core.formats.program import DESCRIPTION, FORMATS

    path = Path(request.program or request.model)
    if request.program and "model" in request.typed:
        raise UsageError("--program and --model name two things.", "one of them runs", f"--model {request.model}")
    if path.suffix.lower() in FORMATS or (path / DESCRIPTION).is_file():
        return path
    if request.program:
        raise UsageError(
            f"--program {request.program} is no program.",
            "programs are .pte and .onnx files, and folders of ./inv export",
            f"./inv deploy --model {request.program}",
        )
    return None


def _check_program(request: Deploy) -> None:
    """Refuse what does not go with a program, or with a model."""
    if program_of(request):
        if "samples" in request.typed:
            raise UsageError(
                "--samples does not go with a program.",
                "it was exported already, and calibrated then",
                "./inv export --samples FOLDER",
            )
    elif request.typed & {"inputs", "expected", "data"}:
        raise UsageError(
            "--inputs, --expected and --data go with a program.",
            "a model of the zoo brings its own inputs and reference",
            "./inv deploy --model file.pte --inputs a.npy",
        )
    elif "all" in (request.model, request.scheme):
        raise UsageError("A deploy runs one program, not all.", "", "./inv matrix --models NAMES --schemes all")
