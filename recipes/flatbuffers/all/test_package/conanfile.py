import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "slipway_sources"))
from tested import Tested


class TestPackageConan(Tested):
    def build_requirements(self):
        # The compiler of schemas runs on the machine that builds, the headers serve the one that runs.
        self.tool_requires(self.tested_reference_str, options={"flatc": True})
