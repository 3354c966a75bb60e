import re
import sys
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, export_conandata_patches, save

required_conan_version = ">=2.4"

_TOGETHER = 16
"""Kernels that are compiled as one file: reading the headers is most of a kernel's time, and all cores have work."""

_LAYERS = """\
# Code that runs once a layer. Upstream, too, wants it small, but its -O2 for all targets comes later and wins. Through
# this code, a function of the caller's that is out of memory throws: those that keep packed weights.
file(GLOB layers src/*.c src/configs/*.c src/operators/*.c src/subgraph/*.c)
list(FILTER layers EXCLUDE REGEX "/(operator-run|indirection)[.]c$")
set_source_files_properties(${layers} PROPERTIES COMPILE_OPTIONS "-Os;-funwind-tables;-fasynchronous-unwind-tables")
"""


class XnnpackConan(ConanFile):
    name = "xnnpack"
    description = "Neural network operators for CPUs: floating-point and quantized, with kernels chosen at run time"
    license = "BSD-3-Clause"
    homepage = "https://github.com/google/XNNPACK"
    topics = ("neural-network", "inference", "simd", "multithreading", "matrix-multiplication")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        "assembly": [True, False],
        "memopt": [True, False],
        "sparse": [True, False],
        # Besides the kernels that XNNPACK itself can choose, those it keeps for tests and comparisons.
        "all_microkernels": [True, False],
        # Arm's own kernels; only there on 64-bit Arm.
        "kleidiai": [True, False],
    }
    default_options = {
        "shared": False,
        "fPIC": True,
        "assembly": True,
        "memopt": True,
        "sparse": True,
        "all_microkernels": False,
        "kleidiai": True,
    }
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"
    implements = ["auto_shared_fpic"]

    @property
    def _kleidiai(self):
        return bool(self.options.get_safe("kleidiai"))

    def config_options(self):
        if self.settings.os == "Windows":
            del self.options.fPIC
        if self.settings.arch != "armv8":
            del self.options.kleidiai
        elif self.settings.os not in ("Linux", "Android") and self._place != "git":
            # Debian's KleidiAI is compiled for Linux; other systems need it from upstream's git.
            self.options.kleidiai = False

    def export_sources(self):
        export_conandata_patches(self)

    def layout(self):
        cmake_layout(self, src_folder="src")

    def requirements(self):
        # Later ones take C11's <threads.h> on Windows, which MinGW has not; this one takes Windows' own threads.
        pthreadpool = "cci.20240616" if self.settings.os == "Windows" else "cci.20251020"
        self.requires(f"pthreadpool/{pthreadpool}", transitive_headers=True)
        self.requires("cpuinfo/cci.20250905")
        self.requires("fxdiv/cci.20200417")
        if self._kleidiai:
            self.requires(f"kleidiai/{'cci.20241108' if self._place == 'git' else '1.32.0'}")

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 14)
        if self.settings.os == "Windows" and self.options.shared:
            raise ConanInvalidConfiguration("upstream's XNNPACK exports no symbols from a DLL: shared=False")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        if "clang" in str(self.settings.compiler):
            # Otherwise Clang keeps the pointers to a product's rows in vectors, and takes them out of there one by one
            # in the inner loops of 74 kernels: up to a fifth of a net's time.
            toolchain.extra_cflags.append("-fno-slp-vectorize")
        if self.settings.os in ("Linux", "Android"):
            # The linker leaves out the functions that nothing calls. Kernels do not throw: no table unwinds them.
            plain = ["-ffunction-sections", "-fdata-sections", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]
            toolchain.extra_cflags += plain
            toolchain.extra_cxxflags += [*plain, "-fno-exceptions"]
        # Upstream asks for its kernel of AVX512-VBMI that looks bytes up by a name that nothing defines.
        toolchain.preprocessor_definitions["XNN_ENABLE_AVX256VBMI"] = "XNN_ENABLE_AVX512VBMI"
        variables = toolchain.cache_variables
        variables["XNNPACK_LIBRARY_TYPE"] = "shared" if self.options.shared else "static"
        variables["XNNPACK_BUILD_TESTS"] = False
        variables["XNNPACK_BUILD_BENCHMARKS"] = False
        variables["XNNPACK_BUILD_ALL_MICROKERNELS"] = bool(self.options.all_microkernels)
        variables["XNNPACK_ENABLE_ASSEMBLY"] = bool(self.options.assembly)
        variables["XNNPACK_ENABLE_MEMOPT"] = bool(self.options.memopt)
        variables["XNNPACK_ENABLE_SPARSE"] = bool(self.options.sparse)
        variables["XNNPACK_ENABLE_KLEIDIAI"] = self._kleidiai
        if self.settings.os not in ("Linux", "Android"):
            # A process asks the system for AMX's tiles before it uses them, and upstream asks only Linux. Elsewhere the
            # first tile is an illegal instruction, though the processor says that it has AMX.
            variables["XNNPACK_ENABLE_AVX512AMX"] = False
        # The packages' own targets are there before upstream looks for its dependencies: nothing is downloaded, and
        # what upstream defines for XNNPACK alone (NOMINMAX on Windows) does not reach them.
        variables["XNNPACK_USE_SYSTEM_LIBS"] = True
        included = Path(self.generators_folder, "packages.cmake")
        variables["CMAKE_PROJECT_XNNPACK_INCLUDE"] = included.as_posix()
        names = ["pthreadpool", "cpuinfo", "fxdiv", *(["KleidiAI"] if self._kleidiai else [])]
        packages = "".join(f"find_package({name} CONFIG REQUIRED)\n" for name in names)
        save(self, included, packages + ("" if self.settings.compiler == "msvc" else _LAYERS))
        # Upstream adds this folder's include/ besides, even where the target has its own.
        variables["CPUINFO_SOURCE_DIR"] = Path(self.dependencies["cpuinfo"].package_folder).as_posix()
        # The profile decides about ccache; upstream's scripts run with the Python that runs Conan.
        variables["CCACHE_BINARY"] = "OFF"
        variables["Python_EXECUTABLE"] = Path(sys.executable).as_posix()
        toolchain.generate()

    def _join_kernels(self):
        """Let the compiler read many kernels of one instruction set as one file.

        A kernel is some fifty lines after headers of thousands (immintrin.h, arm_neon.h), which were read once for each
        of up to a thousand files. The flags of an instruction set are those of its list, so no list is mixed.
        """
        source = Path(self.source_folder)
        for lists in sorted(source.glob("cmake/gen/*_microkernels.cmake")):
            text = lists.read_text(encoding="utf-8")
            for name, files in re.findall(r"SET\((PROD_\w+_MICROKERNEL_SRCS)\s+([^)]*)\)", text):
                plain = [file for file in files.split() if file.endswith(".c")]
                other = [file for file in files.split() if not file.endswith(".c")]
                joined = []
                for first in range(0, len(plain), _TOGETHER):
                    joined.append(f"src/joined/{name.lower()}-{first}.c")
                    lines = [f'#include "{file.removeprefix("src/")}"\n' for file in plain[first : first + _TOGETHER]]
                    save(self, source / joined[-1], "".join(lines))
                text = text.replace(files, "\n  ".join([*joined, *other]))
            save(self, lists, text)

    def build(self):
        if not self.options.all_microkernels:
            self._join_kernels()
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        self._record()
        CMake(self).install()
        package = Path(self.package_folder)
        copy(self, "LICENSE", self.source_folder, str(package / "licenses"))
        other = "include(CMakeFindDependencyMacro)\nfind_dependency(xnnpack CONFIG)\n"
        save(self, package / "lib" / "cmake" / "XNNPACKConfig.cmake", other)
        if self.options.all_microkernels:
            for pattern in ("*microkernels-all.a", "*microkernels-all.lib"):
                copy(self, pattern, self.build_folder, str(package / "lib"), keep_path=False)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "xnnpack")
        base = ["fxdiv::fxdiv", "pthreadpool::pthreadpool", *(["kleidiai::kleidiai"] if self._kleidiai else [])]
        system = ["m"] if self.settings.os in ("Linux", "FreeBSD", "Android") else []
        kernels = self.cpp_info.components["microkernels-prod"]
        kernels.set_property("cmake_target_name", "microkernels-prod")
        kernels.libs = ["microkernels-prod"]
        kernels.requires = base
        kernels.system_libs = system
        library = self.cpp_info.components["XNNPACK"]
        library.set_property("cmake_target_name", "XNNPACK")
        library.set_property("cmake_target_aliases", ["XNNPACK::XNNPACK"])
        library.set_property("pkg_config_name", "xnnpack")
        library.libs = ["XNNPACK"]
        # find_package(XNNPACK), by upstream's name, finds the same: package() wrote the file.
        library.builddirs = ["lib/cmake"]
        library.requires = ["microkernels-prod", *base, "cpuinfo::cpuinfo"]
        library.system_libs = system
        if self.options.all_microkernels:
            everything = self.cpp_info.components["microkernels-all"]
            everything.set_property("cmake_target_name", "microkernels-all")
            everything.libs = ["microkernels-all"]
            everything.requires = ["microkernels-prod"]
            everything.system_libs = system
