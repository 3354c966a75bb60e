"""The agent for Windows: compiled here when it is first needed, and kept by the digest of its sources."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from core.errors import BuildError
from core.files import locked, sha256_bytes, write_atomic
from core.paths import cache_dir
from core.processes.commands import run
from toolchains.compilers import zig

FOLDER = Path(__file__).with_name("agent")
_TARGET = "x86_64-windows-gnu"
"""Windows on Arm runs programs for x86-64 as well, from version 11 on."""
_FLAGS = ("-std=c++17", "-O2", "-s", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra", "-Werror")
_LIBRARIES = ("-lbcrypt", "-ladvapi32")


def program() -> Path:
    """The agent's file.

    Raises:
        HostError: no compiler to be had here. BuildError: it does not compile.
    """
    sources = sorted(FOLDER.glob("*.cpp"))
    told = [zig.pinned_version(), _TARGET, *_FLAGS, *_LIBRARIES]
    parts = [*(file.read_bytes() for file in (*sources, FOLDER / "agent.h")), *map(str.encode, told)]
    kept = cache_dir("toolchains") / f"agent-{sha256_bytes(bytes(1).join(parts))[:16]}.exe"
    if not kept.is_file():
        with locked("windows-agent"):
            if not kept.is_file():
                with tempfile.TemporaryDirectory(prefix="slipway-agent-") as folder:
                    made = Path(folder) / kept.name
                    run(
                        [zig.program(), "c++", "-target", _TARGET, *_FLAGS, *sources, *_LIBRARIES, "-o", made],
                        env={**os.environ, **zig.caches()}, error=BuildError, what="Building the agent for Windows",
                    )  # fmt: skip
                    write_atomic(kept, made.read_bytes())
    return kept
