"""Compiler families: what they tell Conan and CMake and what they link in; a bundle's own C library."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from core.errors import HostError, NotSupportedError
from core.files import write_atomic
from core.formats.bundle import REAL_RUNNER, RUNNER, Needs
from core.paths import ROOT
from tests.support.processes import executable, ran
from toolchains import tools
from toolchains.bundle import conan, layout, offers, toolchain_file
from toolchains.compilers import families as compilers
from toolchains.compilers import gnu, linked_in, ndk
from toolchains.compilers.families import Compilers
from toolchains.compilers.linked_in import LinkedIn, within
from toolchains.inspect import needs as inspect
from toolchains.inspect.archives import Binary
from toolchains.targets import get_target, load_targets
from toolchains.tools import CONF

ANDROID = [target for target in load_targets().values() if target.os == "android"]


def programs(folder: Path, *names: str, version: str = "12.2.0") -> None:
    """Programs that only their names are asked of."""
    for name in names:
        executable(folder / name, f"#!/bin/sh\necho {version}\n")


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders and names as the NDK r27 has them; nothing in them is a compiler."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in (tools.VARIABLE, "CONAN_HOME"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "android-ndk-r27c"
    triples = ("aarch64-linux-android", "armv7a-linux-androideabi", "i686-linux-android", "x86_64-linux-android")
    clangs = [f"{triple}24-clang{plus}" for triple in triples for plus in ("", "++")]
    prebuilt = root / "toolchains/llvm/prebuilt/linux-x86_64"
    programs(prebuilt / "bin", *clangs, "llvm-ar", "llvm-ranlib")
    (prebuilt / "lib/clang/18").mkdir(parents=True)
    (root / "source.properties").write_text("Pkg.Desc = Android NDK\nPkg.Revision = 27.2.12479018\n", encoding="utf-8")
    return root


@pytest.mark.parametrize("target", ANDROID, ids=lambda target: target.name)
def test_an_ndk_is_found_and_described(made_up: Path, monkeypatch: pytest.MonkeyPatch, target: object) -> None:
    monkeypatch.setenv(tools.VARIABLE, str(made_up))
    chosen = get_target(getattr(target, "name"))  # noqa: B009
    assert ndk.usable(chosen) == ""
    assert chosen.toolchain() == "ndk"
    found = ndk.ensure(chosen)
    assert (found.family, found.version) == ("ndk", "27.2.12479018")
    assert Path(found.cc).is_file()
    assert found.cxx == f"{found.cc}++"
    text = conan.render(chosen, found).splitlines()
    for line in ("os=Android", "os.api_level=24", "compiler=clang", "compiler.version=18",
                 "compiler.libcxx=c++_static", f"tools.android:ndk_path={made_up}",
                 "tools.android:cmake_legacy_toolchain=False"):  # fmt: skip
        assert line in text
    assert not [line for line in text if line.startswith("tools.cmake.cmaketoolchain:system_name")]


def test_onnx_runtime_is_built_for_android_where_an_ndk_is_named(
    made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = get_target("android-arm64")
    assert "onnxruntime" not in target.working_engines
    assert target.needs("onnxruntime").startswith("an NDK: export ANDROID_NDK_HOME=")
    with pytest.raises(NotSupportedError, match="needs an NDK: export"):
        target.engine("onnxruntime")
    monkeypatch.setenv(tools.VARIABLE, str(made_up))
    assert "onnxruntime" in target.working_engines
    assert (target.engine(), target.engine("onnxruntime"), target.needs("onnxruntime")) == ("lean", "onnxruntime", "")
    with pytest.raises(NotSupportedError, match="needs --toolchain ndk: zig makes programs without"):
        target.engine("onnxruntime", "zig")


def test_without_an_ndk_android_is_built_with_zig(made_up: Path) -> None:
    target = get_target("android-arm64")
    assert target.toolchain() == "zig"
    assert "export ANDROID_NDK_HOME=" in ndk.usable(target)
    with pytest.raises(HostError, match="no NDK is named") as caught:
        ndk.ensure(target)
    assert caught.value.hint.startswith("export ANDROID_NDK_HOME=")


@pytest.mark.parametrize("where", ["cache/conan", "home/.conan2"])
def test_conans_configuration_may_name_it(made_up: Path, where: str) -> None:
    file = made_up.parent / where / "global.conf"
    write_atomic(file, f"core:x = 1\n tools.android:ndk_path = {made_up} \n")
    assert tools.named() == str(made_up)
    assert get_target("android-x86").toolchain() == "ndk"


def test_a_wrong_folder_is_not_passed_over(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who names an NDK wants bionic, not a static musl program."""
    target = get_target("android-arm64")
    monkeypatch.setenv(tools.VARIABLE, str(made_up / "toolchains"))
    assert target.toolchain() == "ndk"
    assert "lacks source.properties" in ndk.usable(target)
    monkeypatch.setenv(tools.VARIABLE, str(made_up))
    (made_up / "toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android24-clang++").unlink()
    assert "lacks" in ndk.usable(target)
    assert ndk.usable(get_target("android-x86")) == ""


def test_gcc_for_windows_is_the_one_with_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = get_target("windows-x86_64")
    plain = [f"x86_64-w64-mingw32-{tool}" for tool in ("gcc", "g++", "ar", "ranlib", "windres")]
    programs(tmp_path, *plain)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(gnu, "is_own", lambda target: False)
    programs(tmp_path / "more", "x86_64-w64-mingw32-gcc-posix", "x86_64-w64-mingw32-g++-posix", version="12-posix")
    monkeypatch.setattr(shutil, "which", lambda name, which=shutil.which: which(name, path=str(tmp_path)))
    assert "g++-posix is not installed" in gnu.usable(target)
    for file in (tmp_path / "more").iterdir():
        file.rename(tmp_path / file.name)
    text = conan.render(target, gnu.ensure(target)).splitlines()
    for line in ("os=Windows", "compiler=gcc", "compiler.version=12", "compiler.threads=posix",
                 'tools.build:exelinkflags=["-static"]', "tools.cmake.cmaketoolchain:system_name=Windows"):  # fmt: skip
        assert line in text


def test_every_reason_ends_with_what_to_type(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    for target in load_targets().values():
        for name in target.toolchains:
            if name != "zig":
                reason, _, command = compilers.family(name).usable(target).partition(": ")
                assert reason
                assert command, (target.name, name)


PLAIN = Compilers("zig", "1", "key", "/t/cc", "/t/c++", "/t/ar", "/t/ranlib", conan={})


@pytest.mark.parametrize("name", list(load_targets()))
def test_every_target_has_a_system_and_compilers(name: str) -> None:
    target = get_target(name)
    text = toolchain_file.text(target, PLAIN)
    system = {"windows": "Windows", "macos": "Darwin", "ios": "iOS"}.get(target.os, "Linux")
    assert f"set(CMAKE_SYSTEM_NAME {system})\n" in text
    assert f"set(CMAKE_SYSTEM_PROCESSOR {target.cmake_processor})\n" in text
    assert 'set(CMAKE_CXX_COMPILER "/t/c++")\n' in text
    assert 'set(CMAKE_AR "/t/ar")\n' in text


def test_what_families_need_besides() -> None:
    ndk = dataclasses.replace(PLAIN, family="ndk", conf={CONF: "/ndk"})
    text = toolchain_file.text(get_target("android-armv7"), ndk)
    assert text.index("set(ANDROID_ABI armeabi-v7a)") < text.index('"/ndk/build/cmake/android.toolchain.cmake"')
    assert "CMAKE_C_COMPILER" not in text
    gnu = dataclasses.replace(PLAIN, family="gnu", flags=("-msse2", "-mfpmath=sse"))
    assert 'set(CMAKE_CXX_FLAGS_INIT "-msse2 -mfpmath=sse -f' in toolchain_file.text(get_target("linux-x86"), gnu)
    assert '-static")\nset(CMAKE_FIND' in toolchain_file.text(get_target("windows-x86_64"), gnu)
    assert "-static" not in toolchain_file.text(get_target("windows-x86_64"), PLAIN)
    apple = dataclasses.replace(PLAIN, conf={"tools.apple:sdk_path": "/sdk"})
    text = toolchain_file.text(get_target("ios-arm64"), apple)
    assert 'set(CMAKE_OSX_SYSROOT "/sdk")' in text
    assert "set(CMAKE_OSX_DEPLOYMENT_TARGET 15.0)" in text
    assert "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)" in text


@pytest.fixture
def zig_lib(tmp_path: Path) -> Path:
    """The parts of zig's distribution that are read."""
    lib = tmp_path / "ziglang" / "lib"
    mingw = "#define __MINGW64_VERSION_{}\n"
    texts = {
        "libcxx/include/__config": "#  define _LIBCPP_VERSION 220108\n",
        "libc/include/any-windows-any/_mingw_mac.h": "".join(map(mingw.format, ("MAJOR 15", "MINOR 0", "BUGFIX 2"))),
        "libc/musl/src/internal/version.h": '#define VERSION "1.2.5"\n',
    }
    for name, text in texts.items():
        write_atomic(lib / name, text)
    return lib


@pytest.mark.parametrize(
    ("name", "besides"),
    [
        ("linux-armv6", {"musl": "1.2.5", "libunwind": "22.1.8"}),
        ("windows-arm64", {"mingw-w64": "15.0.2", "libunwind": "22.1.8"}),
        ("macos-x86_64", {}),
    ],
)
def test_programs_without_the_systems_libraries(zig_lib: Path, name: str, besides: dict[str, str]) -> None:
    found = {one.name: one.version for one in linked_in.of_zig("0.17.0", zig_lib, get_target(name), "")}
    assert found == {"zig-compiler-rt": "0.17.0", "libc++": "22.1.8", "libc++abi": "22.1.8", **besides}


def test_libstdcxx_is_in_what_does_not_need_the_devices(zig_lib: Path) -> None:
    linked = linked_in.of_zig("0.17.0", zig_lib, get_target("linux-arm64"), "12.2.0-14")
    alone = within(linked, ["libc.so.6", "libgcc_s.so.1"])
    assert [(one.name, one.version) for one in alone] == [
        ("zig-compiler-rt", "0.17.0"), ("glibc", "2.28"), ("libstdc++", "12.2.0-14"),
    ]  # fmt: skip
    assert [one.name for one in within(linked, ["libc.so.6", "libstdc++.so.6"])] == ["zig-compiler-rt", "glibc"]
    assert alone[2].purl == "pkg:generic/libstdc%2B%2B@12.2.0-14"


def test_texts_are_delivered_with_what_is_in_a_program(tmp_path: Path) -> None:
    text = tmp_path / "COPYRIGHT"
    text.write_text("terms", encoding="utf-8")
    musl = LinkedIn("musl", "1.2.5", "MIT", "https://musl.libc.org", (text,))
    shared = LinkedIn("libstdc++", "12", "MIT", "https://gcc.gnu.org", (text,), instead_of="libstdc++.so.6")
    program = Binary(tmp_path / "x", "aarch64", "none", "", "", ("libstdc++.so.6",), (), {})
    assert layout.linked_into([program], [musl, shared], tmp_path / "out") == (musl,)
    assert (tmp_path / "out/licenses/musl/COPYRIGHT").read_text(encoding="utf-8") == "terms"
    assert not (tmp_path / "out/licenses/libstdc++").exists()
    assert layout.linked_into([], [musl], tmp_path / "none") == ()
    assert not (tmp_path / "none").exists()


SAY = '#!/bin/sh\nprintf "%s\\n" {name} "libraries=$LD_LIBRARY_PATH" "$@"\n'


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle whose programs only say how they were called."""
    folder = tmp_path / "a bundle"
    executable(folder / RUNNER, (ROOT / "runtime/engines/onnxruntime/pte_runner.sh").read_text(encoding="utf-8"))
    executable(folder / REAL_RUNNER, SAY.format(name="device"))
    executable(folder / "lib/glibc/ld-linux-test.so.1", SAY.format(name="loader"))
    executable(folder / "lib/glibc/glibc_probe", "#!/bin/sh\nexit 0\n")
    return folder


def start(program: Path, *words: str, **env: str) -> list[str]:
    done = ran([program, *words], env={"PATH": "/usr/bin:/bin", **env})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_device_with_a_new_enough_c_library_uses_it(bundle: Path, tmp_path: Path) -> None:
    said = start(bundle / RUNNER, "--model_path=a b.onnx", "it's", "")
    assert said == ["device", f"libraries={bundle}/bin/../lib", "--model_path=a b.onnx", "it's", ""]
    assert start(bundle / RUNNER, SLIPWAY_GLIBC="bundle")[0] == "loader"
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "run"
    link.symlink_to(bundle / RUNNER)
    assert start(link, "x")[-1] == "x"
    executable(bundle / REAL_RUNNER, "#!/bin/sh\necho $$\n")
    child = subprocess.Popen([bundle / RUNNER], stdout=subprocess.PIPE, text=True)
    assert child.communicate()[0].strip() == str(child.pid)


@pytest.mark.parametrize("probe", ["#!/bin/sh\necho no >&2; exit 1\n", "#!/no/such/loader\n"])
def test_a_device_with_too_old_a_one_uses_the_bundles(bundle: Path, probe: str) -> None:
    executable(bundle / "lib/glibc/glibc_probe", probe)
    said = start(bundle / RUNNER, "--describe", "a b")
    lib = f"{bundle}/bin/../lib"
    assert said[0] == "loader"
    assert said[2:] == [
        "--inhibit-cache", "--library-path", f"{lib}/glibc:{lib}", "--argv0", str(bundle / RUNNER),
        f"{bundle}/bin/pte_runner.real", "--describe", "a b",
    ]  # fmt: skip


def library(name: str, glibc: str) -> inspect.Binary:
    return inspect.Binary(Path(name), "aarch64", "none", "", name, (), (), {"GLIBC": glibc})


def test_what_the_probe_does_not_tell_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = offers.OwnLibc("lib/glibc/ld-linux-test.so.1", "2.41", "3.7.0")
    monkeypatch.setattr(offers, "read", lambda _: own)
    monkeypatch.setattr(offers, "probed", lambda _: "2.38")
    assert offers.problems(bundle, [library("a.so", "2.38")]) == []
    (found,) = offers.problems(bundle, [library("a.so", "2.39")])
    assert "a.so needs GLIBC 2.39 (at most 2.38)" in found
    assert len(offers.problems(bundle, [library("a.so", "2.42")])) == 2
    needs = offers.needs(bundle, Needs(os="linux", machine="aarch64", glibc="2.38", loader="/lib/x"))
    assert (needs.glibc, needs.loader, needs.own_glibc_from, needs.kernel) == ("", "", "2.38", "4.11.0")
