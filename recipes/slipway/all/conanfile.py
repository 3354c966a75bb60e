import difflib
import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir

required_conan_version = ">=2.4"

_KINDS = ("*.cpp", "*.h", "*.hpp", "*.in", "*.map", "*.cmake", "*CMakeLists.txt")
_OTHERS = (
    *("tests/*", "fuzz/*", "bindings/*", "examples/*"),
    *("engines/executorch/*", "engines/onnxruntime/*"),
)
_BACKENDS = ("XnnpackBackend",)
_NAMES = "operators.txt"
"""The engine's operators, one a line, beside the recipe in Conan's cache: the sources are not there yet."""


def kernels_in(checkout):
    """Names of the operators that the engine has kernels for, as the option has them: ``aten/add.out``.

    The sources have them whole, or as rows of a table, ``OP(abs, ...)``, of which a macro makes
    ``"aten::" #name ".out"``.
    """
    found = set()
    for file in Path(checkout, "runtime", "engines", "lean", "kernels").glob("*.cpp"):
        text = file.read_text("utf-8").replace("\\\n", " ")
        found |= set(re.findall(r'"([a-z_]+::[\w.]+)"', text))
        macros = dict(re.findall(r"#define (\w+)\([^)]*\)(.*)", text))
        for table, row in re.findall(r"(SLIPWAY_\w+)\((SLIPWAY_\w+)\)", text):
            ends = re.findall(r'"([a-z_]+::)" #name "([\w.]+)"', macros[row])
            found |= {start + name + end for name in re.findall(r"OP\((\w+),", macros[table]) for start, end in ends}
    return sorted(name.replace("::", "/") for name in found)


def refused(option, value, known):
    """Why an option's value names what there is not; empty if it does not."""
    wrong = [] if value in ("all", "none") else [name for name in value.split("+") if name not in known]
    if not wrong:
        return ""
    near = difflib.get_close_matches(wrong[0], known, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    shown = f"{', '.join(known[:3])} and {len(known) - 3} more" if len(known) > 3 else ", ".join(known)
    return f"{option}: there is no {wrong[0]!r}. {meant}It takes all, none, or names with + between them: {shown}"


class SlipwayConan(ConanFile):
    name = "slipway"
    version = "0.1.0"
    description = "Runs programs that ExecuTorch exported (.pte): the engine lean behind a C and a C++17 API"
    license = "Apache-2.0"
    homepage = "https://pytorch.org/executorch/"
    topics = ("executorch", "pytorch", "inference", "on-device", "neural-network", "xnnpack")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "fPIC": [True, False],
        # What is linked: "all", "none", or names, "aten/add.out+aten/mul.out" and "XnnpackBackend".
        "operators": ["ANY"],
        "backends": ["ANY"],
    }
    default_options = {"shared": False, "fPIC": True, "operators": "all", "backends": "all"}
    python_requires = "slipway_sources/1.1"
    implements = ["auto_shared_fpic"]
    package_id_non_embed_mode = "recipe_revision_mode"

    @property
    def _sources(self):
        return self.python_requires["slipway_sources"].module

    @property
    def _kleidiai_layers(self):
        """Whether XNNPACK comes with a KleidiAI that has kernels which XNNPACK does not call: Debian's."""
        arm = self.settings.arch == "armv8" and self.settings.os in ("Linux", "Android")
        return arm and self._sources.preferred(self) == "debian"

    @property
    def _checkout(self):
        """The checkout: this folder is recipes/slipway/all of it."""
        return Path(self.recipe_folder).parents[2]

    def export(self):
        names = "".join(f"{name}\n" for name in kernels_in(self._checkout))
        Path(self.export_folder, _NAMES).write_text(names, "utf-8")

    def export_sources(self):
        # The sources are the checkout's own.
        root = self._checkout
        if not Path(root, "runtime", "library", "CMakeLists.txt").is_file():
            raise ConanException(f"{root} has no runtime/: this recipe is exported from a checkout of Slipway")
        for pattern in _KINDS:
            out = Path(self.export_sources_folder, "runtime")
            copy(self, pattern, str(root / "runtime"), str(out), excludes=_OTHERS)
        copy(self, "LICENSE", str(root), self.export_sources_folder)

    def layout(self):
        cmake_layout(self, src_folder="runtime")

    def requirements(self):
        self.requires("xnnpack/cci.20241108")
        # Headers alone: who links slipway does not see them.
        self.requires("xnnpack_internals/cci.20241108", visible=False)
        self.requires("flatbuffers/23.5.26", visible=False)
        if self._kleidiai_layers:
            self.requires("kleidiai/1.32.0")

    def package_id(self):
        # The tables of kernels are those of this XNNPACK.
        self.info.conf.define(self._sources.SOURCES, self._sources.preferred(self))

    def build_requirements(self):
        # The compiler of schemas runs on the machine that builds; the schemas are in upstream's wheel.
        self.tool_requires("flatbuffers/<host_version>", options={"flatc": True})
        self.tool_requires("executorch/1.5.1")

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 17)
        if self.settings.compiler == "msvc":
            raise ConanInvalidConfiguration("the engine's sources are for GCC and Clang, on Windows MinGW's")
        kept = Path(self.recipe_folder, _NAMES)
        names = kept.read_text("utf-8").split() if kept.is_file() else kernels_in(self._checkout)
        for option, known in (("operators", names), ("backends", _BACKENDS)):
            if why := refused(option, str(self.options.get_safe(option)), known):
                raise ConanInvalidConfiguration(why)
        if self.options.shared and self.settings.os in ("Macos", "iOS"):
            raise ConanInvalidConfiguration("there is no shared library for Apple's systems yet: shared=False")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        variables = toolchain.cache_variables
        variables["SLIPWAY_ENGINE"] = "lean"
        variables["SLIPWAY_RUNNER"] = False
        # Another compiler has other warnings.
        variables["SLIPWAY_WERROR"] = False
        variables["SLIPWAY_LIBRARY"] = True
        variables["SLIPWAY_STATIC_LIBRARY"] = not self.options.shared
        variables["SLIPWAY_SHARED_LIBRARY"] = bool(self.options.shared)
        schemas = Path(self.dependencies.build["executorch"].package_folder, "res", "schema")
        variables["EXECUTORCH_SCHEMA_DIR"] = schemas.as_posix()
        kleidiai = any(item.ref.name == "kleidiai" for item in self.dependencies.host.values())
        variables["SLIPWAY_KLEIDIAI"] = kleidiai
        variables["SLIPWAY_KLEIDIAI_LAYERS"] = self._kleidiai_layers
        for name in ("operators", "backends"):
            chosen = str(self.options.get_safe(name)).replace("/", "::").replace("+", ";")
            variables[f"SLIPWAY_{name.upper()}"] = chosen
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        package = Path(self.package_folder)
        copy(self, "LICENSE", self.export_sources_folder, str(package / "licenses"))
        # They describe the folder that ./inv build --sdk makes, with XNNPACK inside: Conan's generators write others.
        for folder in ("cmake", "pkgconfig"):
            rmdir(self, str(package / "lib" / folder))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "slipway")
        # Everything of the package: the same library by the name that the SDK's shared one has.
        self.cpp_info.set_property("cmake_target_name", "slipway::slipway")
        self.cpp_info.set_property("pkg_config_name", "slipway")
        lean = self.cpp_info.components["lean"]
        lean.set_property("cmake_target_name", "slipway::lean")
        lean.set_property("pkg_config_name", "slipway_lean")
        shared = bool(self.options.shared)
        lean.libs = ["slipway_import" if shared and self.settings.os == "Windows" else "slipway"]
        lean.defines = ["SLIPWAY_SHARED"] if shared else []
        lean.requires = ["xnnpack::XNNPACK"]
        if self._kleidiai_layers:
            lean.requires.append("kleidiai::kleidiai")
        if self.settings.os in ("Linux", "FreeBSD", "Android"):
            lean.system_libs = ["m", "dl"] if self.settings.os == "Android" else ["m", "dl", "pthread"]
