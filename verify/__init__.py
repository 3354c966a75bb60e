"""What proves and measures: agreement with upstream, operators, damaged programs, benchmarks, and the tests' run."""

import os

os.environ.setdefault("SLIPWAY_WEIGHTS", "random")  # figures must not depend on what the cache has
