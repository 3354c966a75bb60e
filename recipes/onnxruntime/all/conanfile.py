import tempfile
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, unzip
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"

TRIPLETS = {"x86_64": "x86_64-linux-gnu", "armv8": "aarch64-linux-gnu", "armv7hf": "arm-linux-gnueabihf"}
# What the C library consists of, apart from the rest: a system with a newer one of its own has no use for it.
GLIBC = ("ld-linux*.so.*", *(f"lib{name}.so.*" for name in ("c", "dl", "m", "mvec", "pthread", "rt")))


class OnnxruntimeConan(ConanFile):
    python_requires = "slipway_sources/1.1"
    name = "onnxruntime"
    description = "ONNX Runtime with its XNNPACK provider, as Debian builds it, and everything that it loads"
    license = "MIT"
    homepage = "https://onnxruntime.ai"
    topics = ("onnx", "inference", "machine-learning", "xnnpack", "pre-built")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    @property
    def _packages(self):
        return self.conan_data["packages"][str(self.version)]

    def layout(self):
        basic_layout(self, src_folder="src")

    def package_id(self):
        # Prebuilt, and its interface is C's: the same files whatever compiles against them.
        del self.info.settings.compiler
        del self.info.settings.build_type
        self.info.conf.clear()

    def validate(self):
        if self.settings.os != "Linux" or str(self.settings.arch) not in self._packages:
            archs = " and ".join(name for name in self._packages if name in TRIPLETS)
            raise ConanInvalidConfiguration(
                f"Debian has this library for Linux on {archs}, not for {self.settings.os} on {self.settings.arch}"
            )
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 17)

    def build(self):
        # Not in source(), which knows no architecture: while a mirror has one architecture's lists half-updated, the
        # others' packages can be made.
        suite, sources = self._packages["suite"], self.python_requires["slipway_sources"].module
        for file, sha256 in self._packages[str(self.settings.arch)].items():
            package = sources.debian_file(self, suite, file.partition("_")[0], file, sha256)
            with tempfile.TemporaryDirectory(dir=self.build_folder) as held:
                tarball = sources.deb_data(package, Path(held))
                unzip(self, str(tarball), destination=str(Path(self.build_folder) / "debian"))

    def package(self):
        arch, package = str(self.settings.arch), Path(self.package_folder)
        root = Path(self.build_folder) / "debian"
        libraries = root / "usr/lib" / TRIPLETS[arch]
        copy(self, "*", root / "usr/include/onnxruntime", package / "include/onnxruntime")
        copy(self, "*/copyright", root / "usr/share/doc", package / "licenses")
        # Copyright files name these texts by their place in a Debian system instead of holding them.
        copy(self, "*", root / "usr/share/common-licenses", package / "licenses/common-licenses")
        for pattern in GLIBC:
            copy(self, pattern, libraries, package / "lib/glibc")
        copy(self, "*.so.*", libraries, package / "lib", excludes=("*/*", *GLIBC, "libnss_*", "libresolv.so.*"))
        copy(self, "libonnxruntime.so", libraries, package / "lib")
        for fix in self.conan_data["fixes"].get(str(self.version), {}).get(arch, ()):
            self._fix(package / "lib", **fix)
        for name in ("lib/libonnxruntime.so", "lib/glibc/libc.so.6", "include/onnxruntime/onnxruntime_cxx_api.h"):
            if not (package / name).is_file():
                raise ConanException(f"Debian's packages left no {name}")

    @staticmethod
    def _fix(folder, file, offset, old, new):
        """Replace bytes of a library, only if they are what they should be."""
        before, after = bytes.fromhex(old), bytes.fromhex(new)
        data = bytearray((folder / file).read_bytes())
        if len(before) != len(after) or data[offset : offset + len(before)] != before:
            raise ConanException(f"{file} is not the library that conandata.yml has a fix for: remove it, or fix it")
        data[offset : offset + len(after)] = after
        (folder / file).write_bytes(data)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "onnxruntime")
        self.cpp_info.set_property("cmake_target_name", "onnxruntime::onnxruntime")
        self.cpp_info.set_property("pkg_config_name", "libonnxruntime")
        self.cpp_info.libs = ["onnxruntime"]
        self.cpp_info.includedirs = ["include", "include/onnxruntime"]
        # It was linked to a newer C library than the one that the program is built for; lib/glibc has that one.
        flags = ["-Wl,--allow-shlib-undefined"]
        self.cpp_info.exelinkflags = flags
        self.cpp_info.sharedlinkflags = flags
