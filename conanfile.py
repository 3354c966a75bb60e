import json
import re
from pathlib import Path
from typing import ClassVar

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, save

required_conan_version = ">=2.4"

KLEIDIAI = "kleidiai/1.32.0"

# A processor without arithmetic for float16 computes it in float32.
_COMPUTED_AS = {"f16": ("f32",), "f16_layers": ("f32_layers",)} | {
    f"qd8_f16_{weights}_layers": (f"qd8_f32_{weights}_layers",) for weights in ("qc8w", "qc4w", "qb4w")
}
_VALUES = {"f32", "f16", "qs8", "qu8", "qd8"}
_WEIGHTS = {"f32", "f16", "qs8", "qu8", "f32_qc8w", "f32_qc4w"} | {
    f"qd8_{value}_{weights}" for value in ("f32", "f16") for weights in ("qc8w", "qc4w", "qb4w")
}
_LAYER = re.compile(r"_(?:gemm|igemm|dwconv)(?:_|$)")
# For sparse weights, whose planes are kept apart, and for complex numbers: no exporter writes either.
_NEVER = re.compile(r"_(?:chw|hwc2chw|spmm\d?|cmul)_")
_CONVERSION = re.compile(r"(f32|f16|q[sup]8)_to_(f32|f16|q[sup]8)_cvt")


def needed(name, types):
    """Whether a program may need a kernel, or a choice of kernels, of XNNPACK's whose name begins so.

    Args:
        name: its name from the types on: ``f32_vadd_config``, ``qd8_f32_qc4w_gemm_minmax_ukernel_4x8``.
        types: those of the programs, as kernel_choices.h names them, without ``xnnpack::``,
            and what processors compute in another type. None: everything that exporters write.
    """
    # Arm's names for packed inputs, and its names for quantized ones.
    name = re.sub(r"^p(f16|f32|qs8)_", r"\1_", name).replace("qp8_", "qd8_")
    name = re.sub(r"^([su]8)_", r"q\1_", name)
    if _NEVER.search(f"{name}_"):
        return False
    if types is None:
        return True
    if converted := _CONVERSION.match(name):
        # Quantizing as inputs come is a conversion to 8 bits.
        return all(word in types or (word != "qu8" and "8" in word and "qd8" in types) for word in converted.groups())
    if layer := _LAYER.search(name):
        layers = name[: layer.start()]
        # Depthwise windows and their like in 8 bits by channel count as static ones.
        layers = "qs8" if layers == "qs8_qc8w" else layers
        return layers not in _WEIGHTS or f"{layers}_layers" in types
    value = name.split("_")[0]
    return value not in _VALUES or value in types


def with_conversions(types):
    """The types, and those that a processor computes them in, or on the way to them."""
    return types | {"f32"} | {other for name in types for other in _COMPUTED_AS.get(name, ())}


class SlipwayRuntimeConan(ConanFile):
    name = "slipway-runtime"
    version = "0.1.0"
    description = "pte_runner: one command line and one result format for every engine and target"
    license = "Apache-2.0"
    package_type = "application"
    settings = "os", "arch", "compiler", "build_type"
    # Operators ("aten/add.out+aten/mul.out") and backends to link, of the engine lean: "all", "none", or these.
    options: ClassVar = {
        "engine": ["executorch", "lean", "onnxruntime"],
        "operators": ["ANY"],
        "backends": ["ANY"],
        # Types that XNNPACK's kernels compute with ("xnnpack/f32+xnnpack/f32_layers"), as pte_runner --describe names
        # them.
        "types": ["ANY"],
        # libslipway, of the engine lean: no, the static library alone, or the shared one, too.
        "library": ["no", "static", "both"],
    }
    default_options: ClassVar = {"engine": "executorch", "operators": "all", "backends": "all", "types": "all",
                                "library": "no"}  # fmt: skip
    # By kind, as toolchains/bundle/inputs.py counts them: a stray file is no new revision. Tests and fuzz targets
    # are not in the package.
    exports_sources = (
        "runtime/*.cpp", "runtime/*.h", "runtime/*.in", "runtime/*.sh", "runtime/*.toml", "runtime/*.hpp",
        "runtime/*.ld", "runtime/*.map", "runtime/*.cmake", "runtime/*CMakeLists.txt",
        "LICENSE", "!runtime/tests/*", "!runtime/fuzz/*", "!runtime/bindings/*", "!runtime/examples/*",
    )  # fmt: skip
    # A dependency's recipe may change without its version: the runner that took files from it is another then.
    package_id_embed_mode = "recipe_revision_mode"
    package_id_non_embed_mode = "recipe_revision_mode"

    def configure(self):
        if self.options.engine != "lean":
            self.options.rm_safe("operators")
            self.options.rm_safe("backends")
            self.options.rm_safe("types")
            self.options.rm_safe("library")

    def requirements(self):
        if self.options.engine == "executorch":
            self.requires("executorch/1.5.1")
            self.requires("flatbuffers/23.5.26")
        elif self.options.engine == "lean":
            self.requires("xnnpack/cci.20241108")
            self.requires("xnnpack_internals/cci.20241108")
            if self._kleidiai_layers:
                self.requires(KLEIDIAI)
            self.requires("flatbuffers/23.5.26")
        elif self.options.engine == "onnxruntime":
            self.requires("onnxruntime/1.29.0" if self.settings.os == "Android" else "onnxruntime/1.21.0")

    @property
    def _kleidiai_layers(self):
        """Whether XNNPACK comes with a KleidiAI that has kernels which XNNPACK does not call: Debian's."""
        debian = bool(self.conf.get("user.slipway:fetch", default=[], check_type=list))
        place = self.conf.get("user.slipway:sources", default="auto")
        arm = self.settings.arch == "armv8" and self.settings.os in ("Linux", "Android")
        return arm and (place == "debian" or (place == "auto" and debian))

    def build_requirements(self):
        if self.options.engine in ("executorch", "lean"):
            # The compiler of schemas runs on the machine that builds.
            self.tool_requires("flatbuffers/<host_version>", options={"flatc": True})
        if self.options.engine == "lean":
            # Nothing of it is linked: its package has the schemas, out of upstream's wheel.
            self.tool_requires("executorch/1.5.1")
        if Path(self.recipe_folder, "runtime", "tests").is_dir():
            # For the C++ tests: a checkout has them, the package does not.
            self.test_requires("doctest/2.4.11")

    def layout(self):
        cmake_layout(self, src_folder="runtime", build_folder="build/runtime")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["SLIPWAY_ENGINE"] = str(self.options.engine)
        # iOS runs apps: there is nothing to start a program with.
        toolchain.cache_variables["SLIPWAY_RUNNER"] = self.settings.os != "iOS"
        if self.options.engine == "lean":
            schemas = Path(self.dependencies.build["executorch"].package_folder, "res", "schema")
            toolchain.cache_variables["EXECUTORCH_SCHEMA_DIR"] = schemas.as_posix()
            kleidiai = any(item.ref.name == "kleidiai" for item in self.dependencies.host.values())
            toolchain.cache_variables["SLIPWAY_KLEIDIAI"] = kleidiai
            toolchain.cache_variables["SLIPWAY_LIBRARY"] = self.options.library != "no"
            toolchain.cache_variables["SLIPWAY_SHARED_LIBRARY"] = self.options.library == "both"
            libcxx = str(self.settings.get_safe("compiler.libcxx", ""))
            toolchain.cache_variables["SLIPWAY_CXX_LIBRARY"] = "stdc++" if libcxx.startswith("libstdc++") else "c++"
            static = self.conf.get("user.slipway:static_cxx", default=[], check_type=list)
            toolchain.cache_variables["SLIPWAY_STATIC_CXX"] = ";".join(static)
            toolchain.cache_variables["SLIPWAY_KLEIDIAI_LAYERS"] = self._kleidiai_layers
            names = Path(self.generators_folder, "kernels")
            save(self, names / "kernel_names.inc", self._kernel_names())
            toolchain.cache_variables["SLIPWAY_KERNEL_NAMES"] = names.as_posix()
            unlinked = self._unlinked()
            toolchain.cache_variables["SLIPWAY_UNLINKED"] = ";".join(unlinked)
            for name in ("operators", "backends", "types"):
                chosen = str(self.options.get_safe(name)).replace("/", "::").replace("+", ";")
                toolchain.cache_variables[f"SLIPWAY_{name.upper()}"] = chosen
        # The bundle runs wherever it is put: its libraries are beside the program.
        toolchain.variables["CMAKE_INSTALL_RPATH"] = "$ORIGIN:$ORIGIN/../lib"
        # Nothing is written into the checkout: its files decide what is built.
        toolchain.user_presets_path = False
        toolchain.generate()

    def _kernel_names(self):
        """One line a kernel of matrix products and convolutions that XNNPACK can choose: KERNEL(name, "Arm's").

        Its library of kernels has more of them. The linker leaves those out, unless this table names them.
        """
        folder = Path(self.dependencies["xnnpack"].package_folder, "lib")
        # In any format of object files, what a file refers to is in its symbol table's texts.
        found = re.compile(rb"xnn_\w*(?:gemm|dwconv)\w*_ukernel_\w+")
        choosing, kernels = (
            {name.decode() for name in found.findall(next(folder.glob(pattern)).read_bytes())}
            for pattern in ("*XNNPACK.*", "*microkernels-prod.*")
        )
        names = [
            name
            for name in sorted(choosing & kernels)
            if not name.endswith(("_get_mr", "_get_nr")) and "_packw_" not in name
        ]
        if not names:
            raise ConanException(f"{folder} has no kernels that XNNPACK refers to")
        internals = Path(self.dependencies["xnnpack_internals"].package_folder)
        names = [name for name in names if needed(name.removeprefix("xnn_"), self._types)]
        wrapped = json.loads((internals / "res" / "kleidiai.json").read_text(encoding="utf-8"))
        return "".join(f'KERNEL({name}, "{wrapped.get(name, "")}")\n' for name in names)

    @property
    def _types(self):
        """What XNNPACK's kernels are linked for; None: everything."""
        types = str(self.options.get_safe("types", "all"))
        known = _VALUES | {f"{name}_layers" for name in _WEIGHTS}
        named = {name.removeprefix("xnnpack/") for name in types.split("+")}
        return None if types == "all" or not named <= known else with_conversions(named)

    def _unlinked(self):
        """XNNPACK's choices of kernels that no program here needs: the linker drops them, and the kernels with them."""
        folder = Path(self.dependencies["xnnpack"].package_folder, "lib")
        found = set(re.findall(rb"xnn_init_(\w+?_config)\b", next(folder.glob("*XNNPACK.*")).read_bytes()))
        return sorted(f"xnn_init_{name}" for name in map(bytes.decode, found) if not needed(name, self._types))

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        package = Path(self.package_folder)
        copy(self, "LICENSE", self.export_sources_folder, package / "licenses" / self.name)
        for dependency in self.dependencies.host.values():
            folder = Path(dependency.package_folder)
            # With the C library of its own that a package may have, in lib/glibc.
            copy(self, "*.so*", folder / "lib", package / "lib")
            copy(self, "*", folder / "licenses", package / "licenses" / dependency.ref.name)
        if self.options.get_safe("library", "no") != "no":
            self._merge()

    def _merge(self):
        """Put the dependencies' static libraries into ours: one file to link, in any order."""
        ours = next(Path(self.package_folder, "lib").glob("*slipway.a"))
        folders = [Path(dependency.package_folder, "lib") for dependency in self.dependencies.host.values()]
        others = sorted(file for folder in folders for file in folder.glob("*") if file.suffix in (".a", ".lib"))
        merged = Path(self.build_folder, "merged.a")
        lines = [f"CREATE {merged.name}", *(f"ADDLIB {file}" for file in [ours, *others]), "SAVE", "END"]
        script = Path(self.build_folder, "merge.mri")
        save(self, script, "\n".join(lines) + "\n")
        archiver = self.buildenv.vars(self).get("AR") or "ar"
        self.run(f'"{archiver}" -M < "{script}"', cwd=self.build_folder)
        merged.replace(ours)
