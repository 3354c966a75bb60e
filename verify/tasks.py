"""The tasks that test and measure Slipway itself."""

from __future__ import annotations

from typing import Any

from commands.groups import LAB
from core.cli.task import JSON, Words, number, setting, task


@task(
    help={
        "fast": "what you run while you work: style, types and unit tests (under two minutes)",
        "all": "everything: also suites that never ran on this machine, and the tests marked long",
        "again": "also integration and fault tests that passed here before with the same inputs",
        "shard": "with --all: one of several parts of about the same length, each for a machine of its own, as 2/6",
        "unit": "unit tests only",
        "lint": "style and types only: ruff, mypy, clang-format and shellcheck",
        "keyword": "only tests whose names match, as pytest's -k; long ones, too",
        "verbose": "a line for every test",
        "times": "run nothing; show where the minutes of the last run went, and what it left out",
        "update": "with --times: keep the figures of the last run of all tests in docs/development.md",
    },
)
def test(
    c: Any,
    fast: bool = False,
    all: bool = False,
    again: bool = False,
    shard: str = "",
    unit: bool = False,
    lint: bool = False,
    keyword: str = "",
    verbose: bool = False,
    times: bool = False,
    update: bool = False,
) -> None:
    """Run the checks and the tests: style, types, unit tests, builds, exports, virtual devices, faults.

    Without options it does what CI does: one whole way of each kind, and every suite that ran on this machine before
    and whose inputs have changed since it passed.

    Example: ./inv test --fast
    """
    from core.errors import UsageError
    from verify.suite import runner
    from verify.suite.times import show

    choice = runner.Choice(
        unit=unit, lint=lint, fast=fast, all=all, again=again, shard=shard, keyword=keyword, verbose=verbose
    )
    if not times:
        if update:
            raise UsageError("--update goes with --times.", "it keeps figures that are there", "./inv test --times")
        runner.run(choice)
        return
    if choice != runner.Choice():
        raise UsageError("--times goes with --update only.", "it runs no test", "./inv test --times")
    show(update=update)


@task(
    help={
        "serve": "then show the site at http://127.0.0.1:PORT/ until Ctrl-C",
        "port": "with --serve (default: 8000)",
        "json": JSON,
    }
)
def docs(c: Any, serve: bool = False, port: str = "", json: bool = False) -> None:
    """Build the documentation as a site in dist/site, which needs no network; a dead link is an error.

    The pages are those of docs/, with README.md as the first one. They open from the disk; search works where a server
    shows them, as --serve does. The first build installs MkDocs and its theme into the cache.

    Example: ./inv self.docs --serve
    """
    from verify.site.build import report

    report(serve, number("port", port, 1, 8000), json)


@task(
    help={
        "runs": "rounds of everything that is measured, in turns (default: 5)",
        "forward": "measure one forward() through libslipway beside upstream's Module, one and two threads",
        "nets": "measure the engine lean beside upstream's, with nets of other projects, one and two threads",
        "operators": "measure single operators of the engine lean beside upstream's, at sizes that nets have",
        "only": "with --nets: names of nets or programs, as 'resnet18,* qs8'; with --operators: words in names of uses",
        "again": "with --nets: export and measure also what was before",
        "device": "measure transfers to this device, against scp or adb push, and a deploy's overhead",
        "mib": "with --device: MiB to send (default: 64)",
        "update": "keep the figures for the docs, if the machine was quiet",
        "json": JSON,
    }
)
def bench(
    c: Any,
    runs: int = 5,
    forward: bool = False,
    nets: bool = False,
    operators: bool = False,
    only: str = "",
    again: bool = False,
    device: str = "",
    mib: int = 64,
    update: bool = False,
    json: bool = False,
) -> None:
    """Measure the engine lean beside upstream's (nets, operators, one forward()), or transfers to a device.

    What --nets exported is kept in dist/nets, what it measured in dist/sweeps: after an interruption, the same command
    continues.
    """
    from core.errors import UsageError

    if (only and not (nets or operators)) or (again and not nets):
        raise UsageError(
            "--only goes with --nets or --operators, --again with --nets.", "they choose programs",
            "./inv self.bench --nets",
        )  # fmt: skip
    if sum((forward, nets, operators, bool(device))) != 1:
        raise UsageError(
            "self.bench measures one thing.", "it is --nets, --operators, --forward or --device NAME",
            "./inv self.bench --nets",
        )  # fmt: skip
    rounds = number("runs", runs, 1)
    if device:
        from verify.bench.transfer import report as report_transfers

        report_transfers(device, rounds, number("mib", mib, 1), json, update)
    elif nets:
        from verify.nets.report import run as run_nets

        run_nets(rounds, only, again, json, update)
    elif operators:
        from verify.bench.operators import run as run_operators

        run_operators(rounds, [word for word in only.split(",") if word], json, update)
    else:
        from verify.bench.forward import run as run_forward

        run_forward(rounds, json, update)


@task(
    help={
        "minutes": "how long (default: 10)",
        "sweep": "change every number of the zoo's programs instead, one at a time, and try each file",
        "form": "with --sweep: sanitized, guarded or shipped (default: all three)",
        "program": "with --sweep: names of the zoo's programs, as 'mlp-*,conv-qs8' (default: all)",
        "every": "with --sweep: try each N-th file only (default: 1)",
        "again": "with --sweep: also what was tried before with the same program and engine",
        "json": JSON,
    }
)
def fuzz(
    c: Any,
    minutes: str = "10",
    sweep: bool = False,
    form: str = "",
    program: str = "",
    every: int = 1,
    again: bool = False,
    json: bool = False,
) -> None:
    """Try damaged .pte files on the engine lean: by chance, or every number of every program with --sweep.

    By chance is libFuzzer's, under address and undefined-behaviour sanitizers; it needs Debian's clang and
    libclang-rt-dev on this machine, as the sweep's form sanitized does. The corpus is kept in the cache. What the sweep
    tried is kept in dist/sweeps: after an interruption, the same command continues. Exit code 0 means that nothing
    crashed, leaked, hung or was refused without a message.

    Example: ./inv self.fuzz --sweep --form shipped --program 'mlp-*'
    """
    if sweep:
        from verify.fuzz.sweeping import run as run_sweep

        run_sweep(form, program, number("every", every, 1), json, again)
        return
    if form or program or every != 1 or again:
        from core.errors import UsageError

        raise UsageError(
            "--form, --program, --every and --again go with --sweep.", "without it files are chosen by chance",
            "./inv self.fuzz --sweep",
        )  # fmt: skip
    from verify.fuzz.fuzzing import run

    run(number("minutes", minutes, 0, whole=False), json)


@task(
    help={
        "target": "the bundle's target, emulated unless it is this machine's (default: linux-x86_64)",
        "together": "many forms in one model: quicker if the runner is emulated",
        "only": "only forms whose names hold this text, as conv-2d",
        "again": "run also forms that were run before with the same bundle",
        "update": "keep what was seen in docs/onnx.md",
        "json": JSON,
    }
)
def operators(
    c: Any,
    target: str = "",
    together: bool = False,
    only: str = "",
    again: bool = False,
    update: bool = False,
    json: bool = False,
) -> None:
    """Run every operator of ONNX Runtime's XNNPACK provider, in each form, against the CPU provider.

    Results are kept in dist/sweeps, form by form: after an interruption, the same command continues.

    Example: ./inv self.operators --target linux-arm64
    """
    from verify.operators.onnx import run

    run(setting(c, "target", target), json, update, only, together, again)


@task(
    help={
        "target": "the bundle's target, or all: every target that was built (default: linux-x86_64)",
        "cpu": "only on this CPU model of the target's, native or wine (default: on all)",
        "program": "only programs of these names, as llama or 'mlp q*,conv fp32' (default: the zoo and all others)",
        "again": "run also what was run before with the same program and runner",
        "sound": "compare the sound programs of upstream's tests and of ours instead; --program: parts of their ids",
        "jobs": "with --sound: processes that make the programs (default: one a core, at most 4)",
        "kept": "with --sound: only programs that were made here before; none is made now",
        "sample": "with --sound: one program of every N, always the same ones (default: 1, all)",
        "update": "keep what was seen in docs/proofs.md",
        "json": JSON,
    }
)
def agree(
    c: Any,
    target: str = "",
    cpu: str = "",
    program: str = "",
    again: bool = False,
    sound: bool = False,
    jobs: int = 0,
    kept: bool = False,
    sample: int = 1,
    update: bool = False,
    json: bool = False,
) -> None:
    """Run programs on the lean engine on every CPU model that runs here, and compare with upstream's runtime.

    Results are kept in dist/sweeps, one comparison at a time: after an interruption, the same command continues.

    Example: ./inv self.agree --target linux-arm64 --cpu cortex-a53 --program llama
    """
    if sound:
        from verify.upstream.compare import Choice as UpstreamChoice
        from verify.upstream.compare import run as run_upstreams

        some = UpstreamChoice(program, kept, number("sample", sample, 1))
        run_upstreams(setting(c, "target", target), cpu, some, json, update, again, number("jobs", jobs, 0))
        return
    from verify.agree.agree import run

    run(setting(c, "target", target), cpu, program, json, update, again)


@task(
    auto_shortflags=False,
    positional=["run"],
    help={
        "run": "a result's name (local-mlp-fp32-lean), its file, its folder, or an ETDump (run.etdp)",
        "against": "a second run, to be put beside the first; matched by operator",
        "sort": "share, min, p10, p50, p90, max, warmup, count, name, module, kernel or order (default: share)",
        "only": "only operators with one of these words in name, module, line or kernel, as 'conv* layers.0 portable'",
        "top": "only the first N rows",
        "warmup": "executions at the start that are not timed (default: the result's)",
        "etrecord": "the program's ETRecord (default: the one of dist/programs)",
        "trace": "also write this file, a trace for Perfetto or chrome://tracing",
        "values": "compare what each operator gave with PyTorch's (of a deploy with --values)",
        "tolerance": "with --values: the largest relative error, as 0.001 (default: by the types)",
        "tsv": "print tab-separated values",
        "json": JSON,
    },
)
def inspect(
    c: Any,
    run: str,
    against: str = "",
    sort: str = "",
    only: str = "",
    top: str = "",
    warmup: str = "",
    etrecord: str = "",
    trace: str = "",
    values: bool = False,
    tolerance: str = "",
    tsv: bool = False,
    json: bool = False,
) -> None:
    """Show where the time of a run went: each operator with its times, module, source line and kernel.

    Reads what ./inv deploy --etdump left (engines executorch and lean), through upstream's Inspector. Warm-up
    executions are apart from timed ones. With --values it shows how far each operator's results are from PyTorch's,
    and names the first one beyond the tolerance. docs/compare.md explains the columns.

    Example: ./inv inspect local-mlp-fp32-lean --sort p50 --top 10
    """
    words = Words(c, locals(), own=["warmup"])
    from commands import inspect as command

    command.run(words)


@task(
    auto_shortflags=False,
    groups=LAB,
    help={
        "device": "comma-separated devices of the inventory (default: local)",
        "layers": "comma-separated: linear, conv1x1, conv, conv-stride, depthwise, bmm, bmm2, or all",
        "shape": "comma-separated ROWSxDEPTHxOUTPUTS, for convolutions SIDExINxOUT; llm: 1 and 128 rows, to 4096 deep",
        "model": "instead of layers: models of the zoo, or yours as file.py:function (comma-separated)",
        "types": "comma-separated schemes or Arm's names for them, as pf32,qp8_f32_qc8w (default: all)",
        "against": "the other way: kleidiai (without it), CPU features to leave unused (-avx512f), executorch, or same",
        "rounds": "processes of each way, in turns (default: 7, at least 5)",
        "cpu-threads": "threads on the devices (default: 1)",
        "pin-governor": "CPU frequency governor for the runs, such as performance; set back afterwards",
        "cooldown": "degrees Celsius to which a device may cool down before each run",
        "timeout": "seconds for one run (default: each device's own, else 600)",
        "jobs": "devices served at once (default: 4)",
        "name": "the reports' folder, dist/lab/NAME (default: default)",
        "resume": "keep the cells of that folder whose bundles, program, device and settings are unchanged",
        "update": "keep kernels, agreement and instructions of virtual devices in docs/speed.md",
        "list": "only list what would run, and the impossible ones with the reason",
        "json": JSON,
    },
)
def lab(
    c: Any,
    device: str = "",
    layers: str = "",
    shape: str = "",
    model: str = "",
    types: str = "",
    against: str = "",
    rounds: str = "",
    cpu_threads: str = "",
    pin_governor: str = "",
    cooldown: str = "",
    timeout: str = "",
    jobs: str = "",
    name: str = "default",
    resume: bool = False,
    update: bool = False,
    list: bool = False,
    json: bool = False,
) -> None:
    """Run layers in every data type two ways in turns, with KleidiAI and without, and say what differs.

    Exports each layer, builds what it takes, and runs every variant on the devices, round by round. A difference is
    reported only if it is larger than chance. The reports are in dist/lab/NAME: report.html, lab.json, lab.tsv,
    lab.md. On 64-bit Arm the other way is without KleidiAI, on x86 without AVX-512; --against chooses another.

    Example: ./inv lab --device sme --layers linear,conv,bmm --types all
    """
    words = Words(c, locals(), own=["model", "device"])
    from verify.layers.command import run

    run(words)
