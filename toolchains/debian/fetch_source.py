"""How recipes get a file of Debian's archive: ``python -m toolchains.debian.fetch_source SUITE PACKAGE FILE SHA256``.

The file is upstream's tarball in the source package, or, when its name ends in ``.deb``, the binary package itself.

Conan's profiles name this command (conf ``user.slipway:fetch``), so recipes know nothing of apt. It prints the
verified file's path; a failure is three lines on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from core.errors import SlipwayError, UsageError
from core.paths import IMPORTS


def command() -> list[str]:
    """The command as a profile names it; it works in any folder, with this Python."""
    return ["/usr/bin/env", f"PYTHONPATH={IMPORTS}", sys.executable, "-m", "toolchains.debian.fetch_source"]


def main(words: Sequence[str]) -> int:
    """Fetch one file and print its path; the exit code is the error's own."""
    try:
        if len(words) != 4:
            raise UsageError(
                "This command takes four arguments: SUITE PACKAGE FILE SHA256.",
                f"got {len(words)}",
                "SUITE, PACKAGE and FILE as in a recipe's conandata.yml",
            )
        from toolchains.debian import packages as debian

        suite, _, file, sha256 = words
        path = debian.binary(suite, file, sha256) if file.endswith(".deb") else debian.source(*words)
        sys.stdout.write(os.fspath(path) + "\n")
    except SlipwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
