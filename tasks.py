"""Slipway's tasks: what ``./inv --list`` shows.

Each task is a few lines that call a package; nothing heavy is imported before a task needs it. The options are those of
the requests in ``commands/``. Defaults come from ``invoke.yaml`` or ``INVOKE_SLIPWAY_<NAME>``
(``INVOKE_SLIPWAY_DEVICE=pi ./inv deploy``).
"""

from __future__ import annotations

import invoke

from commands import devices, own, requests, shared
from core.cli import invoked
from core.cli.request import number, words
from core.cli.task import task

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
    "cpu_affinity": "",
    "cooldown": "",
    "sources": "",
    "jobs": "",
    "allow_newer_glibc": "",
}
HEADINGS = {
    "Build, export, deploy": ("deploy", "chat", "build", "export", "models", "targets", "doctor"),
    "Devices": (
        "devices.list", "devices.add", "devices.trust", "devices.start", "devices.stop", "devices.run",
        "devices.verify", "devices.rollback",
    ),
    "Measure and compare": ("matrix", "compare", "inspect"),
    "For this checkout": ("clean", "test"),
}  # fmt: skip
"""The tasks below the headings of ``./inv --list``; those that prove Slipway itself are listed by ``--list self``."""


@task(requests.Targets)
def targets(request: requests.Targets) -> None:
    from deploy.run import result
    from toolchains import ran
    from toolchains.bundle import report

    report.targets(request.json, [*ran.record(), *result.runs()])


@task(requests.Doctor)
def doctor(request: requests.Doctor) -> None:
    from toolchains import doctor as room

    room.report(request.json)


@task(requests.Build)
def build(request: requests.Build) -> None:
    from commands import build as command

    command.run(request)


@task(requests.Export)
def export(request: requests.Export) -> None:
    from commands import export as command

    command.run(request)


@task(requests.Models)
def models(request: requests.Models) -> None:
    from commands.export import add_packages, print_zoo

    if request.add:
        add_packages(request)
    else:
        print_zoo(request.json)


@task(requests.Deploy)
def deploy(request: requests.Deploy) -> None:
    from commands import deploy as command

    command.run(request)


@task(shared.Chat)
def chat(request: shared.Chat) -> None:
    from commands import chat as command

    command.run(request)


@task(requests.Matrix)
def matrix(request: requests.Matrix) -> None:
    from commands import matrix as command

    command.run(request)


@task(requests.Compare)
def compare(request: requests.Compare) -> None:
    from commands import compare as command

    command.run(request)


@task(requests.Inspect)
def inspect(request: requests.Inspect) -> None:
    if request.values:
        from commands import inspect_values

        return inspect_values.run(request)
    from commands import inspect as command

    return command.run(request)


@task(requests.Clean)
def clean(request: requests.Clean) -> None:
    if request.device:
        from deploy.devices.inventory import get_device
        from deploy.upkeep import report, upkeep

        days = None if request.days < 0 else request.days
        report.collected(request.device, upkeep.collect(get_device(request.device), days), request.json)
        return
    from core.files.clean import clean as remove

    if request.cache:
        from deploy.virtual.machines import stop_all

        stop_all()
    remove(cache=request.cache, as_json=request.json)


@task(devices.List, "list")
def devices_list(request: devices.List) -> None:
    from deploy.upkeep import report

    report.devices(request.json)


@task(devices.Add, "add")
def devices_add(request: devices.Add) -> None:
    from deploy.upkeep import enrol, report

    report.added(enrol.add(request.adb, request.ssh, request.name), request.json)


@task(devices.Run, "run")
def devices_run(request: devices.Run) -> None:
    from pathlib import Path

    from core import console
    from deploy.devices.inventory import get_device
    from deploy.run import execute
    from deploy.upkeep import report

    files = list(map(Path, words(request.files)))
    done = execute.execute(
        get_device(request.device), Path(request.executable), execute.split(request.args), files,
        number("timeout", request.timeout, 1, 0, whole=False, typed=False),
        say=console.note,
    )  # fmt: skip
    report.executed(done, request.json)
    if done.code:
        raise invoke.exceptions.Exit(None, done.code)


@task(devices.Start, "start")
def devices_start(request: devices.Start) -> None:
    from deploy.upkeep import report
    from deploy.virtual.machines import ensure

    ensure(request.name)
    report.devices(request.json, request.name)


@task(devices.Stop, "stop")
def devices_stop(request: devices.Stop) -> None:
    from deploy.upkeep import report
    from deploy.virtual.machines import stop

    stop(request.name)
    report.devices(name=request.name)


@task(devices.Trust, "trust")
def devices_trust(request: devices.Trust) -> None:
    from deploy.upkeep import report
    from deploy.upkeep.enrol import device_of, trust

    report.trusted(trust(device_of(request.name), request.fingerprint, request.replace))


@task(devices.Rollback, "rollback")
def devices_rollback(request: devices.Rollback) -> None:
    from deploy.devices.inventory import get_device
    from deploy.upkeep import report, upkeep

    report.rolled(request.name, upkeep.rollback(get_device(request.name), request.bundle))


@task(devices.Verify, "verify")
def devices_verify(request: devices.Verify) -> None:
    from deploy.devices.inventory import get_device
    from deploy.upkeep import report, upkeep

    report.checked(request.name, upkeep.verify(get_device(request.name)), request.json)


@task(own.Test)
def test(request: own.Test) -> None:
    from verify.suite.runner import run

    run(request)


@task(own.Agree)
def agree(request: own.Agree) -> None:
    from verify.agree.agree import run

    run(request)


@task(own.Fuzz)
def fuzz(request: own.Fuzz) -> None:
    from verify.fuzz import run

    run(request.program)


@task(own.Bench)
def bench(request: own.Bench) -> None:
    from verify.bench import language, nets, peers

    {"nets": nets, "peers": peers, "language": language}[request.what].run(request)


@task(own.Docs)
def docs(_request: own.Docs) -> None:
    from verify.site import report

    report()


@task(own.Lock)
def lock(_request: own.Lock) -> None:
    from core.environment.lock import make

    make()


ns = invoke.Collection(
    targets, doctor, build, export, models, deploy, chat, matrix, compare, inspect, test, clean,
    invoke.Collection(
        "devices", devices_list, devices_add, devices_run, devices_start, devices_stop, devices_trust,
        devices_rollback, devices_verify,
    ),
    invoke.Collection("self", agree, fuzz, bench, docs, lock),
)  # fmt: skip
ns.configure({"slipway": DEFAULTS})
invoked.TASKS.update(HEADINGS)
