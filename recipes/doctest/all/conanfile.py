from pathlib import Path

from conan import ConanFile
from conan.tools.files import copy
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"


class DoctestConan(ConanFile):
    name = "doctest"
    description = "A test framework for C++ in one header"
    license = "MIT"
    homepage = "https://github.com/doctest/doctest"
    topics = ("testing", "unit-test", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"

    def layout(self):
        basic_layout(self, src_folder="src")

    def package(self):
        self._record()
        copy(self, "LICENSE.txt", self.source_folder, str(Path(self.package_folder, "licenses")))
        copy(self, "doctest/doctest.h", self.source_folder, str(Path(self.package_folder, "include")))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "doctest")
        self.cpp_info.set_property("cmake_target_name", "doctest::doctest")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
