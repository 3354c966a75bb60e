from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, export_conandata_patches

required_conan_version = ">=2.4"


class CpuinfoConan(ConanFile):
    name = "cpuinfo"
    description = "What the CPU can do, its cores and caches"
    license = "BSD-2-Clause"
    homepage = "https://github.com/pytorch/cpuinfo"
    topics = ("cpu", "cpuid", "cpu-cache", "cpu-model", "instruction-set", "cpu-topology")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "log_level": ["default", "debug", "info", "warning", "error", "fatal", "none"],
    }
    default_options = {"shared": False, "fPIC": True, "log_level": "default"}
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"
    implements = ["auto_shared_fpic"]
    languages = ["C"]

    def export_sources(self):
        export_conandata_patches(self)

    def layout(self):
        cmake_layout(self, src_folder="src")

    def validate(self):
        if self.settings.os == "Windows" and self.options.shared:
            raise ConanInvalidConfiguration("upstream's cpuinfo exports no symbols from a DLL: shared=False")

    def generate(self):
        toolchain = CMakeToolchain(self)
        variables = toolchain.cache_variables
        variables["CPUINFO_LIBRARY_TYPE"] = "shared" if self.options.shared else "static"
        variables["CPUINFO_RUNTIME_TYPE"] = "default"
        variables["CPUINFO_LOG_LEVEL"] = str(self.options.log_level)
        variables["CPUINFO_LOG_TO_STDIO"] = True
        for part in ("TOOLS", "UNIT_TESTS", "MOCK_TESTS", "BENCHMARKS", "PKG_CONFIG"):
            variables[f"CPUINFO_BUILD_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        # cpuinfo_internals, which upstream builds too, serves its tests only.
        cmake.build(target="cpuinfo")

    def package(self):
        self._record()
        package = Path(self.package_folder)
        copy(self, "LICENSE", self.source_folder, str(package / "licenses"))
        copy(self, "cpuinfo.h", str(Path(self.source_folder, "include")), str(package / "include"))
        for pattern in ("*.a", "*.lib", "*.so", "*.dylib"):
            copy(self, pattern, self.build_folder, str(package / "lib"), keep_path=False)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "cpuinfo")
        self.cpp_info.set_property("cmake_target_name", "cpuinfo::cpuinfo")
        self.cpp_info.set_property("cmake_target_aliases", ["cpuinfo"])
        self.cpp_info.set_property("pkg_config_name", "libcpuinfo")
        self.cpp_info.libs = ["cpuinfo"]
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
