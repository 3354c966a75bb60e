"""Preflight: each thing that can be wrong gives its own row, all rows together one error of the right class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.console.units import amount
from core.errors import DeviceFullError, MissingOperatorError, PreflightError
from core.formats.bundle import Bundle, Manifest, Needs, Offers
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.devices.probe import TOOLS
from deploy.run.needs import Method, ProgramNeeds
from deploy.run.preflight import Finding, check, failure

NEEDS = Needs(
    os="linux", machine="aarch64", glibc="2.28", glibcxx="3.4.22", loader="/lib/ld-linux-aarch64.so.1",
    libraries=("libc.so.6", "libstdc++.so.6"), cpu_features=("fp", "asimd"),
)  # fmt: skip
FACTS = DeviceFacts(
    system="Linux", machine="aarch64", kernel="6.1", root="/home/pi/.slipway", cpu_features=("fp", "asimd", "crc32"),
    libc="glibc", glibc="2.36", glibcxx="3.4.30", loaders=("/lib/ld-linux-aarch64.so.1",),
    libraries=("libc.so.6", "libstdc++.so.6"), tools=TOOLS, free=1 << 30, memory_available=1 << 30,
)  # fmt: skip
METHOD = Method(name="forward", backends=("XnnpackBackend",), operators=("aten::add.out",))
PI = Device(name="pi", transport="ssh", host="pi", target="linux-arm64")


def bundle(needs: Needs = NEEDS, **offers: Any) -> Bundle:
    given = {
        "engine": "executorch", "engine_version": "1.5.1", "backends": ("XnnpackBackend",),
        "operators": ("aten::add.out",), "kleidiai": False, "verified": "native", **offers,
    }  # fmt: skip
    manifest = Manifest(target="linux-arm64", engine="executorch", toolchain="zig", created="", needs=needs,
                        offers=Offers(**given), files=())  # fmt: skip
    return Bundle(path=Path("/nowhere"), manifest=manifest)


def rows(
    facts: DeviceFacts = FACTS, method: Method = METHOD, of: Bundle | None = None, upload: int = 1000, outputs: int = 0
) -> list[Finding]:
    described = ProgramNeeds(methods=(method,))
    return check(
        of or bundle(), facts, described, "forward", upload_bytes=upload, program_bytes=1000, output_bytes=outputs
    )  # fmt: skip


def bad(found: list[Finding]) -> list[str]:
    return [finding.check for finding in found if finding.verdict == "bad"]


def test_all_is_well_or_all_that_lacks_is_named() -> None:
    found = rows()
    assert bad(found) == []
    assert {finding.verdict for finding in found} == {"ok"}
    assert failure(found, PI, bundle()) is None
    method = METHOD.model_copy(update={"operators": ("aten::add.out", "aten::a.out", "aten::b.out"),
                                       "missing_operators": ("aten::a.out",)})  # fmt: skip
    found = rows(method=method)
    assert bad(found) == ["operators"]
    error = failure(found, PI, bundle())
    assert isinstance(error, MissingOperatorError)
    assert (error.exit_code, error.names) == (13, ("aten::a.out", "aten::b.out"))
    assert "aten::b.out" in str(error)
    method = METHOD.model_copy(update={"backends": ("QnnBackend",), "missing_backends": ("QnnBackend",)})
    error = failure(rows(method=method), PI, bundle())
    assert isinstance(error, MissingOperatorError)
    assert error.names == ("QnnBackend",)
    found = check(bundle(), FACTS, ProgramNeeds(methods=(METHOD,)), "encode", upload_bytes=0, program_bytes=0)
    assert bad(found) == ["method"]


@pytest.mark.parametrize(("change", "expected"), [
    ({"machine": "x86_64"}, ["machine"]), ({"system": "Darwin"}, ["operating system"]),
    ({"cpu_features": ("fp",)}, ["CPU features"]),
    ({"loaders": ("/lib/ld-musl-aarch64.so.1",), "libc": "musl", "glibc": "", "libraries": ()},
     ["loader", "GLIBC", "libraries"]),
    ({"glibc": "2.9"}, ["GLIBC"]), ({"glibcxx": "3.4.9"}, ["GLIBCXX"]),
    ({"libraries": ("libc.so.6",)}, ["libraries"]), ({"tools": ("stat",)}, ["tools"]),
    ({"noexec": True}, ["runs programs"]), ({"writable": False}, ["may write"]),
    ({"free": 1000}, ["free space"]), ({"memory_available": 1 << 20}, ["memory"]),
])  # fmt: skip
def test_each_lack_has_its_row(change: dict[str, Any], expected: list[str]) -> None:
    assert bad(rows(FACTS.model_copy(update=change))) == expected


def test_what_a_bundle_needs_of_the_system() -> None:
    assert bad(rows(FACTS.model_copy(update={"glibc": "2.100"}))) == []
    hard = NEEDS.model_copy(update={"machine": "armv7l", "float_abi": "hard", "loader": "/lib/ld-linux-armhf.so.3"})
    soft = FACTS.model_copy(update={"machine": "armv7l", "loaders": ("/lib/ld-linux.so.3",)})
    found = rows(soft, of=bundle(hard))
    assert bad(found) == ["float ABI", "loader"]
    assert next(finding for finding in found if finding.check == "float ABI").has == "soft"
    static = Needs(os="linux", machine="aarch64", libc="static")
    bare = FACTS.model_copy(update={"loaders": (), "libraries": (), "glibc": "", "libc": "", "glibcxx": ""})
    assert bad(rows(bare, of=bundle(static))) == []


def test_space_and_memory_that_a_run_takes() -> None:
    assert bad(rows(FACTS.model_copy(update={"free": 0}), upload=0)) == []
    full = FACTS.model_copy(update={"free": 4_000_000})
    assert bad(rows(full, upload=0, outputs=4_200_000)) == ["free space"]
    assert bad(rows(full, upload=0, outputs=3_900_000)) == []
    assert bad(rows(full, upload=1_000_000, outputs=2_500_000)) == ["free space"], "an upload leaves a margin, too"
    method = METHOD.model_copy(update={"planned_bytes": 2 << 30})
    assert bad(rows(method=method)) == ["memory"]
    (memory,) = (finding for finding in rows(method=method) if finding.check == "memory")
    assert (memory.needs, memory.has) == ("2.16 GB", "1.07 GB")
    assert bad(rows(method=METHOD.model_copy(update={"planned_bytes": 1 << 20}))) == []


def test_what_the_device_does_not_tell_does_not_stop() -> None:
    silent = FACTS.model_copy(update={"free": None, "glibcxx": "", "cpu_features": (), "memory_available": 0})
    found = rows(silent)
    assert bad(found) == []
    unknown = {finding.check for finding in found if finding.verdict == "unknown"}
    assert unknown == {"free space", "GLIBCXX", "CPU features", "memory"}
    assert {finding.fix for finding in found} == {""}
    (lack,) = (each for each in rows(FACTS.model_copy(update={"free": 1000})) if each.check == "free space")
    assert lack.fix.startswith("free some space")


@pytest.mark.parametrize(
    ("engine", "names", "advised"),
    [
        ("lean", ("aten::_fft_r2c.out", "aten::abs.out of complex64"), "executorch"),
        ("lean", ("aten::_fft_r2c.out", "aten::avg_pool3d.out"), ""),
        ("executorch", ("aten::_fft_r2c.out",), ""),
        ("executorch", ("llama::custom_sdpa.out", "llama::update_cache.out"), "lean"),
        ("executorch", ("llama::custom_sdpa.out", "llama::gated_delta_rule.out"), ""),
        ("lean", ("llama::gated_delta_rule.out",), ""),
    ],
)
def test_another_engine_is_advised_where_it_has_what_lacks(engine: str, names: tuple[str, ...], advised: str) -> None:
    method = METHOD.model_copy(update={"operators": names, "missing_operators": names})
    one = bundle(engine=engine, operators=())
    error = failure(rows(method=method, of=one), PI, one)
    assert error and error.names == names
    assert [one for one in ("executorch", "lean") if f"--engine {one}" in error.hint] == [advised] * bool(advised)


def test_a_selective_bundle_lacks_what_it_was_not_linked_with() -> None:
    """Its empty list means none, where an engine's own means that it does not tell."""
    method = METHOD.model_copy(update={"operators": ("aten::add.out", "aten::a.out", "aten::b.out")})
    for offered, missing in (((), ("XnnpackBackend", *method.operators)), (("aten::a.out",), method.operators[::2])):
        selective = bundle(backends=("XnnpackBackend",) if offered else (), operators=offered, programs=("mlp-fp32",))
        error = failure(rows(method=method, of=selective), PI, selective)
        assert isinstance(error, MissingOperatorError)
        assert error.names == missing
        assert "./inv build --target linux-arm64 --ops-from" in error.hint
        assert "nothing was uploaded" in error.what
    assert bad(rows(method=method, of=bundle(operators=()))) == []


def test_the_gravest_class_has_all_findings_and_a_full_disk_one_of_its_own() -> None:
    facts = FACTS.model_copy(update={"machine": "x86_64", "free": 0, "glibc": "2.17"})
    method = METHOD.model_copy(update={"missing_operators": ("aten::a.out",)})
    error = failure(rows(facts, method=method), PI, bundle())
    assert type(error) is PreflightError
    assert error.exit_code == 12
    assert error.names == ("machine", "GLIBC", "free space", "aten::a.out")
    for words in ("machine: needs aarch64; has x86_64", "GLIBC: needs ≥ 2.28; has 2.17", "aten::a.out"):
        assert words in error.cause
    assert "nothing was uploaded" in error.what
    error = failure(rows(FACTS.model_copy(update={"free": 10})), PI, bundle())
    assert isinstance(error, DeviceFullError)
    assert error.exit_code == 23
    other = Device(name="local", transport="local", target="linux-x86_64")
    error = failure(rows(FACTS.model_copy(update={"machine": "x86_64"})), other, bundle())
    assert error and error.hint == "./inv deploy --device local --target linux-x86_64"
    assert [amount(number) for number in (0, 999, 14_000_000, 20_000_000_000)] == ["0 B", "999 B", "14 MB", "20 GB"]


OWN = NEEDS.model_copy(
    update={
        "glibc": "", "glibcxx": "", "loader": "", "libraries": (), "own_loader": "lib/glibc/ld-linux-aarch64.so.1",
        "own_glibc_from": "2.38", "kernel": "4.11.0",
    }
)  # fmt: skip


@pytest.mark.parametrize(("change", "verdict"), [
    ({"glibc": "2.28"}, "ok"), ({"glibc": "2.41"}, "ok"), ({"glibc": "", "loaders": ()}, "ok"),
    ({"kernel": "4.9.0-13-arm64"}, "bad"), ({"kernel": "6.1.0-44-cloud-arm64"}, "ok"),
])  # fmt: skip
def test_a_bundle_with_a_c_library_of_its_own_runs_on_any_system_whose_kernel_is_new_enough(
    change: dict[str, Any], verdict: str
) -> None:
    facts = FACTS.model_copy(update={"glibcxx": "", "libraries": (), **change})
    found = rows(facts, of=bundle(OWN))
    assert bad(found) == ["Linux"] * (verdict == "bad")
    (row,) = [row for row in found if row.check == "Linux"]
    assert (row.needs, row.has, row.verdict) == ("≥ 4.11.0", facts.kernel, verdict)
