"""How recipes get a file of Debian's archive: ``python -m toolchains.debian.fetch_source SUITE PACKAGE FILE SHA256``.

The file is upstream's tarball in the source package, or, when its name ends in ``.deb``, the binary package itself.

Conan's profiles name this command (conf ``user.slipway:fetch``), so recipes know nothing of apt. It prints the
verified file's path; a failure is three lines on stderr.

``python -m toolchains.debian.fetch_source pins SUITE ARCH PACKAGE...`` prints what a suite has now, by file name and
SHA-256, for a recipe's ``conandata.yml``: one line a package, those that the packages depend on included.

``... --fsys-tarfile FILE`` writes the archive of a package's files, as ``dpkg-deb`` does: recipes call it by that name
(`stand_in`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from core.errors import SlipwayError, UsageError
from core.files import keep_text, sha256_file
from core.paths import IMPORTS, cache_dir


def command() -> list[str]:
    """The command as a profile names it; it works in any folder, with this Python."""
    return ["/usr/bin/env", f"PYTHONPATH={IMPORTS}", sys.executable, "-m", "toolchains.debian.fetch_source"]


def stand_in() -> Path | None:
    """A folder for ``PATH`` with a program ``dpkg-deb``, for recipes on a machine without it; else nothing."""
    if shutil.which("dpkg-deb"):
        return None
    folder = cache_dir("tools", "deb")
    keep_text(folder / "dpkg-deb", f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n', 0o755)
    return folder


def _run(words: Sequence[str]) -> str:
    from toolchains.debian import packages as debian
    from toolchains.debian import tree

    if words[:1] == ["--fsys-tarfile"] and len(words) == 2:
        tree.write_files_archive(Path(words[1]), sys.stdout.buffer)
        return ""
    if words[:1] == ["pins"] and len(words) > 3:
        files = debian.fetch(words[1], words[2], words[3:], closure=True)
        return "".join(f'      {file.name}: "{sha256_file(file)}"\n' for file in sorted(files))
    if len(words) != 4:
        raise UsageError(
            "This command takes SUITE PACKAGE FILE SHA256, or pins SUITE ARCH PACKAGE...",
            f"got {len(words)} words",
            "SUITE, PACKAGE and FILE as in a recipe's conandata.yml",
        )
    suite, _, file, sha256 = words
    path = debian.binary(suite, file, sha256) if file.endswith(".deb") else debian.source(*words)
    return os.fspath(path) + "\n"


def main(words: Sequence[str]) -> int:
    """Fetch, and print what there is; the exit code is the error's own."""
    try:
        sys.stdout.write(_run(words))
    except SlipwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
