"""What the recipes' test packages have in common: a program that is built against the package, and run if it can be."""

from pathlib import Path

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class Tested(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def program(self, name="test_package"):
        return Path(self.build_folder, self.cpp.build.bindir, name)

    def run_programs(self):
        self.run(str(self.program()), env="conanrun")

    def test(self):
        if can_run(self):
            self.run_programs()
