from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy

required_conan_version = ">=2.4"


class FlatbuffersConan(ConanFile):
    name = "flatbuffers"
    description = "Memory-efficient serialization: the C++ headers and, with option flatc, the schema compiler"
    license = "Apache-2.0"
    homepage = "https://flatbuffers.dev"
    topics = ("serialization", "rpc", "json-parser", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    options = {"flatc": [True, False]}
    default_options = {"flatc": False}
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"
    # The headers are all a program needs that reads and verifies buffers. flatc runs on the machine that builds:
    # take it as a tool, tool_requires("flatbuffers/<host_version>", options={"flatc": True}).

    def layout(self):
        cmake_layout(self, src_folder="src")

    def package_id(self):
        if not self.info.options.flatc:
            self.info.settings.clear()
        self.info.conf.clear()
        super().package_id()

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 11)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "FLATLIB", "FLATHASH", "GRPCTEST", "SHAREDLIB"):
            toolchain.cache_variables[f"FLATBUFFERS_BUILD_{part}"] = False
        toolchain.cache_variables["FLATBUFFERS_INSTALL"] = False
        if self.options.flatc:
            # It reads a few small schemas. Unoptimized, and of a few files, it is compiled in a fifth of the time.
            toolchain.cache_variables["CMAKE_UNITY_BUILD"] = True
            toolchain.cache_variables["CMAKE_UNITY_BUILD_BATCH_SIZE"] = 6
            toolchain.cache_variables["CMAKE_CXX_FLAGS_RELEASE"] = "-DNDEBUG"
        toolchain.generate()

    def build(self):
        if self.options.flatc:
            cmake = CMake(self)
            cmake.configure()
            cmake.build(target="flatc")

    def package(self):
        self._record()
        copy(self, "LICENSE", self.source_folder, str(Path(self.package_folder, "licenses")))
        headers = str(Path(self.source_folder, "include"))
        copy(self, "flatbuffers/*.h", headers, str(Path(self.package_folder, "include")))
        if self.options.flatc:
            program = "flatc.exe" if self.settings.os == "Windows" else "flatc"
            if not copy(self, program, self.build_folder, str(Path(self.package_folder, "bin")), keep_path=False):
                raise ConanException("the build left no flatc")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "flatbuffers")
        self.cpp_info.set_property("cmake_target_name", "flatbuffers::flatbuffers")
        self.cpp_info.set_property("pkg_config_name", "flatbuffers")
        self.cpp_info.libs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = ["bin"] if self.options.flatc else []
