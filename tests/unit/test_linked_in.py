"""What compilers link in, by target, and a bundle's own C library: how it is started and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.formats.bundle import REAL_RUNNER, RUNNER, Needs, runner_argv
from core.paths import ROOT
from toolchains.bundle import layout, own_loader
from toolchains.compilers import linked_in
from toolchains.compilers.linked_in import LinkedIn, within
from toolchains.inspect import needs as inspect
from toolchains.inspect.binary import Binary
from toolchains.targets import get_target

LIBC = {"linux-armv6": "musl", "windows-arm64": "mingw-w64", "macos-x86_64": ""}


def _mingw(*version: int) -> str:
    """The lines of mingw-w64's header with its version."""
    parts = zip(("MAJOR", "MINOR", "BUGFIX"), version, strict=True)
    return "".join(f"#define __MINGW64_VERSION_{part} {number}\n" for part, number in parts)


@pytest.fixture
def zig_lib(tmp_path: Path) -> Path:
    """The parts of zig's distribution that are read."""
    lib = tmp_path / "ziglang" / "lib"
    texts = {
        "libcxx/include/__config": "#  define _LIBCPP_VERSION 220108\n",
        "libc/include/any-windows-any/_mingw_mac.h": _mingw(15, 0, 2),
        "libc/musl/src/internal/version.h": '#define VERSION "1.2.5"\n',
    }
    for name, text in texts.items():
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_text(text, encoding="utf-8")
    return lib


@pytest.mark.parametrize("name", LIBC)
def test_programs_without_the_systems_libraries(zig_lib: Path, name: str) -> None:
    found = {one.name: one.version for one in linked_in.of_zig("0.17.0", zig_lib, get_target(name), "")}
    libc = {"musl": {"musl": "1.2.5"}, "mingw-w64": {"mingw-w64": "15.0.2"}}.get(LIBC[name], {})
    unwind = {} if name.startswith("macos") else {"libunwind": "22.1.8"}
    assert found == {"zig-compiler-rt": "0.17.0", "libc++": "22.1.8", "libc++abi": "22.1.8", **libc, **unwind}


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


LAUNCHER = ROOT / "runtime/engines/onnxruntime/pte_runner.sh"
SAY = '#!/bin/sh\nprintf "%s\\n" {name} "libraries=$LD_LIBRARY_PATH" "$@"\n'


def script(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle whose programs only say how they were called."""
    folder = tmp_path / "a bundle"
    script(folder / RUNNER, LAUNCHER.read_text(encoding="utf-8"))
    script(folder / REAL_RUNNER, SAY.format(name="device"))
    script(folder / "lib/glibc/ld-linux-test.so.1", SAY.format(name="loader"))
    script(folder / "lib/glibc/glibc_probe", "#!/bin/sh\nexit 0\n")
    return folder


def start(program: Path, *words: str, **env: str) -> list[str]:
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", **env}
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_device_with_a_new_enough_c_library_uses_it(bundle: Path, tmp_path: Path) -> None:
    said = start(bundle / RUNNER, "--model_path=a b.onnx", "it's", "")
    assert said == ["device", f"libraries={bundle}/bin/../lib", "--model_path=a b.onnx", "it's", ""]
    assert start(bundle / RUNNER, SLIPWAY_GLIBC="bundle")[0] == "loader"
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "run"
    link.symlink_to(bundle / RUNNER)
    assert start(link, "x")[-1] == "x"
    script(bundle / REAL_RUNNER, "#!/bin/sh\necho $$\n")
    child = subprocess.Popen([bundle / RUNNER], stdout=subprocess.PIPE, text=True)
    assert child.communicate()[0].strip() == str(child.pid)


@pytest.mark.parametrize("probe", ["#!/bin/sh\necho no >&2; exit 1\n", "#!/no/such/loader\n"])
def test_a_device_with_too_old_a_one_uses_the_bundles(bundle: Path, probe: str) -> None:
    script(bundle / "lib/glibc/glibc_probe", probe)
    said = start(bundle / RUNNER, "--describe", "a b")
    lib = f"{bundle}/bin/../lib"
    assert said[0] == "loader"
    assert said[2:] == [
        "--inhibit-cache", "--library-path", f"{lib}/glibc:{lib}", "--argv0", str(bundle / RUNNER),
        f"{bundle}/bin/pte_runner.real", "--describe", "a b",
    ]  # fmt: skip


def test_an_emulator_is_given_the_loader_and_not_the_script() -> None:
    folder = Path("/b")
    assert runner_argv(folder, "") == ["/b/bin/pte_runner"]
    assert runner_argv(folder, "lib/glibc/ld-linux-aarch64.so.1") == [
        "/b/lib/glibc/ld-linux-aarch64.so.1", "--inhibit-cache", "--library-path", "/b/lib/glibc:/b/lib",
        "/b/bin/pte_runner.real",
    ]  # fmt: skip


def library(name: str, glibc: str) -> inspect.Binary:
    return inspect.Binary(Path(name), "aarch64", "none", "", name, (), (), {"GLIBC": glibc})


def test_what_the_probe_does_not_tell_is_refused(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_loader.OwnLibc("lib/glibc/ld-linux-test.so.1", "2.41", "3.7.0")
    monkeypatch.setattr(own_loader, "read", lambda _: own)
    monkeypatch.setattr(own_loader, "probed", lambda _: "2.38")
    assert own_loader.problems(bundle, [library("a.so", "2.38")]) == []
    (found,) = own_loader.problems(bundle, [library("a.so", "2.39")])
    assert "a.so needs GLIBC 2.39 (at most 2.38)" in found
    assert len(own_loader.problems(bundle, [library("a.so", "2.42")])) == 2
    needs = own_loader.needs(bundle, Needs(os="linux", machine="aarch64", glibc="2.38", loader="/lib/x"))
    assert (needs.glibc, needs.loader, needs.own_glibc_from, needs.kernel) == ("", "", "2.38", "4.11.0")
