import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "slipway_sources"))
from tested import Tested


class TestPackageConan(Tested):
    pass
