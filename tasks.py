"""Slipway's tasks: what ``./inv --list`` shows.

Each task is a few lines that call a room; nothing heavy is imported before a task needs it.
Defaults come from ``invoke.yaml`` or ``INVOKE_SLIPWAY_<NAME>`` (``INVOKE_SLIPWAY_DEVICE=pi ./inv deploy``).
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import invoke

from core.cli import JSON, number, setting, task
from core.errors import UsageError
from deploy.tasks import devices
from verify.tasks import agree, bench, fuzz, operators, test

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
    from toolchains.build import report

    report.targets(json)


@task(help={"cache": "read all of the cache that is sealed, and name what is damaged", "json": JSON})
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
    help={
        "target": "what to build for; ./inv targets lists them (default: linux-x86_64)",
        "engine": "which runtime to build (default: the target's own default; without one, its native packages)",
        "toolchain": "which compilers: zig, gnu, ndk or xcode (default: the target's own default)",
        "ops-from": "link only what these programs need (comma-separated files or folders; the engine lean)",
        "packages": "only the native packages: XNNPACK and what it needs, from source",
        "all": "every target that this machine can build: native packages, and the default engine's bundle",
        "sources": "where sources come from: debian, git or auto (Debian's archive where this machine can read it)",
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
    all: bool = False,
    sources: str = "auto",
    force: bool = False,
    allow_newer_glibc: bool = False,
    json: bool = False,
) -> None:
    """Build the runtime for a target and leave a bundle in dist/<target>/<engine>/.

    A build with nothing to do ends at once. Compilers, system libraries and emulators are fetched as
    needed, without root, into a cache outside the checkout. --packages leaves XNNPACK, cpuinfo, pthreadpool and
    FXdiv as libraries in dist/<target>/native/ instead. --ops-from leaves a smaller bundle, for some programs only,
    in dist/<target>/lean-<programs>/.

    Example: ./inv build --target linux-arm64
    """
    from toolchains.build import report

    if all:
        if target or engine or packages or ops_from:
            raise UsageError(
                "--all goes without --target, --engine, --ops-from and --packages.", "", "./inv build --all"
            )
        from toolchains.build import build_all

        rows = build_all.build_all(setting(c, "toolchain", toolchain), sources, force)
        build_all.report(rows, json)
        return
    name, runtime = setting(c, "target", target), setting(c, "engine", engine)
    if packages or (not runtime and _without_engine(name)):
        from toolchains.build.native import build_native

        report.native(build_native(name, setting(c, "toolchain", toolchain), sources, force), json)
        return
    from toolchains.build.builder import build as build_bundle

    family = setting(c, "toolchain", toolchain)
    selection = _selection(ops_from) if ops_from else None
    built = build_bundle(name, runtime, family, force, allow_newer_glibc=allow_newer_glibc, selection=selection)
    report.bundle(built, json)


@task(
    auto_shortflags=False,
    help={
        "target": "whose native packages to prove (default: linux-x86_64)",
        "all": "every target whose native packages were built",
        "cpu": "one CPU model (cortex-a53), native or wine (default: all that the target has)",
        "quick": "do not look for the names of the kernels that ran",
        "docs": "also put the results into docs/native.json and docs/native.md",
        "json": JSON,
    },
)
def prove(
    c: Any,
    target: str = "",
    all: bool = False,
    cpu: str = "",
    quick: bool = False,
    docs: bool = False,
    json: bool = False,
) -> None:
    """Prove that XNNPACK and KleidiAI compute rightly for a target, on every CPU model that can be had here.

    Runs dist/<target>/native/bin/xnnpack_proof under QEMU, Wine and natively, and tells which kernels ran.
    Build the packages first: ./inv build --target NAME --packages. Exit code 0 means that nothing failed.

    Example: ./inv prove --target linux-arm64 --cpu cortex-a76
    """
    from core.errors import MismatchError
    from verify.prove import prove as room
    from verify.prove import table as prove_table

    if all and (target or cpu):
        raise UsageError("--all goes without --target and --cpu.", "", "./inv prove --all")
    rows = (
        room.prove_all(with_kernels=not quick)
        if all
        else room.prove(setting(c, "target", target), cpu, with_kernels=not quick)
    )
    if docs:
        from verify.docs import add_proofs

        add_proofs(rows)
    prove_table.report(rows, json)
    failed = list(room.failures(rows))
    if failed:
        raise MismatchError(
            "XNNPACK computes wrongly.", "; ".join(failed), "./inv prove --target NAME --cpu CPU", failed
        )


def _selection(programs: str) -> Any:
    """What the programs need, as this machine's own bundle of the engine lean reads them."""
    from core.files import sha256_file
    from core.program import load_program
    from deploy.devices.inventory import host_target
    from deploy.run.needs import describe
    from models.options import words
    from toolchains.build.builder import build as build_bundle
    from toolchains.build.selection import select

    names, files = [], []
    for word in words(programs):
        where = Path(word)
        file = where / load_program(where).file if where.is_dir() else where
        if not file.is_file():
            raise UsageError(f"There is no program {file}.", "", "./inv build --ops-from model.pte")
        names.append(file.parent.name if file.stem == "model" else file.stem)
        files.append(file)
    reader = build_bundle(host_target(), "lean")
    methods = [method for file in files for method in describe(reader, file, sha256_file(file)).methods]
    operators = [name for method in methods for name in method.operators]
    return select(names, operators, [name for method in methods for name in method.backends])


def _without_engine(name: str) -> bool:
    """Whether no engine works on the target yet; said, as its native packages are built instead."""
    from core import console
    from toolchains.targets import get_target

    target = get_target(name)
    if not target.working_engines:
        console.note(f"no engine runs on {name} yet (./inv targets): building its native packages")
    return not target.working_engines


@task(
    auto_shortflags=False,  # Invoke would run out of sensible letters
    help={
        "model": "a model of the zoo (./inv models lists them), 'all', or yours as path/to/file.py:make_model",
        "scheme": "fp32, fp16, qs8, qd8_qc8w, qd8_qb4w, or 'all' that make sense for the model",
        "format": "pte for ExecuTorch, onnx for ONNX Runtime (fp32 and qs8) (default: pte)",
        "partitioners": "comma-separated, the first takes first; 'none': no delegate (default: xnnpack)",
        "per-op-mode": "one delegate for each operator instead of the largest possible ones",
        "config-precisions": "only these go to XNNPACK: fp32, static_quant, dynamic_quant (comma-separated)",
        "options": "further export options as KEY=VALUE;KEY=VALUE (docs/models.md lists them)",
        "force": "export even if nothing changed",
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
    options: str = "",
    force: bool = False,
    json: bool = False,
) -> None:
    """Turn a PyTorch model into a program (.pte or .onnx) with reference inputs and outputs.

    The result is dist/programs/<model>-<scheme>/: model.pte, model.etrecord, inputs and outputs as .npy
    (computed by upstream's runtime here) and program.json, which says what was delegated and what was not,
    and why. With --format onnx it is <model>-<scheme>-onnx/ with model.onnx. The first export installs torch
    and what else it takes into .venv.

    Example: ./inv export --model mobilenet_v2 --scheme qs8
    """
    from models import report
    from models.options import pairs

    chosen = pairs(options)
    if per_op_mode:
        chosen["per_op_mode"] = "true"
    if config_precisions:
        chosen["config_precisions"] = config_precisions
    asked = setting(c, "model", model), setting(c, "scheme", scheme)
    folders = _export(*asked, partitioners, chosen, force, format=format)
    report.programs(folders, json)


@task(help={"json": JSON})
def models(c: Any, json: bool = False) -> None:
    """List the model zoo: each model, its schemes, and which are exported already."""
    from models import report

    report.zoo(json)


@task(
    auto_shortflags=False,  # Invoke would run out of sensible letters
    help={
        "device": "a device of devices.toml; ./inv devices.list shows them (default: local)",
        "model": "a model of the zoo, yours as path/to/file.py:make_model, or a program file (default: mobilenet_v2)",
        "scheme": "how it is quantized (default: fp32)",
        "program": "instead of --model: a .pte or .onnx file, or a folder that ./inv export left",
        "target": "instead of the device's own target",
        "engine": "which runtime (default: by the program's format, then the target's own default)",
        "toolchain": "which compilers build it (default: the target's own default)",
        "bundle": "instead of the target's full bundle: a folder, or a name in dist/<target>, as lean-mlp-fp32",
        "provider": "onnxruntime: xnnpack or cpu (default: xnnpack)",
        "ort-threads": "onnxruntime: threads of its own pool (default: 1 beside XNNPACK's pool, else --cpu-threads)",
        "ort-spinning": "onnxruntime: let that pool's threads spin while they wait",
        "profile": "also show where the time goes, by operator",
        "num-executions": "timed executions (default: 10; 1 on an emulated device, whose times mean nothing)",
        "warmup": "executions before the timed ones (default: 1; 0 on an emulated device)",
        "cpu-threads": "threads on the device, 0 for its physical cores (default: 0)",
        "timeout": "seconds from connecting to the last byte (default: the device's own, else 600)",
        "inputs": "with --program: comma-separated .npy files to feed it",
        "input-shapes": "with --program: shapes to fill with ones, as 1x3x224x224,1x8",
        "expected": "with --program: comma-separated .npy files to compare the outputs with",
        "method": "which of the program's methods (default: forward)",
        "keep-run": "leave the run's folder on the device",
        "wait": "seconds to wait while another deploy uses the device (default: 300)",
        "retries": "further attempts after errors that may pass, such as a broken connection (default: 2)",
        "pin-governor": "CPU frequency governor for the run, such as performance; set back afterwards",
        "cpu-affinity": "cores to keep the run to, as 0,2-3",
        "cooldown": "degrees Celsius to which the device may cool down before the run",
        "etdump": "also bring back an ETDump (run.etdp) for upstream's Inspector",
        "json": "print the result as JSON instead of a table",
    },
)
def deploy(
    c: Any,
    device: str = "",
    model: str = "",
    scheme: str = "",
    program: str = "",
    target: str = "",
    engine: str = "",
    toolchain: str = "",
    bundle: str = "",
    provider: str = "",
    ort_threads: str = "",
    ort_spinning: bool = False,
    profile: bool = False,
    num_executions: str = "",
    warmup: str = "",
    cpu_threads: str = "",
    timeout: str = "",
    inputs: str = "",
    input_shapes: str = "",
    expected: str = "",
    method: str = "",
    keep_run: bool = False,
    wait: str = "",
    retries: str = "",
    pin_governor: str = "",
    cpu_affinity: str = "",
    cooldown: str = "",
    etdump: bool = False,
    json: bool = False,
) -> None:
    """Build, export, push to a device, run there, and check the outputs against the host.

    Does only what is not done yet: builds the bundle if needed, exports the program if needed, boots a
    virtual device that is down, uploads what the device lacks. Everything that can be foreseen to fail
    is reported before a byte is pushed. Exit code 0 means the outputs agree.

    Example: ./inv deploy --device pi --model mobilenet_v2
    """
    from core.bundle import find_bundle
    from core.program import ENGINES, FORMATS, format_at
    from deploy.devices.conditions import governor
    from deploy.devices.inventory import get_device
    from deploy.run import report
    from deploy.run.engine_flags import engine_flags
    from deploy.run.job import check_engine
    from deploy.run.pipeline import deploy as run_on_device
    from models.options import words
    from toolchains.build.builder import build as build_bundle

    wanted = str(setting(c, "model", model))
    if not program and Path(wanted).suffix.lower() in FORMATS:
        program = wanted
    if not program and (inputs or input_shapes or expected):
        raise UsageError(
            "--inputs, --input-shapes and --expected go with --program.",
            "a model of the zoo brings its own inputs and reference",
            "./inv deploy --program file.pte --inputs a.npy",
        )
    if not program and "all" in (wanted, setting(c, "scheme", scheme)):
        raise UsageError("A deploy runs one program, not all.", "", "./inv matrix --models NAMES --schemes all")
    chosen = get_device(setting(c, "device", device))
    executions, warm = (1, 0) if chosen.emulated else (10, 1)
    settings = {
        "num_executions": number("num-executions", setting(c, "num_executions", num_executions), 1, executions),
        "warmup": number("warmup", setting(c, "warmup", warmup), 0, warm),
        "threads": number("cpu-threads", setting(c, "cpu_threads", cpu_threads), 0),
        "timeout": number("timeout", setting(c, "timeout", timeout), 1, 0, whole=False),
        "wait": number("wait", setting(c, "wait", wait), 0, 300, whole=False),
        "pin_governor": governor(setting(c, "pin_governor", pin_governor) or ""),
        "cpu_affinity": str(setting(c, "cpu_affinity", cpu_affinity) or ""),
        "cooldown": number("cooldown", setting(c, "cooldown", cooldown), 1, 0, whole=False),
        "retries": number("retries", setting(c, "retries", retries), 0, 2),
    }
    if bundle and (engine or toolchain):
        raise UsageError("--bundle goes without --engine and --toolchain.", "a bundle has them", "leave them out")
    given = find_bundle(bundle, target or chosen.target) if bundle else None
    runtime = given.manifest.engine if given else setting(c, "engine", engine)
    if program:
        runtime = runtime or ("onnxruntime" if format_at(Path(program)) == "onnx" else "")
        check_engine(Path(program), runtime)
    flags = engine_flags(
        runtime, provider=provider, ort_threads=ort_threads, ort_spinning=ort_spinning, profile=profile
    )
    built = given or build_bundle(target or chosen.target, runtime, setting(c, "toolchain", toolchain))
    compute = None
    if program:
        where = Path(program)
        if ENGINES[built.manifest.engine] == "onnx":
            compute = partial(_compute, where, [Path(name) for name in words(inputs)], input_shapes)
    else:
        (where,) = _export(wanted, setting(c, "scheme", scheme), format=ENGINES[built.manifest.engine])
    result = run_on_device(
        chosen,
        built,
        where,
        etdump=etdump,
        keep_run=keep_run,
        method=method,
        input_shapes=input_shapes,
        inputs=[Path(name) for name in words(inputs)],
        expected=[Path(name) for name in words(expected)],
        engine_flags=flags,
        compute=compute,
        **settings,
    )
    report.result(result, json)


@task(
    auto_shortflags=False,
    help={
        "only": "cells to take, as 'linux-arm64 & (mobilenet* | mlp-qs8) & !phone' (docs/matrix.md)",
        "devices": "comma-separated names or patterns (default: all of the inventory)",
        "engines": "comma-separated names or patterns, 'default' or 'all' (default: each target's own default)",
        "models": "comma-separated models of the zoo, patterns, 'all', or yours as file.py:function (default: small)",
        "schemes": "comma-separated quantization schemes, patterns, or 'all' (default: fp32,qs8)",
        "name": "the reports' folder, dist/matrix/NAME (default: default)",
        "resume": "keep the cells of that folder that passed and whose bundle, program and device are unchanged",
        "list": "only say what would be run, and what cannot be, and why",
        "print-matrix": "only print the jobs as JSON for GitHub Actions' fromJson",
        "jobs": "devices served at once (default: as many as there are cores here, at least 2)",
        "baseline": "a baseline to compare with",
        "fail-on-regression": "how much worse than the baseline a figure may be, as 10%",
        "save-baseline": "keep the figures in this file when all is well",
        "num-executions": "timed executions (default: 50; 1 on emulated devices)",
        "warmup": "executions before the timed ones (default: 5; 0 on emulated devices)",
        "cpu-threads": "threads on the devices, 0 for their physical cores (default: 0)",
        "timeout": "seconds for one deploy (default: each device's own, else 600)",
        "wait": "seconds to wait while another deploy uses a device (default: 300)",
        "retries": "further attempts after errors that may pass, such as a broken connection (default: 2)",
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
    name: str = "default",
    resume: bool = False,
    list: bool = False,
    print_matrix: bool = False,
    jobs: str = "",
    baseline: str = "",
    fail_on_regression: str = "",
    save_baseline: str = "",
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
    from deploy.devices.conditions import governor
    from deploy.matrix import matrix as room
    from deploy.matrix import report as matrix_report
    from models.options import words

    options = {
        "threads": number("cpu-threads", setting(c, "cpu_threads", cpu_threads), 0),
        "timeout": number("timeout", setting(c, "timeout", timeout), 1, 0, whole=False),
        "wait": number("wait", setting(c, "wait", wait), 0, 300, whole=False),
        "retries": number("retries", setting(c, "retries", retries), 0, 2),
        "pin_governor": governor(setting(c, "pin_governor", pin_governor) or ""),
        "cooldown": number("cooldown", setting(c, "cooldown", cooldown), 1, 0, whole=False),
    }
    asked = room.Asked(
        only, words(devices), words(engines), words(models), words(schemes), name, resume,
        number("jobs", jobs, 1, 0),
        number("num-executions", setting(c, "num_executions", num_executions), 1, 0),
        number("warmup", setting(c, "warmup", warmup), 0, -1),
        options, baseline, save_baseline, fail_on_regression,
    )  # fmt: skip
    asked, catalogue = _catalogue(asked)
    if list or print_matrix:
        plan = room.planned(asked, catalogue)
        matrix_report.print_matrix(plan) if print_matrix else matrix_report.planned(plan, json)
        return

    def built(target: str, engine: str) -> Any:
        from toolchains.build.builder import build as build_bundle

        return build_bundle(target, engine, setting(c, "toolchain", toolchain))

    found, folder = room.run(asked, catalogue, built, _export_each)
    matrix_report.report(found, folder, json)
    room.check(found, folder, save_baseline)


def _export_each(programs: Any) -> dict[Any, Any]:
    """The folder of each program of a matrix, or the error that it ended with."""
    from core.errors import SlipwayError

    def jobs(some: Any) -> list[tuple[str, str]]:
        return [(each.source or each.model, each.scheme) for each in some]

    for kind in ("pte", "onnx"):
        same = [each for each in programs if each.format == kind]
        if len(same) > 1:  # at once, for the exporter takes long to load; whose the errors are is seen below
            with contextlib.suppress(SlipwayError):
                _export_jobs(jobs(same), format=kind)

    def folder(program: Any) -> Any:
        try:
            return _export_jobs(jobs([program]), format=program.format)[0]
        except SlipwayError as error:
            return error

    return {program: folder(program) for program in programs}


def _catalogue(asked: Any) -> tuple[Any, list[Any]]:
    """Every program that can be exported, the user's own models of --models included; these by their names in it."""
    from dataclasses import replace

    from deploy.matrix.plan import SCHEMES, Wanted
    from models.request import ONNX_SCHEMES, resolve
    from models.zoo import everything

    found = [
        Wanted(f"{model}-{scheme}{'-onnx' if kind == 'onnx' else ''}", model, scheme, kind)
        for kind in ("pte", "onnx")
        for model, scheme in everything(kind)
    ]
    names = []
    for name in asked.models:
        if ":" not in name and "/" not in name:
            names.append(name)
            continue
        for scheme in asked.schemes or SCHEMES:
            for kind in ("pte", "onnx") if scheme in ONNX_SCHEMES else ("pte",):
                request = resolve(name, scheme, format=kind)
                short = request.name.removesuffix("-onnx").removesuffix(f"-{scheme}")
                found.append(Wanted(request.name, short, scheme, kind, name))
        names.append(short)
    return replace(asked, models=tuple(names)), found


@task(
    help={
        "cache": "also remove the cache outside the checkout: downloads, Conan packages, tools, device images",
        "env": "also remove .venv",
        "json": JSON,
    }
)
def clean(c: Any, cache: bool = False, env: bool = False, json: bool = False) -> None:
    """Remove what builds, exports and runs left in dist/; running virtual devices are stopped with --cache."""
    from core.clean import clean as remove

    if cache:
        from deploy.virtual.machines import stop_all

        stop_all()
    remove(cache=cache, env=env, as_json=json)


@task(help={})
def lock(c: Any) -> None:
    """Write locks/ again from the pins in pyproject.toml: every wheel that may be installed, by its SHA-256.

    For those who change a version. Needs the package index; installs uv into .venv.
    """
    from core.lock import make

    make()


def _export(
    model: str,
    scheme: str,
    partitioners: str = "",
    options: dict[str, str] | None = None,
    force: bool = False,
    format: str = "pte",
) -> list[Path]:
    """Export what ``--model`` and ``--scheme`` ask for."""
    from models.options import words
    from models.zoo import combinations

    return _export_jobs(combinations(model, scheme, format), words(partitioners), options, force, format)


def _export_jobs(
    jobs: list[tuple[str, str]],
    names: tuple[str, ...] = (),
    options: dict[str, str] | None = None,
    force: bool = False,
    format: str = "pte",
) -> list[Path]:
    """Export what is not current, at once; torch is installed and imported only when something is."""
    from models.current import current
    from models.request import resolve

    requests = [resolve(*job, partitioners=names, options=options, format=format) for job in jobs]
    if force or not all(current(request) for request in requests):
        from core.environment import ensure_export, ensure_onnx
        from models.export import export_many

        (ensure_onnx if format == "onnx" else ensure_export)()
        export_many(jobs, partitioners=names, options=options, force=force, format=format)
    return [request.folder for request in requests]


def _compute(file: Path, inputs: list[Path], shapes: str) -> Any:
    """Reference outputs of a user's own ``.onnx``, by this machine's ONNX Runtime; none where it cannot be had."""
    from core.console import note
    from core.environment import ensure
    from core.errors import HostError
    from deploy.run.job import Computed
    from models.onnx import host

    try:
        ensure("onnx")
    except HostError as error:
        note(f"Warning: nothing to compare with: {error.what}")
        return None
    found = host.run(file, inputs=inputs, shapes=shapes)
    return Computed(found.outputs, found.tolerances, found.engine)


ns = invoke.Collection(
    targets,
    doctor,
    build,
    prove,
    export,
    models,
    deploy,
    matrix,
    devices,
    operators,
    agree,
    fuzz,
    test,
    bench,
    clean,
    lock,
)
ns.configure({"slipway": DEFAULTS})
