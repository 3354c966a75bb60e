"""``./inv build``: a bundle, native packages, or all that this machine can build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from core.cli.task import Words
from core.errors import UsageError

if TYPE_CHECKING:
    from toolchains.bundle.selection import Selection


def run(words: Words) -> None:
    """Build what the arguments of ``./inv build`` name, and print it.

    Raises:
        UsageError: arguments that contradict each other.
    """
    from toolchains.bundle import report

    family, engine = words["toolchain"], words["engine"]
    if words["all"]:
        if any(words.given[name] for name in ("target", "engine", "packages", "sdk", "wheel", "aar", "ops_from")):
            raise UsageError(
                "--all cannot be used with --target, --engine, --ops-from, --packages, --sdk, --wheel or --aar.",
                "",
                "./inv build --all",
            )
        from toolchains.bundle import build_all

        build_all.report(build_all.build_all(family, words["sources"], words["force"]), words["json"])
        return
    if words["aar"]:
        if any(words.given[name] for name in ("engine", "packages", "sdk", "wheel", "ops_from")):
            raise UsageError(
                "--aar cannot be used with --engine, --packages, --sdk, --wheel or --ops-from.", "", "./inv build --aar"
            )
        from toolchains.bundle import aar

        built_aar = aar.build_aar(words["target"] if words.given["target"] else "", family, words["force"])
        report.aar(built_aar, words["json"])
        return
    if words["sdk"] or words["wheel"] or (not engine and not words["packages"] and _embedded(words["target"])):
        if any(words.given[name] for name in ("engine", "packages")):
            raise UsageError("--sdk and --wheel cannot be used with --engine or --packages.", "", "./inv build --sdk")
        if words["wheel"] and words["ops_from"]:
            raise UsageError(
                "--wheel cannot be used with --ops-from.", "a wheel has all operators", "./inv build --wheel"
            )
        from toolchains.bundle.sdk import build_sdk
        from toolchains.bundle.wheel import tag, write_wheel
        from toolchains.targets import get_target

        if words["wheel"]:
            tag(get_target(words["target"]))  # before minutes of compiling
        selection = _selection(words["ops_from"]) if words["ops_from"] else None
        sdk = build_sdk(words["target"], family, words["force"], shared=words["wheel"], selection=selection)
        report.sdk(sdk, words["json"], write_wheel(sdk) if words["wheel"] else None)
        return
    if words["packages"] or (not engine and _without_engine(words["target"])):
        from toolchains.bundle.native import build_native

        report.native(build_native(words["target"], family, words["sources"], words["force"]), words["json"])
        return
    from toolchains.bundle.builder import build

    built = build(
        words["target"],
        engine,
        family,
        words["force"],
        allow_newer_glibc=words["allow_newer_glibc"],
        selection=_selection(words["ops_from"]) if words["ops_from"] else None,
    )
    report.bundle(built, words["json"])


def _selection(programs: str) -> Selection:
    """The needs of the programs, as this machine's own bundle of the engine lean reads them."""
    from core.files import sha256_file
    from core.formats.program import load_program
    from deploy.run.needs import describe
    from models.request.options import words
    from toolchains.bundle.builder import build
    from toolchains.bundle.selection import select
    from toolchains.targets import host_target

    names, files = [], []
    for word in words(programs):
        path = Path(word)
        file = path / load_program(path).file if path.is_dir() else path
        if not file.is_file():
            raise UsageError(f"There is no program {file}.", "", "./inv build --ops-from model.pte")
        names.append(file.parent.name if file.stem == "model" else file.stem)
        files.append(file)
    reader = build(host_target().name, "lean")
    methods = [method for file in files for method in describe(reader, file, sha256_file(file)).methods]
    operators = [name for method in methods for name in method.operators]
    delegated = [method for method in methods if method.backends]
    # A delegate of which the reader says nothing needs everything.
    types = [name for method in delegated for name in method.kernel_types]
    known = all(method.kernel_types for method in delegated)
    return select(names, operators, [name for method in methods for name in method.backends], types if known else ())


def _embedded(name: str) -> bool:
    """Whether the target's engines are in libslipway alone; prints that it is built."""
    from core import console
    from toolchains.targets import get_target

    target = get_target(name)
    found = bool(target.embedded_engines) and not target.working_engines
    if found:
        console.note(f"{name} has no pte_runner, for its system runs apps: building libslipway, which they link")
    return found


def _without_engine(name: str) -> bool:
    """Whether the target lacks a working engine; prints that its native packages are built instead."""
    from core import console
    from toolchains.targets import get_target

    target = get_target(name)
    if not target.working_engines:
        console.note(f"no engine runs on {name} yet (./inv targets): building its native packages")
    return not target.working_engines
