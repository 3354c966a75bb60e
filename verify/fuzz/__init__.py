"""Damaged programs: by chance, and number by number."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
