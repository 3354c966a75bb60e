import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "slipway_sources"))
from tested import Tested


class TestPackageConan(Tested):
    def run_programs(self):
        # Through the package's own loader: this system's C library may be older than the libraries need.
        libraries = Path(self.dependencies["onnxruntime"].package_folder) / "lib"
        loader = next((libraries / "glibc").glob("ld-linux*"))
        self.run(f'"{loader}" --library-path "{libraries / "glibc"}:{libraries}" "{self.program()}"')
