"""The choices of kernels that `./inv tune` measured on a device, and that later deploys there take by themselves.

The runner makes and checks the file (docs/compare.md): one that is damaged, or of another runner, program or processor,
is left out with a word. It names kernels that the runner offers for a layer anyway, so it cannot change what a program
computes beyond the tolerance that it was measured with.
"""

from __future__ import annotations

import re

from core.formats.bundle import Bundle
from deploy.devices.inventory import Device
from deploy.run.job import Job
from deploy.run.runner import Tuned
from deploy.run.settings import Settings
from deploy.run.weights import ENGINE
from deploy.store.store import Store

_METHOD = re.compile(r"[A-Za-z0-9_]{1,64}")
_NONE = "there is none"


def tuned_name(settings: Settings, device: Device, bundle: Bundle, job: Job) -> str:
    """The file's path below the device's root; empty: this run takes none, and none can be made for it."""
    manifest = bundle.manifest
    # What was measured with all kernels is not for runs without some of them.
    wanted = manifest.engine == ENGINE and settings.tuned and not device.emulated and not settings.limits
    if not wanted or not _METHOD.fullmatch(job.method):
        return ""
    return f"weights/{job.model.sha256}.{manifest.target}-{manifest.engine}.{job.method}.tuned"


def tuned_flags(store: Store, name: str) -> list[str]:
    """The runner's flags for choices of that name."""
    return [f"--tuned={store.path(name)}"] if name else []


def tuned_text(tuned: Tuned) -> str:
    """What a result says of them; empty if nothing was ever measured there."""
    if tuned.state != "used":
        return "" if tuned.why == _NONE else f"not used: {tuned.why} (./inv tune measures again)"
    layers = f"{tuned.layers} layer{'s' if tuned.layers != 1 else ''} with other kernels"
    threads = f", {tuned.threads} thread{'s' if tuned.threads != 1 else ''}" if tuned.threads else ""
    gain = f"; {tuned.tuned_ms:.3f} ms instead of {tuned.own_ms:.3f} ms when it was measured" if tuned.own_ms else ""
    return f"{layers}{threads}{gain}"
