"""Compare bundle needs with device facts and program needs with bundle offers: all findings, before any upload."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from core.console.units import amount
from core.errors import DeviceFullError, MissingOperatorError, PreflightError, SlipwayError
from core.formats.bundle import Bundle, Needs, Offers
from core.strict_json import Frozen
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.devices.probe import TOOLS
from deploy.run.needs import LANGUAGE, ProgramNeeds, complex_only
from toolchains.targets import load_targets

Verdict = Literal["ok", "bad", "unknown"]

_MARGIN = 1 << 20
"""Bytes left free on the device's disk beside the payload and the outputs: folders, the result."""
_RUNNER_MEMORY = 16 << 20
"""Bytes of memory of a runner without a program: the measured peak RSS of an empty run is lower."""

RUNS = {
    "x86_64": {"x86_64", "amd64"},
    "i686": {"i686", "i586", "i386", "x86_64", "amd64"},
    "aarch64": {"aarch64", "arm64"},
    "armv7l": {"armv7l", "armv8l", "aarch64"},
    "armv6l": {"armv6l", "armv7l", "armv8l", "aarch64"},
}
"""Machines (``uname -m``) whose kernel may run a bundle's; the loader shows whether their system can."""

_ABIS = {"aarch64": "arm64-v8a", "armv7l": "armeabi-v7a", "x86_64": "x86_64", "i686": "x86"}
"""Android's names of a bundle's machine: a 64-bit phone may have a 32-bit system, and the reverse."""

_FIRST = ("operating system", "machine", "ABI")
_SYSTEMS = {"linux": "Linux", "android": "Linux", "macos": "Darwin"}


class Finding(Frozen):
    """One check: what is needed, and what the device has."""

    check: str
    needs: str
    has: str
    verdict: Verdict
    fix: str = ""
    error: Literal["preflight", "missing-operator", "device-full"] = "preflight"
    names: tuple[str, ...] = ()


def check(
    bundle: Bundle,
    facts: DeviceFacts,
    needs: ProgramNeeds,
    method: str,
    *,
    upload_bytes: int,
    program_bytes: int,
    output_bytes: int = 0,
) -> list[Finding]:
    """Every finding about running ``method`` of the program with ``bundle`` on the device.

    The device lacks ``upload_bytes`` of payload; 0 for the outputs' files means that nobody knows their size.
    """
    described = needs.method(method)
    planned = described.planned_bytes if described else 0
    space, memory = space_needed(upload_bytes, output_bytes), program_bytes + planned + _RUNNER_MEMORY
    free, available = facts.free, facts.memory_available
    long = any(method.name in ("get_max_context_len", "get_max_seq_len") for method in needs.methods)
    smaller = "the model exported with a shorter context: --options context=256" if long else "a smaller model"
    full = _finding(
        "free space", amount(space), "" if free is None else amount(free), None if free is None else free >= space,
        f"free some space on the device, or remove {facts.root} there",
    )  # fmt: skip
    return [
        *of_device(bundle.manifest.needs, facts),
        full.model_copy(update={"error": "device-full"}),
        _finding(
            "memory", amount(memory), amount(available) if available else "",
            available >= memory if available else None, f"end other programs on the device, or {smaller}",
        ),
        *_program(bundle, needs, method),
    ]  # fmt: skip


def _finding(name: str, needs: str, has: str, good: bool | None, fix: str = "") -> Finding:
    """A row of the table; ``None``: the device does not say."""
    verdict: Verdict = "unknown" if good is None else "ok" if good else "bad"
    return Finding(check=name, needs=needs, has=has or "unknown", verdict=verdict, fix="" if good or not has else fix)


def of_device(needs: Needs, facts: DeviceFacts) -> list[Finding]:
    """The findings about binaries on the device, whatever they do."""
    root, features = facts.root, facts.cpu_features
    missing = [name for name in needs.libraries if name not in facts.libraries]
    without = [tool for tool in TOOLS if tool not in facts.tools]
    slower = [feature for feature in needs.cpu_features if feature not in features]
    has_loader = needs.loader in facts.loaders
    abi = _ABIS.get(needs.machine, "") if needs.os == "android" else ""
    other = f"set target in devices.toml to one for {facts.system} on {facts.machine}: ./inv targets"
    # Whether it is asked for, what is, what the device has, whether that will do, and the fix.
    rows: tuple[tuple[object, str, str, str, bool | None, str], ...] = (
        (True, "operating system", needs.os, facts.system, facts.system == _SYSTEMS.get(needs.os, "Windows"), other),
        (True, "machine", needs.machine, facts.machine,
         facts.machine in RUNS.get(needs.machine, {needs.machine}), other),
        (abi and facts.abis, "ABI", abi, " ".join(facts.abis), abi in facts.abis, other),
        (needs.cpu_features, "CPU features", " ".join(needs.cpu_features), _lacks(slower) if features else "",
         not slower if features else None, "choose a target with a lower floor: ./inv targets"),
        (needs.float_abi in {"hard", "soft"} and needs.loader, "float ABI", needs.float_abi, _float_abi(facts),
         has_loader, "choose the target with the device's own float ABI: ./inv targets"),
        (needs.kernel, "Linux", f"≥ {needs.kernel}", facts.kernel,
         at_least(facts.kernel.partition("-")[0], needs.kernel) if facts.kernel else None,
         "a newer system on the device: the bundle's own C library does not run on this kernel"),
        (needs.loader, "loader", needs.loader, needs.loader if has_loader else ", ".join(facts.loaders) or "none",
         has_loader, "the device's system is of another architecture or C library than the bundle"),
        (needs.glibc, "GLIBC", f"≥ {needs.glibc}", facts.glibc or facts.libc,
         at_least(facts.glibc, needs.glibc) if facts.glibc or facts.libc else None,
         "a newer system on the device, or a target with static binaries"),
        (needs.glibcxx, "GLIBCXX", f"≥ {needs.glibcxx}", facts.glibcxx,
         at_least(facts.glibcxx, needs.glibcxx) if facts.glibcxx else None, "a newer libstdc++6 on the device"),
        (needs.libraries, "libraries", " ".join(needs.libraries), _lacks(missing), not missing,
         f"install on the device: {' '.join(missing)}"),
        (True, "tools", "coreutils or busybox", _lacks(without), not without,
         "install coreutils or busybox on the device"),
        (True, "runs programs", f"{root} mounted exec", "noexec" if facts.noexec else "exec", not facts.noexec,
         "set root in devices.toml to a folder on another file system"),
        (True, "may write", root, "yes" if facts.writable else "no", facts.writable,
         "set root in devices.toml to a folder of the login's user"),
    )  # fmt: skip
    return [_finding(name, wants, has, good, fix) for asked, name, wants, has, good, fix in rows if asked]


def _lacks(missing: Sequence[str]) -> str:
    return f"without {' '.join(missing)}" if missing else "all of them"


def _float_abi(facts: DeviceFacts) -> str:
    kinds = {"/lib/ld-linux-armhf.so.3": "hard", "/lib/ld-linux.so.3": "soft", "/lib/ld-musl-armhf.so.1": "hard"}
    found = dict.fromkeys(kinds[loader] for loader in facts.loaders if loader in kinds)
    return ", ".join(found) or "no 32-bit Arm loader"


def space_needed(upload_bytes: int, output_bytes: int = 0) -> int:
    """Bytes that must be free on the device for an upload, and for outputs (0 where nobody knows their size)."""
    return upload_bytes + output_bytes + (_MARGIN if upload_bytes else 0)


def _program(bundle: Bundle, needs: ProgramNeeds, method: str) -> list[Finding]:
    offers = bundle.manifest.offers
    engine = f"{offers.engine} {offers.engine_version}"
    if needs.unchecked:
        return [_finding("program", f"readable by {engine}", needs.unchecked, None)]
    described = needs.method(method)
    if described is None:
        has = ", ".join(each.name for each in needs.methods) or "none"
        return [_finding("method", method, has, False, "a program that has the method")]
    otherwise = "for an older operator set" if needs.program.opsets else "with a partitioner that takes it"
    if offers.programs:
        otherwise = f"./inv build --target {bundle.manifest.target} --ops-from with this program too"
    lacks = described.missing_operators
    if offers.engine == "lean" and lacks and complex_only(lacks) and _runs(bundle.manifest.target, "executorch"):
        otherwise = "--engine executorch, which computes with complex numbers"
    of_language = lacks and set(lacks) <= set(LANGUAGE)
    if offers.engine == "executorch" and of_language and _runs(bundle.manifest.target, "lean"):
        otherwise = "--engine lean, which has them"
    opsets = ", ".join(f"{domain} {version}" for domain, version in sorted(needs.program.opsets.items()))
    return [
        _finding("program", f"readable by {engine}", "read", True),
        *([_finding("operator sets", opsets, "known", True)] if opsets else []),
        _offered("backend", described.backends, described.missing_backends, offers, otherwise),
        _offered("operator", described.operators, described.missing_operators, offers, otherwise),
    ]


def _runs(target: str, engine: str) -> bool:
    found = load_targets().get(target)
    return found is not None and engine in found.working_engines


def _offered(kind: str, needed: Sequence[str], missing: Sequence[str], offers: Offers, otherwise: str) -> Finding:
    """A name is missing if the runner says so, or if the manifest does not list it.

    An empty list means that the engine does not report it; that of a selective bundle may really be empty.
    """
    offered = offers.backends if kind == "backend" else offers.operators
    listed = bool(offered or offers.programs)
    lacking = tuple(dict.fromkeys([*missing, *(each for each in needed if listed and each not in offered)]))
    has = f"without {', '.join(lacking)}" if lacking else "all of them"
    fix = f"export without the {kind}{'s' if len(lacking) > 1 else ''}, or {otherwise}"
    row = _finding(f"{kind}s", _count(needed, kind), has, not lacking, fix)
    return row.model_copy(update={"error": "missing-operator", "names": lacking})


def _count(names: Sequence[str], kind: str) -> str:
    return f"{len(names)} {kind}s" if len(names) > 3 else ", ".join(names) or "none"


def failure(findings: Sequence[Finding], device: Device, bundle: Bundle) -> SlipwayError | None:
    """The error that names all bad findings; ``None`` if there are none.

    Its class is that of the gravest one: first a device that cannot run the bundle, then a program that the bundle
    cannot run, then a full disk.
    """
    bad = [finding for finding in findings if finding.verdict == "bad"]
    if not bad:
        return None
    target, engine = bundle.manifest.target, bundle.manifest.engine
    kinds: tuple[tuple[str, Callable[..., SlipwayError], str], ...] = (
        ("preflight", PreflightError, f"The {target} bundle cannot run on {device.name}"),
        ("missing-operator", MissingOperatorError, f"The {target} bundle of {engine} cannot run the program"),
        ("device-full", DeviceFullError, f"{device.name} has no space for the upload"),
    )
    kind, error, what = next(one for one in kinds if any(finding.error == one[0] for finding in bad))
    cause = "\n".join(f"  {finding.check}: needs {finding.needs}; has {finding.has}" for finding in bad)
    fixes = list(dict.fromkeys(finding.fix for finding in bad if finding.error == kind and finding.fix))
    if any(finding.check in _FIRST for finding in bad):
        # On another architecture, advice about its loader or libraries is useless.
        other = target != device.target
        fixes = [f"./inv deploy --device {device.name} --target {device.target}"] if other else fixes[:1]
    return error(
        f"{what}: {len(bad)} of {len(findings)} checks failed; nothing was uploaded.",
        cause.strip(),
        "; ".join(fixes),
        [name for finding in bad for name in (finding.names or (finding.check,))],
    )


def at_least(has: str, needs: str) -> bool:
    """Whether version ``has`` is ``needs`` or newer."""
    return _version(has) >= _version(needs)


def _version(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]{1,18}", text)]
