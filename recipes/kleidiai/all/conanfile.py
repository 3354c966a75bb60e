from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy

required_conan_version = ">=2.4"


class KleidiaiConan(ConanFile):
    name = "kleidiai"
    description = "Arm's kernels for matrix multiplication, quantization and packing, up to SME2"
    license = "Apache-2.0 AND BSD-3-Clause"
    homepage = "https://gitlab.arm.com/kleidi/kleidiai"
    topics = ("arm", "neural-network", "inference", "matrix-multiplication", "sme2", "i8mm")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"fPIC": [True, False]}
    default_options = {"fPIC": True}
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"
    exports_sources = "fortify/*"
    implements = ["auto_shared_fpic"]
    languages = ["C"]

    @property
    def _compiled(self):
        """Whether the sources are Debian's, compiled already."""
        return self._place == "debian"

    def layout(self):
        cmake_layout(self, src_folder="src")

    def validate(self):
        if self.settings.arch != "armv8":
            raise ConanInvalidConfiguration(f"KleidiAI is for 64-bit Arm, not for {self.settings.arch}")
        if self._compiled and self.settings.os not in ("Linux", "Android"):
            raise ConanInvalidConfiguration(
                f"Debian's KleidiAI is compiled for Linux: for {self.settings.os}, kleidiai/cci.20241108 builds it "
                "from upstream's git (user.slipway:sources=git)"
            )

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["KLEIDIAI_BUILD_TESTS"] = False
        toolchain.cache_variables["KLEIDIAI_BUILD_BENCHMARK"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        if self._compiled:
            cmake.configure(build_script_folder=str(Path(self.export_sources_folder, "fortify")))
            cmake.build()
        else:
            cmake.configure()
            cmake.build(target="kleidiai")

    def package(self):
        self._record()
        package, files = Path(self.package_folder), Path(self.source_folder)
        for pattern in ("*.a", "*.lib"):
            copy(self, pattern, self.build_folder, str(package / "lib"), keep_path=False)
        if self._compiled:
            debian = "aarch64-linux-gnu"
            copy(self, "libkleidiai.a", str(files / "usr/lib" / debian), str(package / "lib"))
            copy(self, "*.h", str(files / "usr/include" / debian), str(package / "include"))
            copy(self, "copyright", str(files / "usr/share/doc/libkleidiai-dev"), str(package / "licenses"))
        else:
            copy(self, "kai/*.h", str(files), str(package / "include"))
            copy(self, "LICENSES/*", str(files), str(package / "licenses"), keep_path=False)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "KleidiAI")
        self.cpp_info.set_property("cmake_target_name", "KleidiAI::kleidiai")
        self.cpp_info.set_property("cmake_target_aliases", ["kleidiai"])
        self.cpp_info.libs = ["kleidiai", *(["kleidiai_fortify"] if self._compiled else [])]
