"""What a copy of the warm exporter does: one export, with the command's own environment; its outcome goes back."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import SlipwayError
from core.processes.interrupts import from_ctrl_c
from models.lowering import progress


def enter(request: dict[str, Any], added: Mapping[str, str]) -> None:
    """Take over the environment of the command, beside what libraries have set."""
    os.environ.clear()
    os.environ.update({**added, **request["environment"]})
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    time.tzset()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def run(connection: socket.socket, request: dict[str, Any], added: Mapping[str, str]) -> int:
    """Export; send stages, then ``folder`` or ``error``. Exit code 0 if one of them was sent."""
    enter(request, added)

    def send(message: dict[str, Any]) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    def heard(name: str, text: str, expected: float | None, stage: bool) -> None:
        send({"stage": [name, text, expected, stage]})

    progress.listener[:] = [heard]
    from models.export import export

    try:
        folder = export(
            request["model"],
            request["scheme"],
            partitioners=request["partitioners"],
            options=request["options"],
            force=request["force"],
            out=Path(request["out"]) if request["out"] else None,
            format=request["format"],
        )
    except SlipwayError as error:
        send({"error": {"class": type(error).__name__, "parts": [error.what, error.cause, error.hint, error.names]}})
        return 0
    except (KeyboardInterrupt, Exception) as error:
        if not from_ctrl_c(error):
            raise
        return 130
    send({"folder": os.fspath(folder)})
    return 0
