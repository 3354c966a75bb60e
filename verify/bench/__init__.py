"""Figures of the engine lean beside upstream's and other runtimes: processes in turns, on nets of other projects."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
