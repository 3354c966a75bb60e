"""Figures of the engine lean beside upstream's: processes of both in turns."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
