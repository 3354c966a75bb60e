"""The sweep's bookkeeping: parts that are kept, findings put together, packages that are there already."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from core.errors import ConfigError, MismatchError, UsageError
from core.paths import cache_dir
from verify.fuzz import build as fuzz_build
from verify.fuzz import sweeping
from verify.fuzz.sweeping import Part


@pytest.fixture
def part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Part:
    """Of a program that a script tries."""
    monkeypatch.setenv("SLIPWAY_DIST", str(tmp_path / "dist"))
    tool = tmp_path / "sweep_program"
    finding = {"patch": 7, "path": "a.b", "was": "1", "now": "2", "outcome": "crashed", "report": "signal 11 at (nil)"}
    last = {"fields": 3, "patches": 30, "tried": 30, "sums": {"crashed": 1, "ran": 9, "loaded": 2, "refused-3": 18}}
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(finding)}\n{json.dumps(last)}\nEND\n", encoding="utf-8")
    tool.chmod(0o755)
    file = tmp_path / "model.pte"
    file.write_bytes(b"program")
    return Part(fuzz_build.GUARDED, "mlp-fp32", file, 0, 30, 1, (str(tool),))


def count(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Every part that is tried from now on."""
    tried: list[Part] = []
    attempt = sweeping.attempt

    def noted(part: Part) -> sweeping.Tried:
        tried.append(part)
        return attempt(part)

    monkeypatch.setattr(sweeping, "attempt", noted)
    return tried


def test_what_was_tried_is_not_tried_again(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = count(monkeypatch)
    [(_, first)] = sweeping.sweep([part], again=False)
    assert first.sums["ran"] == 9
    Path(part.argv[0]).touch()
    [(_, second)] = sweeping.sweep([part], again=False)
    assert (second, len(tried)) == (first, 1)
    part.file.write_bytes(b"another program")
    sweeping.sweep([part], again=False)
    assert len(tried) == 2, "of another program nothing is known"
    with Path(part.argv[0]).open("a", encoding="utf-8") as tool:
        tool.write("# another engine\n")
    sweeping.sweep([part], again=False)
    assert len(tried) == 3


def test_a_finding_fails_the_command_and_is_told(part: Part, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MismatchError, match="1 changed programs") as caught:
        sweeping.report([(part, sweeping.attempt(part))], as_json=True)
    assert "--first=7 --count=1" in caught.value.hint
    assert list(caught.value.names) == ["mlp-fp32: a.b 1 -> 2"]
    [row] = json.loads(capsys.readouterr().out)["programs"]
    assert row == {"form": "guarded", "program": "mlp-fp32", "tried": 30, "refused": 18, "ran": 11, "findings": 1}


def test_a_sweep_that_ends_by_itself_is_no_success(part: Part) -> None:
    Path(part.argv[0]).write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    with pytest.raises(MismatchError, match="ended by itself"):
        sweeping.attempt(part)


def test_one_fault_is_one_group() -> None:
    report = "ERROR: AddressSanitizer: SEGV on unknown address 0x12\n#0 (/x/sweep+0x1f)\n"
    assert sweeping.what({"outcome": "crashed", "report": report}) == "crashed: AddressSanitizer: SEGV"
    assert sweeping.what({"outcome": "crashed", "report": "signal 11 at 0x9"}) == "crashed: signal 11"
    assert sweeping.what({"outcome": "no words", "report": "1234 of 0x5"}) == "no words: N of N"


def test_wrong_words_are_told() -> None:
    with pytest.raises(UsageError, match="no form shiped"):
        sweeping.run("shiped", "", 1, as_json=False)
    with pytest.raises(ConfigError, match="No program is called 'mlp-x\\*'"):
        sweeping.programs("mlp-x*")


def test_packages_that_are_there_are_taken_without_conans_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolchains.bundle import conan

    profile = tmp_path / "profile"
    profile.write_text("[settings]\n", encoding="utf-8")
    monkeypatch.setattr(conan, "profile", lambda target: profile)
    monkeypatch.setattr(conan, "build_profile", lambda: profile)
    monkeypatch.setattr(fuzz_build, "cache_dir", lambda *parts: tmp_path / "cache" / "one")
    (tmp_path / "cache" / "one").mkdir(parents=True)
    (tmp_path / "flatc").touch()
    here = str(tmp_path)
    found = fuzz_build.Dependencies(here, here, {"EXECUTORCH_SCHEMA_DIR": here}, f"{here};/nowhere", here, here)
    kept = tmp_path / "cache" / "one" / "dependencies.json"
    kept.write_text(json.dumps(asdict(found)), encoding="utf-8")

    @contextlib.contextmanager
    def held(name: str, waiting: str = "") -> Iterator[None]:
        raise AssertionError(f"{name} is another build's")
        yield

    monkeypatch.setattr(fuzz_build, "locked", held)
    assert fuzz_build.dependencies(tmp_path / "log") == found
    (tmp_path / "flatc").unlink()
    with pytest.raises(AssertionError, match="another build's"):
        fuzz_build.dependencies(tmp_path / "log")


def test_packages_stay_as_they_are_while_it_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.files import locks
    from toolchains.bundle import conan_packages

    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    here = str(tmp_path)
    found = fuzz_build.Dependencies(here, here, {}, "", here, here)
    builders = cache_dir("locks") / f"{conan_packages.BUILDERS}.lock"
    free: list[bool] = []

    def compiled(*words: object) -> None:
        with locks.attempt(builders) as given:
            free.append(given)

    monkeypatch.setattr(fuzz_build, "dependencies", lambda log: found)
    monkeypatch.setattr(fuzz_build, "_cmake", compiled)
    fuzz_build.build(fuzz_build.GUARDED, "sweep_program", tmp_path / "log")
    assert free == [False]
    with locks.attempt(builders) as given:
        assert given
