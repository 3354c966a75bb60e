"""Pins of binary packages, for a recipe's ``conandata.yml``: what a suite has now, by file name and SHA-256.

``python -m toolchains.debian.pins SUITE ARCH PACKAGE...`` prints one line a package, those that the packages
depend on included. For those who move a recipe to newer packages; builds do not use it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from core.errors import SlipwayError, UsageError
from core.files import sha256_file


def main(words: Sequence[str]) -> int:
    """Print the pins; the exit code is the error's own."""
    try:
        if len(words) < 3:
            raise UsageError(
                "This command takes at least three arguments: SUITE ARCH PACKAGE...",
                f"got {len(words)}",
                "python -m toolchains.debian.pins bookworm amd64 libc6",
            )
        from toolchains.debian import packages as debian

        suite, arch, *packages = words
        for file in sorted(debian.fetch(suite, arch, packages, closure=True)):
            sys.stdout.write(f'      {file.name}: "{sha256_file(file)}"\n')
    except SlipwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
