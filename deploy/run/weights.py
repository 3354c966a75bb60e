"""The packed weights that the engine lean keeps in a device's store, so that later loads need not pack them.

The runner makes, checks and replaces the file by itself (docs/lean.md); this side only chooses its name and whether
there is room. Nothing records this file's digest: `./inv devices.verify` removes the file, and garbage
collection removes it with its program or when space is short.
"""

from __future__ import annotations

from core.files import sha256_bytes
from core.formats.bundle import Bundle
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.run.runner import RunnerResult
from deploy.run.settings import Settings
from deploy.store.store import Blob, Store

ENGINE = "lean"
_ROOM = 4
"""Times the program's size that must be free: packed weights take up to twice its size, and are written beside an older
file."""


def cache_name(settings: Settings, device: Device, bundle: Bundle, facts: DeviceFacts, model: Blob) -> str:
    """The file's path below the device's root; empty: no cache for this run, as where space is short."""
    manifest = bundle.manifest
    wanted = manifest.engine == ENGINE and settings.weights_cache and device.weights_cache
    room = facts.free is None or facts.free >= _ROOM * model.size
    # Other kernels read other packed weights: runs with and without them in turns would each pack theirs again.
    limits = f"-{sha256_bytes(' '.join(settings.limits).encode())[:8]}" if settings.limits else ""
    return f"weights/{model.sha256}.{manifest.target}-{manifest.engine}{limits}" if wanted and room else ""


def cache_flags(store: Store, name: str) -> list[str]:
    """The runner's flags for a cache of that name."""
    return [f"--weights_cache={store.path(name)}"] if name else []


def load_text(runner: RunnerResult) -> str:
    """The load time with what the cache did to it: ``0.91 ms, 7.37 ms without the weights cache``."""
    text = f"{runner.load_ms:.2f} ms"
    cache = runner.weights.cache if runner.weights else None
    if cache is None:
        return text
    if cache.found and cache.packing_load_ms:
        return f"{text} with the weights cache kept on the device, {cache.packing_load_ms:.2f} ms without"
    if cache.state in {"made", "extended"}:
        return f"{text}; the weights cache for the next load was written ({cache.why})"
    return f"{text}; no weights cache: {cache.why}" if cache.state == "none" else text
