from typing import ClassVar

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class EverywhereConan(ConanFile):
    name = "everywhere"
    version = "1"
    settings = "os", "arch", "compiler", "build_type"
    options: ClassVar = {"fPIC": [True, False]}
    default_options: ClassVar = {"fPIC": True}

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()
