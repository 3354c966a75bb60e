"""``./inv build --all``: everything that this machine can build, one target after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from core import console
from core.errors import BuildError, SlipwayError
from core.formats.bundle import MANIFEST
from core.paths import bundle_dir, native_dir, sdk_dir
from toolchains.bundle import builder, native, sdk
from toolchains.targets import Target, load_targets

State = Literal["built", "nothing to do", "failed", "not here"]


_OPTIONS = {"native": "--packages", "libslipway": "--sdk"}
"""What builds one thing alone; a bundle needs no option."""


@dataclass(frozen=True)
class Row:
    """What came of one build."""

    target: str
    what: str
    """``native``, ``libslipway``, or the engine of a bundle."""
    toolchain: str
    state: State
    seconds: float
    """Wall time, all cores at work."""
    cpu_seconds: float
    """What all programs together took of the cores: the same on a busy machine as on an idle one."""
    detail: str
    """Why it failed or cannot be built here; else where it is."""


def build_all(toolchain: str = "", sources: str = "auto", force: bool = False) -> list[Row]:
    """Build the native packages of every target that this machine can build, and its default engine's bundle.

    A failure does not stop the others. One line is printed a build.

    Raises:
        ConfigError: there are no such sources.
    """
    native.choose_source(sources)
    rows: list[Row] = []
    table = list(load_targets().values())
    for number, target in enumerate(table, 1):
        for row in _target(target, toolchain, sources, force):
            rows.append(row)
            text = f"{row.target} {row.what}: {row.state}"
            took = f" ({row.seconds:.1f} s)" if row.state != "not here" else ""
            why = f": {row.detail}" if row.state in ("failed", "not here") else ""
            console.note(f"[{number}/{len(table)}] {text}{took}{why}")
    return rows


def _target(target: Target, toolchain: str, sources: str, force: bool) -> Iterator[Row]:
    try:
        family = target.toolchain(toolchain)
        if reason := native.why_not(target, family):
            yield Row(target.name, "native", family, "not here", 0.0, 0.0, reason)
            return
    except SlipwayError as error:
        yield Row(target.name, "native", toolchain, "not here", 0.0, 0.0, error.cause or error.what)
        return

    def packages() -> None:
        native.build_native(target.name, family, sources, force, quiet=True)

    def bundle() -> None:
        builder.build(target.name, toolchain=toolchain, force=force)

    def library() -> None:
        sdk.build_sdk(target.name, family, force)

    yield _one(target, "native", family, native_dir(target.name), packages)
    if target.embedded_engines:
        yield _one(target, "libslipway", family, sdk_dir(target.name), library)
    for engine in target.working_engines[:1]:
        yield _one(target, engine, family, bundle_dir(target.name, engine), bundle)


def _one(target: Target, what: str, family: str, folder: Path, make: Callable[[], None]) -> Row:
    begin, cpu, before = time.monotonic(), _cpu(), _stamp(folder)
    state: State = "built"
    detail = str(folder)
    try:
        make()
        if before and _stamp(folder) == before:
            state = "nothing to do"
    except SlipwayError as error:
        state, detail = "failed", str(error)
    took = round(time.monotonic() - begin, 1), round(_cpu() - cpu, 1)
    return Row(target.name, what, family, state, *took, detail)


def _cpu() -> float:
    """Seconds of CPU that this process and all that it started and waited for have taken."""
    return sum(os.times()[:4])


def _stamp(folder: Path) -> int:
    manifest = folder / MANIFEST
    return manifest.stat().st_mtime_ns if manifest.is_file() else 0


def _short(detail: str) -> str:
    return console.shown(detail.splitlines()[0]) if detail else ""


def report(rows: list[Row], as_json: bool) -> None:
    """Print what came of `build_all`.

    Raises:
        BuildError: something failed.
    """
    failed = [row for row in rows if row.state == "failed"]
    document: list[dict[str, Any]] = [asdict(row) for row in rows]
    if as_json:
        console.print_json(document)
    else:
        console.table(
            "Builds",
            ["target", "what", "compilers", "", "seconds", "CPU seconds", ""],
            [
                [r.target, r.what, r.toolchain, r.state, f"{r.seconds:.1f}", f"{r.cpu_seconds:.1f}", _short(r.detail)]
                for r in rows
            ],
        )
    if failed:
        names = [f"{row.target} {row.what}" for row in failed]
        raise BuildError(
            f"{len(failed)} of {len(rows)} builds failed.",
            ", ".join(names),
            f"./inv build --target {failed[0].target} {_OPTIONS.get(failed[0].what, '')}".strip(),
            names,
        )
