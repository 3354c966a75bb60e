import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "slipway_sources"))
from tested import Tested


class TestPackageConan(Tested):
    def run_programs(self):
        model = Path(self.source_folder, "linear.pte")
        for name in ("test_package", "test_package_c"):
            self.run(f'"{self.program(name)}" "{model}"', env="conanrun")
