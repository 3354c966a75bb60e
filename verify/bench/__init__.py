"""Figures: of the engine lean beside upstream's, and of transfers."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
