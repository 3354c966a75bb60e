"""A small static C program for any target that zig links, to prove a device with: streams, exit status, files."""

from __future__ import annotations

import subprocess
from pathlib import Path

from core.files import locked, new_folder, sha256_bytes
from core.paths import cache_dir
from toolchains.compilers import zig
from toolchains.targets import Target, get_target, load_targets

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

/* echo WORDS: one a line, then an error line; exit N; signal N; cat FILE; where; sleep; compute */
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
  if (!strcmp(what, "compute")) {
    volatile float sum = 0;
    for (int i = 1; i <= 1000; i++) sum += 1.0f / i;
    return printf("%.4f %zu\n", sum, sizeof(void *)) < 0;
  }
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
