"""The test package of all recipes here: a program of the package's name is built against it, and run if it can be.

conan test recipes/slipway_sources/test_package xnnpack/cci.20241108
"""

from pathlib import Path

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout

LINKED = {
    "cpuinfo": ("cpuinfo", "cpuinfo::cpuinfo"),
    "doctest": ("doctest", "doctest::doctest"),
    "executorch": ("executorch", "executorch;executorch_backends;executorch_kernels"),
    "flatbuffers": ("flatbuffers", "flatbuffers::flatbuffers"),
    "fxdiv": ("fxdiv", "fxdiv::fxdiv"),
    "kleidiai": ("KleidiAI", "KleidiAI::kleidiai"),
    "onnxruntime": ("onnxruntime", "onnxruntime::onnxruntime"),
    "pthreadpool": ("pthreadpool", "pthreadpool::pthreadpool"),
    "slipway": ("slipway", "slipway::lean"),
    "xnnpack": ("XNNPACK", "XNNPACK"),
}
"""What CMake finds of a package, and the targets that its program links."""


class TestPackageConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    @property
    def tested(self):
        return self.tested_reference_str.partition("/")[0]

    def requirements(self):
        self.requires(self.tested_reference_str)

    def build_requirements(self):
        if self.tested == "flatbuffers":
            # The compiler of schemas runs on the machine that builds, the headers serve the one that runs.
            self.tool_requires(self.tested_reference_str, options={"flatc": True})

    def layout(self):
        cmake_layout(self, build_folder=f"build/{self.tested}")

    def build(self):
        package, targets = LINKED[self.tested]
        cmake = CMake(self)
        cmake.configure(variables={"TESTED": self.tested, "PACKAGE": package, "TARGETS": targets})
        cmake.build()

    def test(self):
        if not can_run(self):
            return
        program = Path(self.build_folder, self.cpp.build.bindir, "test_package")
        if self.tested == "onnxruntime":
            # Through the package's own loader: this system's C library may be older than the libraries need.
            libraries = Path(self.dependencies["onnxruntime"].package_folder) / "lib"
            loader = next((libraries / "glibc").glob("ld-linux*"))
            self.run(f'"{loader}" --library-path "{libraries / "glibc"}:{libraries}" "{program}"')
        elif self.tested == "slipway":
            model = Path(self.source_folder, "linear.pte")
            for name in ("test_package", "test_package_c"):
                self.run(f'"{program.with_name(name)}" "{model}"', env="conanrun")
        else:
            self.run(str(program), env="conanrun")
