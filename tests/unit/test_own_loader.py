"""Bundles with a C library of their own: what is in them, how they are started, what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.errors import BuildError
from core.formats.bundle import REAL_RUNNER, RUNNER, Needs, runner_argv
from core.paths import ROOT
from toolchains.bundle import own_loader
from toolchains.inspect import needs as inspect

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


def test_a_device_with_a_new_enough_c_library_uses_it(bundle: Path) -> None:
    said = start(bundle / RUNNER, "--model_path=a b.onnx", "it's", "")
    assert said == ["device", f"libraries={bundle}/bin/../lib", "--model_path=a b.onnx", "it's", ""]


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


def test_the_launcher_can_be_told_and_works_through_a_link(bundle: Path, tmp_path: Path) -> None:
    assert start(bundle / RUNNER, SLIPWAY_GLIBC="bundle")[0] == "loader"
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "run"
    link.symlink_to(bundle / RUNNER)
    assert start(link, "x")[-1] == "x"


def test_the_launcher_becomes_the_runner(bundle: Path) -> None:
    """No shell stays between: a signal to the process that was started reaches the runner."""
    script(bundle / REAL_RUNNER, "#!/bin/sh\necho $$\n")
    child = subprocess.Popen([bundle / RUNNER], stdout=subprocess.PIPE, text=True)
    assert child.communicate()[0].strip() == str(child.pid)


def test_an_emulator_is_given_the_loader_and_not_the_script() -> None:
    folder = Path("/b")
    assert runner_argv(folder, "") == ["/b/bin/pte_runner"]
    assert runner_argv(folder, "lib/glibc/ld-linux-aarch64.so.1") == [
        "/b/lib/glibc/ld-linux-aarch64.so.1", "--inhibit-cache", "--library-path", "/b/lib/glibc:/b/lib",
        "/b/bin/pte_runner.real",
    ]  # fmt: skip


def test_what_makes_such_a_bundle(bundle: Path) -> None:
    assert own_loader.present(bundle)
    assert dict(own_loader.files(bundle)) == {
        "bin/pte_runner.real": 0o755, "lib/glibc/glibc_probe": 0o755, "lib/glibc/ld-linux-test.so.1": 0o755
    }  # fmt: skip
    (bundle / REAL_RUNNER).unlink()
    assert not own_loader.present(bundle)


def test_a_bundle_without_its_c_library_is_refused(bundle: Path) -> None:
    with pytest.raises(BuildError, match="no loader and C library"):
        own_loader.read(bundle)


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
