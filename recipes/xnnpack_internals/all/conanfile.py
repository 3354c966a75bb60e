import json
import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.files import copy, save
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"

WRAPPED = re.compile(r"void (xnn_\w+_ukernel_\w+)\((?:(?!\nvoid ).)*?\b(kai_run_\w+)\(", re.DOTALL)


class XnnpackInternalsConan(ConanFile):
    """What XNNPACK's public header does not tell: how to find out which kernel a graph's operator was given.

    Nothing is compiled: the library stays the recipe xnnpack's.
    """

    name = "xnnpack_internals"
    description = "XNNPACK's own headers, and which of KleidiAI's kernels its wrappers call"
    license = "BSD-3-Clause"
    homepage = "https://github.com/google/XNNPACK"
    topics = ("neural-network", "inference", "simd")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True
    python_requires = "slipway_sources/1.1"
    python_requires_extend = "slipway_sources.Fetched"

    def layout(self):
        basic_layout(self, src_folder="src")

    def requirements(self):
        # Of the same version: another library's operators lie otherwise in memory.
        self.requires(f"xnnpack/{self.version}", transitive_headers=True, transitive_libs=True)

    def package(self):
        self._record()
        source, package = Path(self.source_folder), Path(self.package_folder)
        copy(self, "LICENSE", str(source), str(package / "licenses"))
        copy(self, "xnnpack/*.h", str(source / "src"), str(package / "include"))
        wrapped = {}
        for file in sorted((source / "src").rglob("*.c")):
            text = file.read_text(encoding="utf-8")
            if "kai_run_matmul" in text:
                wrapped.update(WRAPPED.findall(text))
        if not wrapped:
            raise ConanException("no kernel of XNNPACK's calls one of KleidiAI's: they are written in another way now")
        save(self, str(package / "res" / "kleidiai.json"), json.dumps(wrapped, indent=1, sort_keys=True) + "\n")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "xnnpack_internals")
        self.cpp_info.set_property("cmake_target_name", "xnnpack_internals::xnnpack_internals")
        self.cpp_info.resdirs = ["res"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
