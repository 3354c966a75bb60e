"""What tests of virtual devices share: a machine of the test's own, what every device must do, and a small program."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import DeadlineError, PreflightError
from core.files import locked, new_folder, sha256_bytes
from core.paths import cache_dir
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import FILE, Device, get_device
from deploy.devices.probe import device_root, probe
from deploy.run.connect import open_device
from deploy.run.execute import Executed, execute
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline
from deploy.virtual import machines as virtual
from tests.support.processes import gone
from toolchains.compilers import zig
from toolchains.targets import Target, get_target, load_targets


@contextlib.contextmanager
def own_devices(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Virtual devices started inside have a state of their own, and are ended with it."""
    with pytest.MonkeyPatch.context() as patch:
        folder = factory.mktemp("devices")
        patch.setenv("SLIPWAY_DEVICES", str(folder))
        patch.delenv(virtual.IDLE_VARIABLE, raising=False)
        try:
            yield
        finally:
            assert virtual.stop_all()
            assert virtual.stop_all() == []
            assert gone(str(folder))


def facts_of(device: Device, transport: Transport) -> DeviceFacts:
    return probe(transport, device_root(device), None, Deadline.after(120))


def ask(transport: Transport, script: str, *words: str) -> str:
    return run(transport, ["sh", "-c", script, "test", *words], deadline=Deadline.after(120)).text


def left_over(transport: Transport, device: Device, facts: DeviceFacts) -> list[str]:
    """Unfinished files and run folders in the device's store, and processes of the small program."""
    files = ask(transport, 'cd "$1" && find incoming runs -mindepth 1; true', facts.root).split()
    script = (
        'for f in /proc/[0-9]*/comm; do read -r name <"$f" && [ "$name" = small ] && echo "$f"; done 2>/dev/null; true'
    )
    return files + ask(transport, script).splitlines()


def runs_programs(name: str, target: str, tmp_path: Path) -> None:
    """Push a static program of ``target`` to the device ``name`` and see streams, exit status, files, and an end."""
    device = get_device(name, FILE)
    assert device.target == target
    small = small_program(target)

    def go(*words: str, files: tuple[Path, ...] = (), timeout: float = 300) -> Executed:
        return execute(device, small, words, files, timeout)

    words = ["two words", "$HOME `id` 'quoted\"", "*", "-n", "ü"]
    first = go("echo", *words)
    assert (first.code, first.stdout.decode().splitlines(), first.stderr) == (0, words, b"done\n")
    assert first.uploaded == small.stat().st_size
    data = tmp_path / "a file's name, with $(odd) things"
    data.write_bytes(bytes(range(256)) * 300)
    second = go("cat", data.name, files=(data,))
    assert (second.code, second.stdout, second.uploaded) == (0, data.read_bytes(), data.stat().st_size)
    begun = time.monotonic()
    assert go("signal", "11").code == 139
    usual = time.monotonic() - begun

    with open_device(device) as transport:
        facts = facts_of(device, transport)
        with pytest.raises(DeadlineError, match="while running small"):
            go("sleep", timeout=10 + 2 * usual)  # on a busy host everything before takes longer too
        assert left_over(transport, device, facts) == []
        where = go("where")
        folder, temporary = where.stdout.decode().splitlines()
        assert folder.startswith(f"{facts.root}/runs/")
        assert temporary == folder
        assert (where.code, where.uploaded) == (0, 0)
        assert left_over(transport, device, facts) == []


def refuses(name: str, target: str) -> None:
    """A program of another kind is refused before anything is pushed."""
    with pytest.raises(PreflightError, match="nothing was uploaded"):
        execute(get_device(name, FILE), small_program(target))


SOURCE = r"""
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int copy(const char *from) {
  int c;
  FILE *file = fopen(from, "rb");
  if (!file) return fprintf(stderr, "%s: %s\n", from, strerror(errno)), 4;
  while ((c = fgetc(file)) != EOF) putchar(c);
  return fclose(file);
}

/* echo WORDS: one a line, then an error line; exit N; signal N; cat FILE; where; sleep */
int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "echo")) {
    for (int i = 2; i < argc; i++) puts(argv[i]);
    fputs("done\n", stderr);
    return 0;
  }
  if (!strcmp(what, "exit")) return atoi(argv[2]);
  if (!strcmp(what, "signal")) return raise(atoi(argv[2])), 1;
  if (!strcmp(what, "cat")) return copy(argv[2]);
  if (!strcmp(what, "where")) {
    char folder[4096];
    const char *tmp = getenv("TMPDIR");
    FILE *file = fopen("written", "w");
    if (!file || fclose(file)) return 5;
    return printf("%s\n%s\n", getcwd(folder, sizeof folder), tmp ? tmp : "none") < 0;
  }
  if (!strcmp(what, "sleep")) return fork(), sleep(4242);
  return 2;
}
"""


def _like(target: Target) -> Target:
    """The target whose run-time libraries serve a static program of ``target``: that of musl where it has glibc.

    zig takes a minute to build the C library of one, and other tests need these anyway.
    """
    triple = target.zig_triple.replace("gnu", "musl").partition(".")[0]
    return next(row for row in load_targets().values() if (row.zig_triple, row.zig_cpu) == (triple, target.zig_cpu))


def small_program(target_name: str) -> Path:
    """The program for ``target_name``, built once."""
    compilers = zig.ensure(_like(get_target(target_name)))
    key = sha256_bytes(f"{SOURCE}\0{compilers.key}".encode())[:16]
    folder = cache_dir("tests") / f"small-program-{key}"
    with locked(f"small-program-{key}"):
        if not folder.is_dir():
            with new_folder(folder) as new:
                (new / "small.c").write_text(SOURCE, encoding="utf-8")
                # Linked by itself, as CMake does: zig keeps its libraries once more for programs of another kind.
                for words in (["-O1", "-c", "small.c"], ["-s", "small.o", "-o", "small"]):
                    subprocess.run([compilers.cc, *words], cwd=new, check=True)
    return folder / "small"
