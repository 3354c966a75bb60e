"""Run the proof program of a target's native packages on every CPU model that runs here."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from commands.own import Prove
from core.errors import BuildError, BundleError, ConfigError, HostError, MismatchError, NotSupportedError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Native
from core.paths import native_dir
from core.processes.sweep import Cell, Journal, sweep
from toolchains.emulation import platforms
from toolchains.emulation.platforms import NATIVE, WINE, Platform
from toolchains.targets import Target, get_target, load_targets
from verify.prove import proof, table
from verify.prove.proof import CaseResult, Report, Row

_KERNEL = re.compile(r"xnn_\w+_ukernel_\w+|kai_(?:run|kernel)_\w+")


def _key(native: Native, cpu: str, with_kernels: bool) -> str:
    """What decides a row: the program, how it is run there, and what is looked at."""
    target = get_target(native.manifest.target)
    try:
        how = platforms.platform_for(target, cpu).how
    except (HostError, NotSupportedError):
        how = ""  # such a row is not kept
    program = sha256_file(native.path / native.manifest.proof) if native.manifest.proof else ""
    return sha256_bytes(json.dumps([program, how, with_kernels]).encode())[:16]


def prove(target_name: str, cpu: str = "", *, with_kernels: bool = True, again: bool = False) -> list[Row]:
    """Run the proof program of ``dist/<target>/native`` on one CPU model or on all: a sweep (`core.processes.sweep`).

    Args:
        cpu: one of `platforms.cpus`; all when empty.
        with_kernels: find out which kernels ran, which takes one more run a case under QEMU.
        again: run it also if it passed before.

    Raises:
        ConfigError: unknown target, or CPU model for it.
        BundleError: the native packages are missing or incomplete.
    """
    target = get_target(target_name)
    cpus = platforms.cpus(target)
    if cpu and cpu not in cpus:
        raise ConfigError(
            f"Programs for {target_name} are not run on {cpu!r}.",
            f"CPU models are {', '.join(cpus)}" if cpus else "nothing here runs them",
            f"./inv self.prove --target {target_name}",
        )
    native = Native.load(native_dir(target_name))
    if not cpus:
        return [_not_run(target, native, "", f"not run: {target.proof}")]
    cells = [
        Cell(
            f"{target_name} {name}",
            _key(native, name, with_kernels),
            partial(prove_one, native, name, with_kernels=with_kernels),
        )
        for name in ((cpu,) if cpu else cpus)
    ]
    rows = sweep("proving", cells, Journal.of("prove", Row), again=again, holds=lambda row: row.outcome == "passed")
    return list(rows.values())


def prove_all(*, with_kernels: bool = True, again: bool = False) -> list[Row]:
    """`prove` for every target that was built; the others get a row that says so."""
    return [row for name in load_targets() for row in _prove_if_built(name, with_kernels, again)]


def _prove_if_built(target: str, with_kernels: bool, again: bool) -> list[Row]:
    try:
        Native.load(native_dir(target), verify=False)
    except BundleError:
        why = f"./inv build --target {target} --packages"
        return [Row(target=target, cpu="", how="", outcome="not built", why=why)]
    return prove(target, with_kernels=with_kernels, again=again)


def _not_run(target: Target, native: Native, cpu: str, why: str) -> Row:
    how = "" if native.manifest.checks is None else "checked by headers and symbols when it was built"
    return Row(
        target=target.name,
        cpu=cpu,
        how=how,
        outcome="not run",
        why=why,
        kleidiai="" if not native.manifest.kleidiai else native.manifest.kleidiai_note,
        toolchain=native.manifest.toolchain,
    )


def prove_one(native: Native, cpu: str, *, with_kernels: bool = True, only: Sequence[str] = ()) -> Row:
    """The result on one CPU model; nothing is kept.

    Args:
        only: names of the cases to run; all when empty.

    Raises:
        BundleError: the native packages were built without the program.
        BuildError: the program does not say what it should.
    """
    target = get_target(native.manifest.target)
    if not native.manifest.proof:
        raise BundleError(
            f"The native packages of {target.name} have no proof program.",
            "they were built without it",
            f"./inv build --target {target.name} --packages --force",
        )
    program = native.path / native.manifest.proof
    try:
        platform = platforms.platform_for(target, cpu)
    except (HostError, NotSupportedError) as error:
        return _not_run(target, native, cpu, f"{error.what} {error.cause}")
    done = platform.run(program, ["--json", *(word for name in only for word in ("--case", name))])
    if done.returncode not in (0, 1):
        # QEMU warns of what it does not emulate of a CPU.
        said = [line for line in (done.stderr or done.stdout).splitlines() if line and "warning:" not in line]
        last = "; ".join(said[-3:])
        why = f"the program ended with {done.returncode}: {last}"
        return Row(target=target.name, cpu=cpu, how=platform.how, outcome="failed", why=why)
    report = proof.parse_report(done.stdout, program)
    looked = with_kernels and cpu not in (NATIVE, WINE)
    named = _translated(report, platform, program) if looked else {}
    failed = [case for case in report.cases if case.outcome == "failed"]
    return Row(
        target=target.name,
        cpu=cpu,
        how=platform.how,
        outcome="failed" if failed else "passed",
        why="; ".join(f"{case.name}: {case.why}" for case in failed),
        xnnpack=report.xnnpack.version,
        kleidiai=report.kleidiai,
        toolchain=native.manifest.toolchain,
        features=report.cpu.features,
        kernels_by="translation" if looked else "",
        cases={
            case.name: CaseResult(
                outcome=case.outcome, why=case.why, operators=case.operators, kernels=named.get(case.name, ())
            )
            for case in report.cases
        },
    )


def _translated(report: Report, platform: Platform, program: Path) -> Mapping[str, tuple[str, ...]]:
    """Kernels of every case: each runs alone, so that what the emulator translates is for it."""
    names = [case.name for case in report.cases if case.outcome == "passed"]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return dict(zip(names, pool.map(lambda name: _kernels_of(platform, program, name), names), strict=True))


def _kernels_of(platform: Platform, program: Path, case: str) -> tuple[str, ...]:
    """Kernels that one case runs under QEMU.

    Raises:
        BuildError: the case passed among all others and not alone.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-proof-") as folder:
        log = Path(folder) / "translated.log"
        done = platform.run(program, ["--json", "--case", case], ("-d", "in_asm", "-D", os.fspath(log)))
        if done.returncode:
            raise BuildError(
                f"{case} passed among all cases and not alone ({platform.how}).", done.stdout[-300:], "./inv test"
            )
        return kernels_in(log)


def is_kernel(symbol: str) -> bool:
    """Whether a function is a microkernel of XNNPACK's, or one of KleidiAI's that computes or packs."""
    return _KERNEL.fullmatch(symbol) is not None and not symbol.endswith(("_get_mr", "_get_nr"))


def kernels_in(log: Path) -> tuple[str, ...]:
    """Kernels of which QEMU translated code: it does so when code is about to run, and names it in its log.

    The log is that of ``-d in_asm``: blocks that begin with ``IN: function``.
    """
    with log.open(encoding="utf-8", errors="replace") as file:
        names = {line[4:].strip() for line in file if line.startswith("IN: ")}
    return tuple(sorted(filter(is_kernel, names)))


def run(request: Prove) -> None:
    """Run ``./inv self.prove``.

    Raises:
        MismatchError: XNNPACK computes wrongly.
    """
    with_kernels = not request.quick
    rows = (
        prove_all(with_kernels=with_kernels, again=request.again)
        if request.target == "all"
        else prove(request.target, request.cpu, with_kernels=with_kernels, again=request.again)
    )
    if request.update:
        table.publish(rows)
    table.report(rows, request.json)
    failed = [f"{row.target} on {row.cpu}: {row.why}" for row in rows if row.outcome == "failed"]
    if failed:
        raise MismatchError(
            "XNNPACK computes wrongly.", "; ".join(failed), "./inv self.prove --target NAME --cpu CPU", failed
        )
