"""A small static C program for any target that zig links, to prove a device with: streams, exit status, files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from core.files import locked, new_folder, sha256_bytes
from core.paths import cache_dir
from toolchains import zig
from toolchains.targets import get_target

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


def small_program(target_name: str) -> Path:
    """The program for ``target_name``, built once."""
    target = get_target(target_name)
    compiler = zig.program()
    cpu = [f"-mcpu={target.zig_cpu}"] if target.zig_cpu else []
    triple = target.zig_triple.replace("gnu", "musl").partition(".")[0]
    argv = [str(compiler), "cc", "-target", triple, *cpu, "-static", "-O1", "-g0", "-s"]
    key = sha256_bytes("\0".join([SOURCE, *argv]).encode())[:16]
    folder = cache_dir("tests") / f"small-program-{key}"
    with locked(f"small-program-{key}"):
        if not folder.is_dir():
            with new_folder(folder) as new:
                (new / "small.c").write_text(SOURCE, encoding="utf-8")
                subprocess.run(
                    [*argv, "-o", str(new / "small"), str(new / "small.c")],
                    check=True, env={**os.environ, **zig.caches()},
                )  # fmt: skip
    return folder / "small"
