"""A device over SSH as a process of its own, so that it can hang and lose its power.

Usage: python -m tests.support.board FOLDER PORT
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tests.faults import server

if __name__ == "__main__":
    with server.serve(Path(sys.argv[1]), port=int(sys.argv[2])):
        (Path(sys.argv[1]) / "up").touch()
        threading.Event().wait()
