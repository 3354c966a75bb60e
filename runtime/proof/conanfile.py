import shutil
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout

OUT = "user.slipway:proof_out"


class TestPackageConan(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        packages = {dependency.ref.name: dependency for dependency in self.dependencies.host.values()}
        versions = {name: str(dependency.ref.version) for name, dependency in packages.items()}
        # The program is carried to other machines: no path of this one in it.
        toolchain.cache_variables["CMAKE_SKIP_RPATH"] = True
        toolchain.cache_variables["PROOF_XNNPACK_VERSION"] = versions["xnnpack"]
        toolchain.cache_variables["PROOF_KLEIDIAI_VERSION"] = versions.get("kleidiai", "")
        # XNNPACK's own headers do not need cpuinfo's, so they do not come with it.
        toolchain.cache_variables["PROOF_CPUINFO_INCLUDE"] = Path(
            packages["cpuinfo"].cpp_info.includedirs[0]
        ).as_posix()
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        program = Path(self.build_folder, self.cpp.build.bindir, "xnnpack_proof")
        if self.settings.os == "Windows":
            program = program.with_suffix(".exe")
        if not program.is_file():
            raise ConanException(f"the build left no {program}")
        out = self.conf.get(OUT, check_type=str, default="")
        if out:
            # A build for another machine runs the program there: this is the folder to put it into.
            Path(out).mkdir(parents=True, exist_ok=True)
            shutil.copy2(program, out)
        # Conan takes 32-bit x86 for runnable on x86_64, which needs libraries that few machines have.
        if can_run(self) and self.settings.arch == self.settings_build.get_safe("arch"):
            self.run(str(program), env="conanrun")
