"""``./inv build``: a bundle, native packages, or what other people's programs link."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commands.requests import Build
from core.cli.request import words
from core.errors import UsageError

if TYPE_CHECKING:
    from toolchains.bundle.inputs import Selection


def run(request: Build) -> None:
    """Build what the arguments of ``./inv build`` name, and print it."""
    from toolchains.bundle import report

    target, family, force, as_json = request.target, request.toolchain, request.force, request.json
    plain = not (request.profiles or request.aar or request.sdk or request.wheel or request.engine or request.packages)
    instead = _instead(target) if plain else ""
    if request.profiles:
        from toolchains.bundle import profiles

        profiles.report(Path(request.profiles), words(request.named), family, as_json)
    elif request.aar:
        from toolchains.bundle import aar

        report.aar(aar.build_aar(request.named, family, force), as_json)
    elif request.sdk or request.wheel or instead == "sdk":
        _sdk(request)
    elif request.packages or instead == "native":
        from toolchains.bundle.native import build_native

        report.native(build_native(target, family, request.sources or "auto", force), as_json)
    else:
        from toolchains.bundle.builder import build

        built = build(
            target,
            request.engine,
            family,
            force,
            allow_newer_glibc=request.allow_newer_glibc == "yes",
            selection=_selection(request.ops_from),
        )
        report.bundle(built, as_json)


def _sdk(request: Build) -> None:
    """Build an SDK, and libslipway's wheel."""
    from toolchains.bundle import report
    from toolchains.bundle.sdk import ENGINE, build_sdk
    from toolchains.bundle.wheel import tag, write_wheel
    from toolchains.targets import get_target

    if request.wheel:
        tag(get_target(request.target))  # before minutes of compiling
    selection = _selection(request.ops_from)
    engine = request.engine if "engine" in request.typed else ENGINE
    sdk = build_sdk(
        request.target, request.toolchain, request.force, engine=engine, shared=request.wheel, selection=selection
    )
    report.sdk(sdk, request.json, write_wheel(sdk) if request.wheel else None)


def _selection(programs: str) -> Selection | None:
    """The needs of the programs, as this machine's own bundle of the engine lean reads them; ``None`` without any."""
    if not programs:
        return None
    from core.files import sha256_file
    from core.formats.program import load_program
    from deploy.run.needs import describe
    from toolchains.bundle.builder import build
    from toolchains.bundle.inputs import select
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


def _instead(name: str) -> str:
    """What is built where no engine has a runner: ``sdk``, ``native``, or else nothing; prints that."""
    from core import console
    from toolchains.targets import get_target

    target = get_target(name)
    if target.working_engines:
        return ""
    if target.embedded_engines:
        console.note(f"{name} has no pte_runner, for its system runs apps: building libslipway, which they link")
        return "sdk"
    console.note(f"no engine runs on {name} yet (./inv targets): building its native packages")
    return "native"
