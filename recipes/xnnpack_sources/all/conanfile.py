from pathlib import Path

from conan import ConanFile
from conan.tools.files import apply_conandata_patches, copy
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"


class XnnpackSourcesConan(ConanFile):
    """XNNPACK as the recipe xnnpack builds it, for compiling parts of it with sanitizers.

    Nothing is compiled: the library stays the recipe xnnpack's.
    """

    name = "xnnpack_sources"
    description = "XNNPACK's sources, to be compiled with sanitizers"
    license = "BSD-3-Clause"
    homepage = "https://github.com/google/XNNPACK"
    topics = ("neural-network", "inference", "simd")
    package_type = "unknown"
    no_copy_source = True
    python_requires = "slipway_sources/1.0"

    @property
    def _sources(self):
        return self.python_requires["slipway_sources"].module

    def export_sources(self):
        # The library's own patches, of which there is one copy.
        patches = Path(self.recipe_folder).parents[1] / "xnnpack" / "all" / "patches"
        copy(self, "*.patch", str(patches), str(Path(self.export_sources_folder, "patches")))

    def layout(self):
        basic_layout(self, src_folder="src")

    def package_id(self):
        self.info.clear()
        self._sources.identify(self)

    def source(self):
        self._sources.fetch(self)
        apply_conandata_patches(self)

    def package(self):
        self._sources.record(self)
        copy(self, "LICENSE", self.source_folder, str(Path(self.package_folder, "licenses")))
        copy(self, "*", self.source_folder, str(Path(self.package_folder, "res")), excludes=("test/*", "bench/*"))

    def package_info(self):
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
        self.cpp_info.resdirs = ["res"]
