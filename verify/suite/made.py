"""Programs that a script exports, made once for all runs of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from core.errors import ExportError
from core.files import locked, new_folder, sha256_bytes, sha256_file
from core.paths import cache_dir
from models.request import versions


def made_by(script: Path) -> Path:
    """The folder that ``python SCRIPT FOLDER`` fills. It is kept in the cache, so do not change it.

    A script may import the exporter's packages and the standard library only: they and its own text decide what it
    makes.

    Raises:
        ExportError: the script failed.
    """
    parts = [sha256_file(script), sys.version, versions()]
    folder = cache_dir("tests", "made") / f"{script.stem}-{sha256_bytes(json.dumps(parts).encode())[:16]}"
    with locked(folder.name, f"waiting for another export of {script.name}"):
        if not folder.is_dir():
            with new_folder(folder) as new:
                # -I: a module of the script's folder or ours cannot become an input that nobody counts.
                done = subprocess.run([sys.executable, "-I", script, new], capture_output=True, text=True, check=False)
                if done.returncode:
                    raise ExportError(f"{script} failed.", done.stderr[-3000:], f"python {script} FOLDER")
    return folder
