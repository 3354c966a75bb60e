"""Figures of the engine lean beside upstream's, and beside other runtimes: processes in turns, on nets of PyPI's packages."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
