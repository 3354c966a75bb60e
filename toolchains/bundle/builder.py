"""Build a bundle: compilers, Conan, checks, ``dist/<target>/<engine>``."""

from __future__ import annotations

from core.errors import NotSupportedError
from core.formats.bundle import Bundle, Manifest
from core.paths import build_dir
from toolchains.bundle.inputs import Selection
from toolchains.bundle.making import Job
from toolchains.targets import get_target


def build(
    target_name: str,
    engine: str = "",
    toolchain: str = "",
    force: bool = False,
    *,
    allow_newer_glibc: bool = False,
    selection: Selection | None = None,
) -> Bundle:
    """The bundle of ``target_name``, built if it is missing or outdated.

    Two builds at once take turns; an interrupted one leaves the previous bundle as it was.

    Args:
        engine, toolchain: the target's default when empty.
        force: compile and check again although nothing has changed.
        allow_newer_glibc: accept binaries that need a newer C or C++ library than the target promises
            (the manifest says which, and the preflight holds it against the device).
        selection: link only what some programs need, into a bundle of their own; the engine ``lean`` alone can.

    Raises:
        ConfigError, NotSupportedError: the target, engine or toolchain is unknown or does not work yet.
        HostError: this machine lacks something.
        BuildError: compiling or a check failed.
    """
    target = get_target(target_name)
    family_name = target.toolchain(toolchain)
    chosen = target.engine(engine or ("lean" if selection else ""), family_name)
    if selection and chosen != "lean":
        raise NotSupportedError(
            f"The engine {chosen} cannot be linked for some programs only.",
            "its libraries come compiled from upstream",
            f"./inv build --target {target_name} --engine lean --ops-from model.pte",
        )
    folder = build_dir(target.name, chosen, selection.name if selection else "")
    job = Job(target.built_with(family_name), family_name, chosen, folder, force, allow_newer_glibc, selection)
    return job.ensure(Bundle.load, _build)


def _build(job: Job) -> None:
    from toolchains.bundle import conan_packages, layout

    with job.begun(5) as (steps, new, toolchain):
        with conan_packages.building():
            package, graph = conan_packages.make(job, steps, f"pte_runner with the engine {job.kind}")
            steps.begin("reading the binaries: architecture, C library, libraries, instructions")
            layout.collect(package, new)
        binaries, checked = layout.check(job, new)
        steps.begin("running pte_runner --capabilities, if it runs here")
        offered = layout.offers(job, new)
        layout.bill(job, graph, new, binaries, toolchain)
        needs = layout.needs(job, new, binaries)
        layout.describe(
            Manifest, job, new, engine=job.kind, toolchain=toolchain, needs=needs, offers=offered, checks=checked
        )
