"""Figures: of our own commands, of engines, of transfers."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
