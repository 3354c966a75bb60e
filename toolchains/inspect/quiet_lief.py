"""LIEF without what it prints at a process's end: names of objects that other threads still held, on users' terminals.

Import it late.
"""

from __future__ import annotations

import lief

__all__ = ["lief"]

lief.disable_leak_warning()
