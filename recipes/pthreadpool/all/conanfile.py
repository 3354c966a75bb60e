from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, export_conandata_patches, save

required_conan_version = ">=2.4"


class PthreadpoolConan(ConanFile):
    name = "pthreadpool"
    description = "A pool of threads for loops of one to six dimensions"
    license = "BSD-2-Clause"
    homepage = "https://github.com/google/pthreadpool"
    topics = ("multi-threading", "pthreads", "multi-core", "threadpool")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "sync_primitive": ["default", "condvar", "futex"],
    }
    default_options = {"shared": False, "fPIC": True, "sync_primitive": "default"}
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"
    implements = ["auto_shared_fpic"]
    languages = ["C"]

    def export_sources(self):
        export_conandata_patches(self)

    def validate(self):
        compiler = str(self.settings.compiler)
        if self.settings.os == "Windows" and compiler in ("gcc", "clang") and self.version != "cci.20240616":
            raise ConanInvalidConfiguration("it needs C11's <threads.h>, which MinGW has not: pthreadpool/cci.20240616")

    def layout(self):
        cmake_layout(self, src_folder="src")

    def requirements(self):
        self.requires("fxdiv/cci.20200417")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        variables = toolchain.cache_variables
        variables["PTHREADPOOL_LIBRARY_TYPE"] = "shared" if self.options.shared else "static"
        variables["PTHREADPOOL_SYNC_PRIMITIVE"] = str(self.options.sync_primitive)
        variables["PTHREADPOOL_BUILD_TESTS"] = False
        variables["PTHREADPOOL_BUILD_BENCHMARKS"] = False
        # The profile decides about ccache, and FXdiv is a package of its own: nothing is looked for or downloaded.
        variables["CCACHE_BINARY"] = "OFF"
        variables["FXDIV_SOURCE_DIR"] = self.dependencies["fxdiv"].package_folder.replace("\\", "/")
        packages = Path(self.generators_folder, "packages.cmake")
        variables["CMAKE_PROJECT_pthreadpool_INCLUDE"] = packages.as_posix()
        save(self, packages, "find_package(fxdiv CONFIG REQUIRED)\n")
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="pthreadpool")

    def package(self):
        self._record()
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, str(Path(self.package_folder, "licenses")))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "pthreadpool")
        self.cpp_info.set_property("cmake_target_name", "pthreadpool::pthreadpool")
        self.cpp_info.set_property("cmake_target_aliases", ["pthreadpool"])
        self.cpp_info.libs = ["pthreadpool"]
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
