"""What a device can do at most, measured on it by the runner (``pte_runner --roofline``)."""

from __future__ import annotations

import json

from core import console
from core.errors import AnswerError, SlipwayError
from core.formats.bundle import RUNNER, Bundle
from core.strict_json import JsonError, parse_json, validated
from deploy.devices.inventory import Device
from verify.layers.model import Peak

_LIMIT = 1 << 20
"""Bytes of the answer."""


def peaks(device: Device, bundle: Bundle, threads: int = 1) -> tuple[Peak, ...]:
    """One thread, and ``threads`` (all, where that is 1).

    None for an emulated device, whose times mean nothing, and, with a note, where the device or the runner cannot
    measure it.
    """
    from deploy.run.execute import execute

    if device.emulated:
        return ()
    words = ["--roofline", "--json", *(["--cpu_threads", str(threads)] if threads > 1 else [])]
    try:
        done = execute(device, bundle.path / RUNNER, words)
        return read(done.stdout)
    except SlipwayError as error:
        console.note(f"{device.name}: its peak is not known: {error.what}")
        return ()


def read(raw: bytes) -> tuple[Peak, ...]:
    """The runner's answer.

    Raises:
        AnswerError: it is not an answer to ``--roofline``.
    """
    try:
        points = parse_json(raw, limit=_LIMIT)["roofline"]
        return tuple(
            validated(Peak, {name: point[name] for name in ("threads", "feature", "gflops", "gbytes_per_s")})
            for point in points
        )
    except (JsonError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise AnswerError("The runner's roofline cannot be read.", str(error)[:300], "./inv build --force") from error
