"""A process that deploys to one device, cell after cell, for `deploy.matrix.run`.

Requests come on standard input, a line of JSON each; events and results go to standard output the same way. It is a
process of its own so that Ctrl-C ends its deploy as it ends any deploy (the device is left in order), and so that no
device can block or crash another's. It ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

from core.cli.start import again
from core.errors import INTERRUPTED, SlipwayError
from core.formats.bundle import Bundle
from deploy.devices.inventory import Device
from deploy.run.events import Event
from deploy.run.pipeline import deploy
from deploy.run.settings import Settings


def main() -> int:
    """Serve requests until there are none; the exit status is `INTERRUPTED` after SIGINT."""
    sys.unraisablehook = again
    signal.signal(signal.SIGINT, signal.default_int_handler)  # our parent may ignore it
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        for line in sys.stdin:
            _say(answers, _serve(json.loads(line), answers))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _serve(request: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    def heard(event: Event) -> None:
        if event.kind in {"start", "note"} and event.text:
            _say(answers, {"event": event.kind, "text": event.text})

    try:
        result = deploy(
            Device.model_validate(request["device"]),
            Bundle.load(Path(request["bundle"]), verify=False),
            Path(request["path"]),
            Settings.model_validate(request["settings"]),
            listeners=[heard],
        )
    except SlipwayError as error:
        return {"problem": error.to_json()}
    return {"result": json.loads(result.model_dump_json())}  # infinities as texts: JSON has none


def _say(answers: IO[str], value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
