from pathlib import Path

from conan import ConanFile
from conan.tools.files import copy
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"


class FxdivConan(ConanFile):
    name = "fxdiv"
    description = "Division of integers by a divisor that stays the same, as a multiplication and shifts"
    license = "MIT"
    homepage = "https://github.com/Maratyszcza/FXdiv"
    topics = ("division", "integer", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"

    def layout(self):
        basic_layout(self, src_folder="src")

    def package(self):
        self._record()
        copy(self, "LICENSE", self.source_folder, str(Path(self.package_folder, "licenses")))
        headers = str(Path(self.source_folder, "include"))
        copy(self, "*.h", headers, str(Path(self.package_folder, "include")))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "fxdiv")
        self.cpp_info.set_property("cmake_target_name", "fxdiv::fxdiv")
        self.cpp_info.set_property("cmake_target_aliases", ["fxdiv"])
        # Upstream's default; its header would choose inline assembly by itself.
        self.cpp_info.defines = ["FXDIV_USE_INLINE_ASSEMBLY=0"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
