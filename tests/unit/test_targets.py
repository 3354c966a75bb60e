"""The table of targets: complete, consistent, and clear about what does not work."""

from __future__ import annotations

import dataclasses
import platform
import typing

import pytest

from core.errors import ConfigError, NotSupportedError
from toolchains.targets import ENGINES, Target, get_target, host_target, load_targets

CHOICES = {
    "os": {"linux", "android", "windows", "macos", "ios"},
    "machine": {"x86_64", "aarch64", "armv7l", "armv6l", "i686"},
    "float_abi": {"hard", "soft", "none"},
    "libc": {"glibc", "musl", "static", "bionic", "msvcrt", "system"},
}


@pytest.mark.parametrize("name", load_targets())
def test_a_row_has_known_values_and_does_not_contradict_itself(name: str) -> None:
    table = get_target(name)
    hints = typing.get_type_hints(Target)
    for target in (table, table.with_shared_libraries()):
        for key, choices in CHOICES.items():
            assert getattr(target, key) in choices
        for field in dataclasses.fields(Target):
            value, kind = getattr(target, field.name), hints[field.name]
            assert isinstance(value, str if kind is str else tuple if "tuple" in str(kind) else dict), field.name
        apple = target.os in ("macos", "ios")
        assert target.toolchains
        assert target.zig_triple or "zig" not in target.toolchains
        assert (target.libc == "glibc") == bool(target.max_glibc)
        assert (target.os == "android") == bool(target.android_api)
        assert apple == bool(target.os_version)
        assert not apple or target.zig_triple.endswith(f".{target.os_version}")
        assert not target.qemu or target.qemu_cpu in target.qemu_cpus
        assert target.engines.keys() <= set(ENGINES)
        assert all(target.engines.values())
    assert {hints[key] for key in table.shared} <= {str}


def test_an_unknown_target_names_near_ones_or_all() -> None:
    with pytest.raises(ConfigError, match="did you mean linux-arm64") as caught:
        get_target("linux-arm46")
    assert caught.value.exit_code == 3
    with pytest.raises(ConfigError, match="linux-x86_64, linux-x86,"):
        get_target("zzz")


def test_what_a_target_does_not_have_is_refused() -> None:
    target = dataclasses.replace(get_target("linux-arm64"), engines={"lean": "the lean engine"})
    with pytest.raises(NotSupportedError, match=r"still needed: .*lean engine") as caught:
        target.engine()
    assert caught.value.exit_code == 7
    assert caught.value.hint.startswith("./inv build --target ")
    with pytest.raises(NotSupportedError, match="which publishes none for 32-bit systems") as caught:
        get_target("linux-armv7").engine("executorch")
    assert caught.value.hint == "./inv build --target linux-armv7 --engine lean"
    with pytest.raises(NotSupportedError, match="not meant for this target"):
        get_target("linux-armv6").engine("onnxruntime")
    target = get_target("linux-arm64")
    with pytest.raises(ConfigError, match="executorch, lean, onnxruntime"):
        target.engine("tflite")
    assert (target.engine(), target.toolchain()) == ("executorch", "zig")
    assert target.toolchain("gnu") == "gnu"
    with pytest.raises(ConfigError, match="'ndk' does not build linux-arm64") as wrong:
        target.toolchain("ndk")
    assert wrong.value.hint.endswith("--toolchain zig")


def test_every_target_builds_and_ios_has_its_engine_in_the_library_alone() -> None:
    embedded = {name: target.embedded_engines for name, target in load_targets().items() if target.embedded_engines}
    assert embedded == {"ios-arm64": ("lean",)}
    assert all(target.working_engines or target.embedded_engines for target in load_targets().values())
    for words in ("", "lean"):
        with pytest.raises(NotSupportedError, match="no pte_runner for ios-arm64") as caught:
            get_target("ios-arm64").engine(words)
        assert caught.value.hint == "./inv build --target ios-arm64 --sdk"
    with pytest.raises(NotSupportedError, match="executorch cannot be built"):
        get_target("ios-arm64").engine("executorch")


@pytest.mark.parametrize(("system", "machine", "name"), [
    ("Linux", "x86_64", "linux-x86_64"), ("Linux", "aarch64", "linux-arm64"), ("Linux", "armv8l", "linux-armv7"),
    ("Linux", "i386", "linux-x86"), ("Darwin", "arm64", "macos-arm64"), ("Windows", "AMD64", "windows-x86_64"),
])  # fmt: skip
def test_this_machine_is_one_of_the_targets(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, name: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert host_target().name == name
