"""The shared room: errors, atomic files, commands, the two formats."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from core import errors, files, paths
from core.errors import BundleError, HostError, ProgramError, SlipwayError
from core.formats.bundle import MANIFEST, Bundle
from core.formats.program import DESCRIPTION, Operator, Program, Quantization, Tolerance, load_program
from core.paths import ROOT
from core.processes import commands
from tests.support.processes import alive, ended, ran
from tests.unit.test_preflight import bundle


def _classes(base: type[SlipwayError]) -> list[type[SlipwayError]]:
    return [base, *(found for sub in base.__subclasses__() for found in _classes(sub))]


def test_every_error_has_its_code_and_three_parts() -> None:
    classes = [cls for cls in _classes(SlipwayError) if cls.__module__ == errors.__name__]
    assert len({cls.exit_code for cls in classes}) == len(classes)
    assert len({cls.kind for cls in classes}) == len(classes)
    assert errors.INTERRUPTED not in {cls.exit_code for cls in classes}
    error = BundleError("It broke.", "a reason", "./inv doctor", ["a"])
    assert str(error) == "It broke.\nCause: a reason\nTry: ./inv doctor"
    assert error.to_json()["exit_code"] == 11
    assert error.to_json()["names"] == ["a"]


def test_write_atomic_leaves_the_old_file_when_the_rename_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    files.write_atomic(target, "old")

    def broken(self: Path, other: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(HostError, match="No space left"):
        files.write_atomic(target, "new")
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_write_atomic_renames_over_nothing_but_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    target, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    for name in (target, tmp_path / "new"):  # what a link leads to, there or not, is written; the link stays
        link.unlink(missing_ok=True)
        link.symlink_to(name)
        files.write_atomic(link, "here")
        assert (link.readlink(), name.read_text(encoding="utf-8")) == (name, "here")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_atomic(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    for stream in (os.devnull, "/dev/stdout"):  # by a link of the test's own: a fault must not replace the machine's
        link.unlink()
        link.symlink_to(stream)
        files.write_atomic(link, f"for {stream}")
        assert link.is_symlink()
    assert capfd.readouterr().out == "for /dev/stdout"
    link.unlink()
    link.symlink_to(target)
    if os.geteuid() == 0:
        os.lchown(link, 4711, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4712)
    for refused in (link, tmp_path):
        with pytest.raises(HostError, match="it is no file"):
            files.write_atomic(refused, "new")
    assert (target.read_text(encoding="utf-8"), link.is_symlink()) == ("here", True)


def test_run_reports_a_failure_with_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import sys; sys.stderr.write('first\\nlast words\\n'); sys.exit(3)"
    with pytest.raises(errors.BuildError, match="Compiling failed \\(exit 3\\)") as caught:
        commands.run([sys.executable, "-c", code], error=errors.BuildError, what="Compiling", log=log)
    assert "last words" in caught.value.cause
    assert "last words" in log.read_text(encoding="utf-8")
    with pytest.raises(HostError, match="does not exist"):
        commands.run(["no-such-program-here"])


_ENDLESS = """
import resource, sys
from pathlib import Path
from core import errors
from core.processes import commands
log = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = "import sys; sys.%s.write('first words' + '.' * (%d << 20) + 'last words'); sys.exit(%d)"
argv = [sys.executable, "-c", code % (sys.argv[2], int(sys.argv[4]), int(sys.argv[3]))]
try:
    done = commands.run(argv, log=log, what="Compiling")
    print(done.returncode, done.stderr[:11], done.stderr[-10:], len(done.stderr) < 3 << 20)
except errors.SlipwayError as error:
    print(error)
print("MiB:", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.parametrize(
    ("stream", "code", "says", "most"),
    [
        ("stderr", 0, "0 first words last words True", 16),
        ("stderr", 1, "Compiling failed (exit 1).", 16),
        ("stdout", 0, "Compiling printed more than 67,108,864 bytes, and was ended.", 140),
    ],
)
def test_what_a_program_prints_takes_little_memory(
    tmp_path: Path, stream: str, code: int, says: str, most: int
) -> None:
    """Messages are in the log alone but for their ends; an answer has a limit."""
    log = tmp_path / "log"
    size = "80" if stream == "stdout" else "40"
    argv = [sys.executable, "-c", _ENDLESS, str(log), stream, str(code), size]
    done = ran(argv, cwd=ROOT)
    assert done.stdout.startswith(says), done.stdout[:500]
    assert len(done.stdout) < 10_000
    assert int(done.stdout.rpartition("MiB: ")[2]) < most
    if stream == "stderr":
        assert log.stat().st_size > 40 << 20
        with log.open("rb") as file:
            file.seek(-100, os.SEEK_END)
            assert f"last words\n[exit {code}]" in file.read().decode()


def test_timeout_ends_the_whole_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid_file}; trap '' TERM; wait; sleep 60"
    drain = commands.drain

    def late(*words: Any) -> int:  # its time begins when it has begun
        limit = time.monotonic() + 60
        while not (pid_file.exists() and pid_file.read_text(encoding="utf-8").strip()) and time.monotonic() < limit:
            time.sleep(0.02)
        return drain(*words)

    monkeypatch.setattr(commands, "drain", late)
    with pytest.raises(HostError, match="took longer than 1 s"):
        commands.run(["sh", "-c", script], timeout=1, what="Sleeping")
    pid = int(pid_file.read_text(encoding="utf-8"))
    assert ended(lambda: alive(pid))


def test_a_second_ctrl_c_ends_the_child_at_once(tmp_path: Path) -> None:
    """The first one grants it three seconds, which it would use."""
    began = tmp_path / "began"
    code = (
        "import os, signal, subprocess, time\n"
        "from core.processes import commands\n"
        "wait = subprocess.Popen.wait\n"
        "def waiting(child, seconds=None):\n"
        "    if seconds: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return wait(child, seconds)\n"
        f"with commands.process(['sh', '-c', 'trap \"\" TERM; echo >{began}; sleep 60; sleep 60']) as child:\n"
        f"    while not os.path.exists('{began}'): time.sleep(0.01)\n"
        "    print(child.pid, flush=True)\n"
        "    subprocess.Popen.wait = waiting\n"
        "    raise KeyboardInterrupt\n"
    )
    done = ran([sys.executable, "-c", code], cwd=ROOT)
    assert done.stderr.count("KeyboardInterrupt") >= 2, done.stderr
    assert not alive(int(done.stdout))


@pytest.mark.parametrize("path", ["/etc/passwd", "../out", "bin/../../x", "", "a\\b", "a\nb"])
def test_manifest_paths_that_leave_the_bundle_are_refused(tmp_path: Path, path: str) -> None:
    value = bundle().manifest.model_dump(mode="json")
    for name, said in (("bin/pte_runner", "bin/pte_runner: missing"), (path, "not a manifest")):
        value["files"] = [{"path": name, "size": 6, "sha256": "0" * 64, "executable": True}]
        (tmp_path / MANIFEST).write_text(json.dumps(value), encoding="utf-8")
        with pytest.raises(BundleError, match=said):
            Bundle.load(tmp_path)


def _program(folder: Path) -> Program:
    data = b"program" * 100
    (folder / "model.pte").write_bytes(data)
    program = Program(
        name="m-fp32", model="m", scheme="fp32", file="model.pte", size=len(data), sha256=files.sha256_bytes(data),
        inputs=(), outputs=(), reference_engine="x", tolerance=Tolerance(atol=0, rtol=0, why="exact"),
        delegates=1, delegated=(Operator(name="aten.add.Tensor", count=1),), undelegated=(),
        quantization=Quantization(scheme="fp32"), export_key="k", versions={}, seconds=1.0,
    )  # fmt: skip
    (folder / DESCRIPTION).write_text(program.model_dump_json(), encoding="utf-8")
    return program


def test_a_program_is_loaded_as_it_was_written_and_no_other(tmp_path: Path) -> None:
    program = _program(tmp_path)
    assert load_program(tmp_path) == program
    file = tmp_path / "model.pte"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(ProgramError, match="truncated: 699 of 700 bytes"):
        load_program(tmp_path)
    file.write_bytes(b"X" + whole[1:])
    with pytest.raises(ProgramError, match="SHA-256 differs"):
        load_program(tmp_path)
    file.unlink()
    with pytest.raises(ProgramError, match="missing"):
        load_program(tmp_path)
    _program(tmp_path)
    source = tmp_path / DESCRIPTION
    value = json.loads(source.read_text(encoding="utf-8"))
    value["another"] = 1
    source.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(ProgramError, match="not a program's description"):
        load_program(tmp_path)


@pytest.mark.parametrize(("mode", "owner", "said"), [
    (0o755, "me", ""), (0o775, "me", ""), (0o777, "me", "everyone"), (0o1777, "me", "everyone"),
    (0o775, "group", "the group"), (0o755, "other", "the user 4711, to whom it belongs"), (0o755, "root", ""),
])  # fmt: skip
def test_a_cache_that_others_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: str, said: str
) -> None:
    folder = tmp_path / "my cache"
    folder.mkdir()
    folder.chmod(mode)
    uid, gid = {"me": (1000, 1000), "group": (1000, 100), "other": (4711, 4711), "root": (0, 0)}[owner]
    found = os.stat_result((folder.stat().st_mode, 0, 0, 0, uid, gid, 0, 0, 0, 0))
    real = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **how: found if path == folder else real(path, **how))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("SLIPWAY_CACHE", str(folder))
    paths._check_own.cache_clear()
    if not said:
        assert paths.cache_dir("logs") == folder / "logs"
        return
    with pytest.raises(errors.ConfigError, match=said) as caught:
        paths.cache_dir("logs")
    assert caught.value.hint.startswith(f"chmod go-w '{folder}'" if uid == 1000 else "set SLIPWAY_CACHE")
