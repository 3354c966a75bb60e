"""What ``./inv targets`` and ``./inv build`` print."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from core import console
from toolchains.targets import EMBEDDED, WITH_NDK, Target, get_target, load_targets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from core.formats.bundle import Bundle, Checks, Native, NativeManifest
    from toolchains.bundle.aar import Aar
    from toolchains.bundle.sdk import Sdk, SdkManifest
    from toolchains.ran import Ran


def engines_of(target: Target) -> str:
    """What builds today: ``executorch, lean``, ``lean in libslipway``, or ``lean, onnxruntime (NDK)``."""
    working = target.working_engines
    shown = {EMBEDDED: f" {EMBEDDED}", WITH_NDK: " (NDK)"}
    others = [name + shown[how] for name, how in target.engines.items() if how in shown and name not in working]
    return ", ".join([*working, *others]) or "none yet"


def not_run(target: Target) -> str:
    """What is said of a target of which nothing ran: what checks it instead, or where it could run."""
    return f"not run; {target.proof}"


def compilers_of(target: Target) -> str:
    """The compiler families, the one that needs nothing first for Android, whose two make different programs."""
    if target.os == "android":
        return "zig (static, musl), ndk (bionic) where one is named"
    return ", ".join(target.toolchains)


def _compilers(target: Target) -> str:
    """The compiler families; zig, which needs nothing, first."""
    return ", ".join(sorted(target.toolchains, key=lambda name: name != "zig"))


def _needs(table: list[Target]) -> list[list[str]]:
    """What is still to be built, each need once, with the targets that wait for it."""
    waiting: dict[tuple[str, str], list[str]] = {}
    for target in table:
        for engine in target.engines:
            if text := target.needs(engine):
                waiting.setdefault((engine, text), []).append(target.name)
    return [[engine, text, ", ".join(names)] for (engine, text), names in waiting.items()]


def targets(as_json: bool, runs: Iterable[Ran]) -> None:
    """The table of targets, exactly as ``targets.toml`` holds it, with what ran of each, where and when last."""
    from toolchains import ran

    table, runs = list(load_targets().values()), ran.last(runs)
    if as_json:
        rows = [[run.model_dump(exclude={"target"}) for run in runs if run.target == target.name] for target in table]
        console.print_json([{**dataclasses.asdict(t), "ran": row} for t, row in zip(table, rows, strict=True)])
        return
    built = sum(bool(target.working_engines or target.embedded_engines) for target in table)
    console.table(
        "Targets",
        ["target", "ISA floor", "engines", "compilers", "ran last"],
        [
            [t.name, t.isa_floor, engines_of(t), _compilers(t), (ran.said(t.name, runs) or [not_run(t)])[0]]
            for t in table
        ],
        caption=f"{built} of {len(table)} targets build: ./inv build --target NAME",
        optional=("ran last",),
    )
    console.table("Not built yet", ["engine", "needs", "for"], _needs(table))


def _checked(checks: Checks | None) -> str:
    """How much code the scan for instructions above the floor saw."""
    if checks is None:
        return "no"
    whole = [code for code in checks.code if not code.note]
    kernels = sum(code.kernels for code in whole)
    text = f"{sum(code.instructions for code in whole):,} instructions in {sum(code.functions for code in whole):,}"
    text += f" functions, {kernels:,} of them chosen by the CPU" if kernels else " functions"
    noted = len(checks.code) - len(whole)
    return text + (f"; {noted} files not, see the manifest" if noted else "")


def _print(title: str, rows: list[list[str]], built: Bundle | Native | Sdk, as_json: bool, **paths: str | None) -> None:
    """What a build left: its manifest as JSON, or where it is and what is said of it as a table."""
    if as_json:
        console.print_json({"path": str(built.path), **paths, **built.manifest.model_dump(mode="json")})
    else:
        console.table(title, ["", ""], [["folder", console.shown(built.path)], *rows])


def _megabytes(file: Path) -> str:
    return f"{console.shown(file)} ({file.stat().st_size / 1e6:.1f} MB)"


def bundle(built: Bundle, as_json: bool) -> None:
    """What a build left: where it is, what it needs of a device and what it offers."""
    manifest = built.manifest
    needs, offers = manifest.needs, manifest.offers
    libc = f"GLIBC {needs.glibc}, GLIBCXX {needs.glibcxx or 'none'}" if needs.libc == "glibc" else needs.libc
    if needs.own_loader:
        libc = f"Linux {needs.kernel}; its own C library where the device's is older than GLIBC {needs.own_glibc_from}"
    rows = [
        ["size", f"{sum(entry.size for entry in manifest.files) / 1e6:.1f} MB in {len(manifest.files)} files"],
        ["needs", f"{needs.os} {needs.machine}, {libc}"],
        ["engine", f"{offers.engine} {offers.engine_version}"],
        ["backends", ", ".join(offers.backends)],
        ["operators", str(len(offers.operators) or ("none" if offers.programs else "not listed by the engine"))],
        *([["only for", ", ".join(offers.programs)]] if offers.programs else []),
        ["checked", _checked(manifest.checks)],
        ["verified", offers.verified],
    ]
    _print(f"Bundle {manifest.target}, engine {manifest.engine}", rows, built, as_json)


def native(built: Native, as_json: bool) -> None:
    """What a build of native packages left: where they are, and what they are made from."""
    manifest = built.manifest
    libraries = [entry for entry in manifest.files if entry.path.startswith("lib/")]
    rows = [
        ["libraries", f"{len(libraries)}, {sum(entry.size for entry in libraries) / 1e6:.1f} MB"],
        ["packages", ", ".join(manifest.packages)],
        ["sources", manifest.sources],
        ["KleidiAI", manifest.kleidiai],
        *_compiled(manifest),
    ]
    _print(f"Native packages of {manifest.target}", rows, built, as_json)


def _compiled(manifest: NativeManifest | SdkManifest) -> list[list[str]]:
    """How libraries were compiled and checked."""
    return [
        ["ISA floor", manifest.isa_floor],
        ["C library", manifest.libc],
        ["compilers", manifest.toolchain],
        ["checked", _checked(manifest.checks)],
    ]


_SDKS = {
    "lean": ("libslipway", "find_package(slipway CONFIG): slipway::lean"),
    "executorch": (
        "ExecuTorch",
        "find_package(executorch CONFIG): executorch, executorch_backends, executorch_kernels",
    ),
    "onnxruntime": (
        "ONNX Runtime",
        "find_package(onnxruntime CONFIG): onnxruntime::onnxruntime; onnxruntime_install()",
    ),
}
"""By engine: what an SDK has, and how CMake finds it."""


def sdk(built: Sdk, as_json: bool, wheel: Path | None = None) -> None:
    """What a build of an SDK left, and how to link it."""
    manifest = built.manifest
    libraries = [entry for entry in manifest.files if entry.path.startswith(("lib/lib", "bin/lib"))]
    own = get_target(manifest.target).shared.get("libc") == manifest.libc
    embedded = manifest.engine == "lean"
    what, found = _SDKS[manifest.engine]
    shared = ", slipway::slipway" if embedded and manifest.shared else ""
    size = f"{len(libraries)}, {sum(entry.size for entry in libraries) / 1e6:.1f} MB"
    rows = [
        ["archive", _megabytes(built.archive)],
        ["libraries", ", ".join(f"{one.path} ({one.size / 1e6:.1f} MB)" for one in libraries) if embedded else size],
        *(["XCFramework", _megabytes(file)] for file in sorted(built.path.glob("*.xcframework/*/*.a"))),
        *([["wheel", _megabytes(wheel)]] if wheel else []),
        ["CMake", found + shared],
        # Programs of the target are static where a second C library is for shared libraries alone.
        *([] if own else [["cross-compile", f"cmake --toolchain {console.shown(built.toolchain_file)}"]]),
        *([["pkg-config", "slipway"]] if embedded else []),
        *([["only for", ", ".join(manifest.programs)]] if manifest.programs else []),
        *_compiled(manifest),
    ]
    paths = {"archive": str(built.archive), "wheel": str(wheel) if wheel else None}
    _print(f"{what} {manifest.version} for {manifest.target}", rows, built, as_json, **paths)


def aar(built: Aar, as_json: bool) -> None:
    """What a build of an AAR left."""
    if as_json:
        console.print_json({**dataclasses.asdict(built), "path": str(built.path)})
        return
    rows = [
        ["archive", _megabytes(built.path)],
        ["ABIs", ", ".join(built.abis)],
        ["NDK", built.ndk],
        ["Gradle", f'implementation(files("{built.path.name}")), and in Java: import org.slipway.Program'],
        ["run on", "not run: it needs a device, for Android's C library is not emulated here"],
    ]
    console.table(f"slipway {built.version} for Android", ["", ""], rows)
