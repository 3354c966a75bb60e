"""The options of the tasks that have many, below the headings of their ``--help``."""

from __future__ import annotations

TASKS: dict[str, tuple[str, ...]] = {
    "Build, export, deploy": ("deploy", "build", "export", "models.list", "models.add-package", "targets", "doctor"),
    "Devices": (
        "devices.list", "devices.add", "devices.trust", "devices.start", "devices.stop", "devices.run",
        "devices.verify", "devices.rollback", "devices.gc",
    ),
    "Measure and compare": ("matrix", "compare", "inspect", "lab"),
    "For a project and this checkout": ("profiles", "clean", "test"),
}  # fmt: skip
"""The tasks below the headings of ``./inv --list``; those that prove Slipway itself are listed by ``--list self``."""
EXPORT = {
    "What to export": ["model", "scheme", "format", "samples"],
    "How to divide it": ["partitioners", "per-op-mode", "config-precisions", "options"],
    "How to run the export": ["force", "jobs", "no-warm"],
    "What is printed": ["json"],
}
DEPLOY = {
    "What to run": [
        "model", "scheme", "partitioners", "options", "samples", "program", "data", "method", "inputs",
        "input-shapes", "expected",
    ],
    "Where, and with which runtime": [
        "device", "target", "engine", "toolchain", "bundle", "provider", "ort-threads", "ort-spinning",
    ],
    "How to run and to measure it": [
        "num-executions", "warmup", "generate", "cpu-threads", "cpu-affinity", "pin-governor", "cooldown",
        "profile", "etdump", "values", "kleidiai", "cpu-features",
    ],
    "When it takes long or fails": ["timeout", "wait", "retries"],
    "What stays, and what is printed": ["no-weights-cache", "keep-run", "json"],
}  # fmt: skip
MATRIX = {
    "Which cells": [
        "only", "devices", "engines", "models", "schemes", "variants", "toolchain", "shard", "list", "print-matrix",
    ],
    "How to run and to measure them": [
        "rounds", "num-executions", "warmup", "cpu-threads", "pin-governor", "cooldown", "jobs", "kleidiai",
        "cpu-features",
    ],
    "When it takes long or fails": ["resume", "timeout", "wait", "retries"],
    "Reports and baselines": ["name", "baseline", "fail-on-regression", "save-baseline", "merge", "history", "json"],
}  # fmt: skip
LAB = {
    "What is compared": ["layers", "shape", "model", "types", "against"],
    "Where and how it runs": ["device", "rounds", "cpu-threads", "pin-governor", "cooldown", "timeout", "jobs"],
    "Reports": ["name", "resume", "list", "update", "json"],
}
COMPARE = {
    "What is compared": ["model", "schemes", "variants", "engines", "devices", "toolchain"],
    "How accuracy is measured": ["data", "samples", "metric"],
    "How to run and to measure it": [
        "rounds", "num-executions", "warmup", "cpu-threads", "pin-governor", "timeout", "wait", "retries",
    ],
    "What is printed": ["json"],
}  # fmt: skip
