"""The zoo on the engine lean beside upstream's runtime, on every CPU."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
