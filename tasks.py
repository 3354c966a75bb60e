"""Slipway's tasks: what ``./inv --list`` shows.

Each task is a few lines that call a package; nothing heavy is imported before a task needs it.
Defaults come from ``invoke.yaml`` or ``INVOKE_SLIPWAY_<NAME>`` (``INVOKE_SLIPWAY_DEVICE=pi ./inv deploy``).
"""

from __future__ import annotations

from typing import Any

import invoke

from commands import offered
from commands.groups import DEPLOY, EXPORT, MATRIX, TASKS
from commands.tasks import compare, profiles
from core.cli import (
    handover,  # noqa: F401  # first of all: another program's Invoke gives way to ./inv
    invoked,
)
from core.cli.task import JSON, Words, task
from deploy.tasks import devices
from verify.tasks import agree, bench, docs, fuzz, inspect, lab, operators, test

DEFAULTS = {
    "target": "linux-x86_64",
    "engine": "",
    "toolchain": "",
    "device": "local",
    "model": "mobilenet_v2",
    "scheme": "fp32",
    "num_executions": "",
    "warmup": "",
    "cpu_threads": 0,
    "timeout": "",
    "wait": "",
    "retries": "",
    "pin_governor": "",
    "cpu_affinity": "",
    "cooldown": "",
}


@task(help={"json": JSON})
def targets(c: Any, json: bool = False) -> None:
    """List what Slipway builds for: every target, its ISA floor, its engines and what each still needs."""
    from toolchains.bundle import report

    report.targets(json)


@task(help={"cache": "read all sealed folders of the cache, and name damaged files", "json": JSON})
def doctor(c: Any, cache: bool = False, json: bool = False) -> None:
    """Check this machine: what works, what is missing, and the one command that fixes it.

    --cache reads the compilers, emulators, system libraries and images in the cache instead (some GB), and compares
    every file with the digest that it had when it was made.
    """
    from toolchains import doctor as room
    from toolchains import seals

    (seals if cache else room).report(json)


@task(
    auto_shortflags=False,  # Invoke would run out of sensible letters
    resumes="the same command again; what was compiled is kept",
    help={
        "target": "what to build for; ./inv targets lists them (default: linux-x86_64)",
        "engine": "which runtime to build (default: the target's own default; without one, its native packages)",
        "toolchain": "which compilers: zig, gnu or ndk (default: the target's own default)",
        "ops-from": "link only what these programs need (comma-separated files or folders; the engine lean, --sdk)",
        "packages": "only the native packages: XNNPACK and what it needs, from source",
        "sdk": "libslipway, for your own programs: libraries, headers, CMake and pkg-config files, and an archive",
        "wheel": "the same for Python: the SDK, and a wheel in dist/wheels/",
        "aar": "libslipway for Android apps, in dist/android/, for the targets named or all of Android's; needs an NDK",
        "all": "every target that this machine can build: native packages, and the default engine's bundle",
        "sources": "origin of the sources: debian, git or auto (Debian's archive if this machine can read it)",
        "force": "build even if nothing changed",
        "allow-newer-glibc": "accept a bundle that needs newer C and C++ libraries than the target promises",
        "json": "print what was built as JSON",
    },
)
def build(
    c: Any,
    target: str = "",
    engine: str = "",
    toolchain: str = "",
    ops_from: str = "",
    packages: bool = False,
    sdk: bool = False,
    wheel: bool = False,
    aar: bool = False,
    all: bool = False,
    sources: str = "auto",
    force: bool = False,
    allow_newer_glibc: bool = False,
    json: bool = False,
) -> None:
    """Build the runtime for a target and leave a bundle in dist/<target>/<engine>/.

    A build with nothing to do ends at once. Compilers, system libraries and emulators are fetched as
    needed, without root, into a cache outside the checkout. --packages leaves XNNPACK, cpuinfo, pthreadpool and
    FXdiv as libraries in dist/<target>/native/ instead; --sdk leaves libslipway in dist/<target>/sdk/, and
    --wheel also its Python package in dist/wheels/. --aar leaves an archive for Android apps in dist/android/.
    --ops-from leaves a smaller bundle, for some programs only, in dist/<target>/lean-<programs>/.

    Example: ./inv build --target linux-arm64
    """
    words = Words(c, locals())
    from commands import build as command

    command.run(words)


@task(
    auto_shortflags=False,
    help={
        "target": "whose native packages to prove (default: linux-x86_64)",
        "all": "every target whose native packages were built",
        "cpu": "one CPU model (cortex-a53), native or wine (default: all that the target has)",
        "quick": "do not look for the names of the kernels that ran",
        "again": "prove also what passed before with the same program and CPU",
        "docs": "also put the results into docs/proofs.md",
        "json": JSON,
    },
)
def prove(
    c: Any,
    target: str = "",
    all: bool = False,
    cpu: str = "",
    quick: bool = False,
    again: bool = False,
    docs: bool = False,
    json: bool = False,
) -> None:
    """Prove that XNNPACK and KleidiAI compute correctly for a target, on every CPU model that runs here.

    Runs dist/<target>/native/bin/xnnpack_proof under QEMU, Wine and natively, and shows which kernels ran.
    Build the packages first: ./inv build --target NAME --packages. Exit code 0 means that nothing failed. What passed
    is kept in dist/sweeps: after an interruption, the same command continues.

    Example: ./inv self.prove --target linux-arm64 --cpu cortex-a76
    """
    from verify import proving as command

    command.run(Words(c, locals()))


@task(
    auto_shortflags=False,  # Invoke would run out of sensible letters
    groups=EXPORT,
    resumes="the same command again; programs that were finished are kept",
    help={
        "model": "a model of the zoo (./inv models lists them), 'all', or yours as path/to/file.py:make_model",
        "scheme": "fp32, fp16, qs8, qd8_qc8w, qd8_qb4w, or 'all': each one that suits the model",
        "format": "pte for ExecuTorch, onnx for ONNX Runtime (fp32 and qs8) (default: pte)",
        "partitioners": "comma-separated, in priority order; 'none': no delegate (default: xnnpack)",
        "per-op-mode": "one delegate for each operator instead of the largest possible ones",
        "config-precisions": "only these go to XNNPACK: fp32, static_quant, dynamic_quant (comma-separated)",
        "samples": "inputs to calibrate with and to check on: a folder of pictures or .npy, FILE.npz, FILE.py:FUNCTION",
        "options": "further export options as KEY=VALUE;KEY=VALUE (docs/models.md lists them)",
        "force": "export even if nothing changed",
        "jobs": "how many programs to export at once; each takes 1 to 3 GB of memory (default: 1)",
        "no-warm": "export in a process of its own, which does not wait in memory for the next export",
        "json": "print the program's description as JSON",
    },
)
def export(
    c: Any,
    model: str = "",
    scheme: str = "",
    format: str = "pte",
    partitioners: str = "",
    per_op_mode: bool = False,
    config_precisions: str = "",
    samples: str = "",
    options: str = "",
    force: bool = False,
    jobs: int = 1,
    no_warm: bool = False,
    json: bool = False,
) -> None:
    """Turn a PyTorch model into a program (.pte or .onnx) with reference inputs and outputs.

    The result is dist/programs/<model>-<scheme>/: model.pte, model.etrecord, inputs and outputs as .npy
    (computed by upstream's runtime here) and program.json, which says what was delegated, what was not, and why.
    With --format onnx it is <model>-<scheme>-onnx/ with model.onnx. The first export installs torch and the
    other packages that it needs into .venv.

    Example: ./inv export --model mobilenet_v2 --scheme qs8
    """
    words = Words(c, locals())
    from commands import export as command

    command.run(words)


@task(help={"json": JSON}, name="list")
def models_list(c: Any, json: bool = False) -> None:
    """List the model zoo: each model, its schemes, and which are exported already."""
    from models.request import report

    report.zoo(json)


@task(
    positional=["packages"],
    help={
        "packages": "comma-separated names of the package index, with or without versions: timm,torchvision==0.28.0",
        "model": "the model's file: requirements.txt beside it gets the packages",
        "json": JSON,
    },
    name="add-package",
)
def models_add(c: Any, packages: str, model: str = "", json: bool = False) -> None:
    """Install packages that a model's file imports, in versions that fit the exporter's torch.

    They go into a folder of the cache; the exporter's own packages stay as they are. requirements.txt beside the
    model's file gets their names and versions, and the next export finds them there.

    Example: ./inv models.add-package timm,torchvision --model net.py
    """
    from commands import export as command

    command.add_packages(packages, model, json)


@task(
    auto_shortflags=False,  # Invoke would run out of sensible letters
    groups=DEPLOY,
    resumes="the same command again; what was built, exported and uploaded is kept",
    help={
        "device": "a device of devices.toml; ./inv devices.list shows them (default: local)",
        "model": "a model of the zoo, yours as path/to/file.py:make_model, or a program file (default: mobilenet_v2)",
        "scheme": "how it is quantized (default: fp32)",
        "program": "instead of --model: a .pte or .onnx file, or a folder that ./inv export left",
        "data": "with --program: the .ptd file of its weights (default: the one beside it that has them)",
        "target": "instead of the device's own target",
        "engine": "which runtime (default: by the program's format, then the target's own default)",
        "toolchain": "which compilers build it (default: the target's own default)",
        "bundle": "instead of the target's full bundle: a folder, or a name in dist/<target>, as lean-mlp-fp32",
        "provider": "onnxruntime: xnnpack or cpu (default: xnnpack)",
        "ort-threads": "onnxruntime: threads of its own pool (default: 1 beside XNNPACK's pool, else --cpu-threads)",
        "ort-spinning": "onnxruntime: let that pool's threads spin while they wait",
        "kleidiai": "lean: on or off, to compute with KleidiAI's kernels or without (default: on)",
        "cpu-features": "lean: features of the CPU to leave unused, as a lesser one would: -sme2,-i8mm or -avx512f",
        "profile": "also show the time by operator",
        "num-executions": "timed executions (default: 10; 1 on an emulated device)",
        "warmup": "executions before the timed ones (default: 1; 0 on an emulated device)",
        "cpu-threads": "threads on the device, 0 for its physical cores (default: 0)",
        "timeout": "seconds from connecting to the last byte (default: the device's own, else 600)",
        "inputs": "with --program: comma-separated .npy files to feed it",
        "input-shapes": "with --program: shapes to fill with ones, as 1x3x224x224,1x8",
        "expected": "with --program: comma-separated .npy files to compare the outputs with",
        "method": "which of the program's methods (default: forward)",
        "partitioners": "comma-separated partitioners of the export; none: no delegate (default: xnnpack)",
        "samples": "inputs to calibrate with and to check on: a folder of pictures or .npy, FILE.npz, FILE.py:FUNCTION",
        "options": "options of the export, as KEY=VALUE;KEY=VALUE (docs/models.md)",
        "generate": "tokens to generate, for a program of models.generating.greedy()",
        "keep-run": "leave the run's folder on the device",
        "no-weights-cache": "lean: pack the weights in this run, and keep none on the device",
        "wait": "seconds to wait while another deploy uses the device (default: 300)",
        "retries": "further attempts after transient errors, such as a broken connection (default: 2)",
        "pin-governor": "CPU frequency governor for the run, such as performance; set back afterwards",
        "cpu-affinity": "cores to keep the run to, as 0,2-3",
        "cooldown": "degrees Celsius to which the device may cool down before the run",
        "etdump": "also bring back an ETDump (run.etdp) for ./inv inspect and upstream's Inspector",
        "values": "also bring back what each operator gave (run.values), for ./inv inspect --values; one execution",
        "json": "print the result as JSON instead of a table",
    },
)
def deploy(
    c: Any,
    device: str = "",
    model: str = "",
    scheme: str = "",
    program: str = "",
    data: str = "",
    target: str = "",
    engine: str = "",
    toolchain: str = "",
    bundle: str = "",
    provider: str = "",
    ort_threads: str = "",
    ort_spinning: bool = False,
    kleidiai: str = "",
    cpu_features: str = "",
    profile: bool = False,
    num_executions: str = "",
    warmup: str = "",
    cpu_threads: str = "",
    timeout: str = "",
    inputs: str = "",
    input_shapes: str = "",
    expected: str = "",
    method: str = "",
    partitioners: str = "",
    samples: str = "",
    options: str = "",
    generate: str = "",
    keep_run: bool = False,
    no_weights_cache: bool = False,
    wait: str = "",
    retries: str = "",
    pin_governor: str = "",
    cpu_affinity: str = "",
    cooldown: str = "",
    etdump: bool = False,
    values: bool = False,
    json: bool = False,
) -> None:
    """Build, export, push to a device, run there, and check the outputs against the host.

    It does only the steps that are not done yet: builds the bundle if needed, exports the program if needed, boots a
    virtual device that is down, uploads the files that the device lacks. Foreseeable failures are reported before
    anything is uploaded. Exit code 0 means that the outputs agree.

    Example: ./inv deploy --device pi --model mobilenet_v2
    """
    words = Words(c, locals(), own=["target"])
    from commands import deploy as command

    command.run(words)


@task(
    auto_shortflags=False,
    groups=MATRIX,
    resumes="the same command with --resume, which keeps the cells that passed",
    help={
        "only": "cells to take, as 'linux-arm64 & (mobilenet* | mlp-qs8) & !phone' (docs/matrix.md)",
        "devices": "comma-separated names or patterns (default: all of the inventory)",
        "engines": "comma-separated names or patterns, 'default' or 'all' (default: each target's own default)",
        "models": "comma-separated models of the zoo, patterns, 'all', or yours as file.py:function (default: small)",
        "schemes": "comma-separated quantization schemes, patterns, or 'all' (default: fp32,qs8)",
        "variants": "other partitioners or options besides the usual ones, with blanks between: 'none group=64'",
        "name": "the reports' folder, dist/matrix/NAME (default: default)",
        "resume": "keep the cells of that folder that passed and whose bundle, program and device are unchanged",
        "shard": "run only one part of the cells, as 2/5: the second of five; --merge makes one report of all parts",
        "list": "only list the cells that would run, and the impossible ones with the reason",
        "print-matrix": "only print the jobs as JSON for GitHub Actions' fromJson",
        "jobs": "devices served at once (default: as many as there are cores here, at least 2)",
        "rounds": "times that each cell runs on a real device, in turns (default: 5 with a baseline, else 1)",
        "baseline": "a baseline to compare with",
        "fail-on-regression": "the fraction by which a figure may be worse than the baseline, as 10%",
        "save-baseline": "keep the figures in this file if every cell passed",
        "merge": "run nothing: make one report of the matrix.json files (or folders with them) of several jobs",
        "history": "add the figures to this file, and plot all that it holds over commits in history.html",
        "kleidiai": "lean: on or off, to compute with KleidiAI's kernels or without (default: on)",
        "cpu-features": "lean: features of the CPU to leave unused, as a lesser one would: -sme2,-i8mm or -avx512f",
        "num-executions": "timed executions (default: 50; 1 on emulated devices)",
        "warmup": "executions before the timed ones (default: 5; 0 on emulated devices)",
        "cpu-threads": "threads on the devices, 0 for their physical cores (default: 0)",
        "timeout": "seconds for one deploy (default: each device's own, else 600)",
        "wait": "seconds to wait while another deploy uses a device (default: 300)",
        "retries": "further attempts after transient errors, such as a broken connection (default: 2)",
        "pin-governor": "CPU frequency governor for the runs, such as performance; set back afterwards",
        "cooldown": "degrees Celsius to which a device may cool down before each run",
        "toolchain": "which compilers build (default: each target's own default)",
        "json": JSON,
    },
)
def matrix(
    c: Any,
    only: str = "",
    devices: str = "",
    engines: str = "",
    models: str = "",
    schemes: str = "",
    variants: str = "",
    name: str = "default",
    resume: bool = False,
    shard: str = "",
    list: bool = False,
    print_matrix: bool = False,
    jobs: str = "",
    rounds: str = "",
    baseline: str = "",
    fail_on_regression: str = "",
    save_baseline: str = "",
    merge: str = "",
    history: str = "",
    kleidiai: str = "",
    cpu_features: str = "",
    num_executions: str = "",
    warmup: str = "",
    cpu_threads: str = "",
    timeout: str = "",
    wait: str = "",
    retries: str = "",
    pin_governor: str = "",
    cooldown: str = "",
    toolchain: str = "",
    json: bool = False,
) -> None:
    """Run programs on devices with engines, as many as an expression selects, and report on all of it.

    Builds every bundle and exports every program once, then serves the devices in parallel. The reports are in
    dist/matrix/NAME: report.html, junit.xml, matrix.json. Exit code 0: every cell passed.

    Example: ./inv matrix --only 'pi & mlp*'
    """
    words = Words(c, locals())
    from commands import matrix as command

    command.run(words)


@task(
    help={
        "cache": "also remove the cache outside the checkout: downloads, Conan packages, tools, device images",
        "env": "also remove .venv",
        "json": JSON,
    }
)
def clean(c: Any, cache: bool = False, env: bool = False, json: bool = False) -> None:
    """Remove what builds, exports and runs left in dist/; running virtual devices are stopped with --cache."""
    from core.files.clean import clean as remove

    if cache:
        from deploy.virtual.machines import stop_all

        stop_all()
    remove(cache=cache, env=env, as_json=json)


@task(help={})
def lock(c: Any) -> None:
    """Write locks/ again from the pins in pyproject.toml: every wheel that may be installed, by its SHA-256.

    For those who change a version. Needs the package index; installs uv into .venv.
    """
    from core.environment.lock import make

    make()


zoo = invoke.Collection("models")
zoo.add_task(models_list, default=True)
zoo.add_task(models_add)
own = invoke.Collection("self", prove, operators, agree, fuzz, bench, docs, lock)
ns = invoke.Collection(
    targets,
    doctor,
    build,
    profiles,
    export,
    zoo,
    deploy,
    matrix,
    compare,
    lab,
    inspect,
    devices,
    test,
    clean,
    own,
)
ns.configure({"slipway": DEFAULTS})
offered.put_in()
invoked.TASKS.update(TASKS)
