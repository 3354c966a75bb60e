"""The names that the Tab key offers after an option: devices, models, schemes, targets."""

from __future__ import annotations

from collections.abc import Iterable

from core.cli.completion import SOURCES, Names


def _devices() -> Iterable[str]:
    from deploy.devices.inventory import load_devices

    return load_devices()


def _models() -> Iterable[str]:
    from models.zoo import load_zoo

    return load_zoo()


def _schemes() -> Iterable[str]:
    from models.zoo.schemes import load_schemes

    return load_schemes()


def _targets() -> Iterable[str]:
    from toolchains.targets import load_targets

    return load_targets()


def _constant(*names: str) -> Names:
    return lambda: names


def put_in() -> None:
    """Give them to `core.cli.completion`."""
    SOURCES.update(
        {
            "device": _devices,
            "devices": _devices,
            "model": _models,
            "models": _models,
            "scheme": _schemes,
            "schemes": _schemes,
            "target": _targets,
            "engine": _constant("executorch", "lean", "onnxruntime"),
            "engines": _constant("executorch", "lean", "onnxruntime", "default", "all"),
            "toolchain": _constant("zig", "gnu", "ndk"),
            "provider": _constant("xnnpack", "cpu"),
            "kleidiai": _constant("on", "off"),
            "format": _constant("pte", "onnx"),
            "sources": _constant("auto", "debian", "git"),
        }
    )
