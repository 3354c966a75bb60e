"""Runs of pytest inside tests."""

from __future__ import annotations

QUICK = tuple(word for name in ("hypothesispytest", "xdist", "labgrid") for word in ("-p", f"no:{name}"))
"""Options against plugins that take a second to load."""
