import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load, save
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"

# Registered from static initialisers: nothing refers to a symbol of theirs, so a linker that drops unused
# libraries drops them, and the first load says "Backend XnnpackBackend is not registered".
REGISTERING = ("backend_xnnpack", "kernels_optimized", "kernels_quantized")
LIBRARIES = (
    "executorch",
    "executorch_threadpool",
    "executorch_etdump",
    *(f"executorch_{name}" for name in REGISTERING),
)
SCHEMAS = {
    "schema/program.fbs": "program.fbs",
    "schema/scalar_type.fbs": "scalar_type.fbs",
    "extension/flat_tensor/serialize/flat_tensor.fbs": "flat_tensor.fbs",
    "backends/xnnpack/serialization/schema.fbs": "xnnpack.fbs",
    "backends/xnnpack/serialization/runtime_schema.fbs": "xnnpack_runtime.fbs",
    "devtools/etdump/etdump_schema_flatcc.fbs": "etdump.fbs",
    "devtools/bundled_program/schema/bundled_program_schema.fbs": "bundled_program.fbs",
}


class ExecutorchConan(ConanFile):
    name = "executorch"
    description = (
        "C++ runtime of ExecuTorch, PyTorch's on-device inference, with the XNNPACK backend (prebuilt by upstream)"
    )
    license = "BSD-3-Clause"
    homepage = "https://pytorch.org/executorch/"
    topics = ("pytorch", "inference", "on-device", "xnnpack", "pre-built")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "cmake/*"
    # A program linked against another revision is another program: the targets decide what stays registered.
    package_id_embed_mode = "recipe_revision_mode"
    package_id_non_embed_mode = "recipe_revision_mode"

    @property
    def _wheels(self):
        return self.conan_data["wheels"][str(self.version)]

    def layout(self):
        basic_layout(self, src_folder="src")

    def package_id(self):
        # Prebuilt: the same files whatever compiles against them.
        del self.info.settings.compiler
        del self.info.settings.build_type
        self.info.conf.clear()

    def validate(self):
        if self.settings.os != "Linux" or str(self.settings.arch) not in self._wheels:
            raise ConanInvalidConfiguration(
                f"upstream publishes this SDK for Linux on {' and '.join(self._wheels)}, "
                f"not for {self.settings.os} on {self.settings.arch}"
            )
        if self.settings.get_safe("compiler.libcxx", "libstdc++11") != "libstdc++11":
            raise ConanInvalidConfiguration("the SDK's libraries use libstdc++ with its C++11 ABI: libcxx=libstdc++11")
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 17)

    def source(self):
        for arch, wheel in self._wheels.items():
            with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(self._wheel(wheel, Path(folder))) as archive:
                wanted = [name for name in archive.namelist() if self._wanted(name)]
                archive.extractall(Path(self.source_folder) / arch, wanted)

    @staticmethod
    def _wanted(name):
        top, _, rest = name.partition("/")
        if top.endswith(".dist-info"):
            return rest.startswith("licenses/")
        return rest.startswith(("include/", "lib/libexecutorch")) or rest in SCHEMAS

    def _wheel(self, wheel, folder):
        """Path of the verified wheel: from the shared cache when there is one and it has it, else through pip."""
        cache = self.conf.get("user.slipway:wheel_cache", check_type=str)
        kept = Path(cache) / wheel["file"] if cache else None
        if kept and kept.is_file() and self._sha256(kept) == wheel["sha256"]:
            return kept
        python, abi = wheel["file"].split("-")[2:4]
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
            "--no-deps", "--only-binary=:all:", "--platform", wheel["platform"], "--implementation", "cp",
            "--python-version", python[2:], "--abi", abi, "--dest", folder, f"{self.name}=={self.version}",
        ]  # fmt: skip
        self.output.info(f"fetching {wheel['file']}")
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        fetched = folder / wheel["file"]
        if done.returncode or not fetched.is_file():
            last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
            raise ConanException(f"pip could not fetch {wheel['file']}:\n{last}\nCheck the network and pip's index.")
        if (got := self._sha256(fetched)) != wheel["sha256"]:
            raise ConanException(
                f"{wheel['file']} is not the file that was pinned: its sha256 is {got}, "
                f"conandata.yml says {wheel['sha256']}. Do not use it; look at what pip's index serves."
            )
        if kept and kept.parent.is_dir():
            # Another build may do the same now: a name of its own, then the rename.
            with tempfile.TemporaryDirectory(dir=cache, prefix=".new-") as new:
                shutil.copyfile(fetched, Path(new) / kept.name).replace(kept)
        return fetched

    @staticmethod
    def _sha256(path):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
        return digest.hexdigest()

    def package(self):
        # Both platforms' wheels unpack to the same layout; this package has one of them.
        root = Path(self.source_folder) / str(self.settings.arch)
        sdk, package = root / "executorch", Path(self.package_folder)
        copy(self, "*", sdk / "include", package / "include")
        for name in LIBRARIES:
            if not copy(self, f"lib{name}.so", sdk / "lib", package / "lib"):
                raise ConanException(f"the wheel has no lib/lib{name}.so")
        for source, name in SCHEMAS.items():
            save(self, package / "res" / "schema" / name, load(self, sdk / source))
        for info in root.glob("*.dist-info"):
            copy(self, "*", info / "licenses", package / "licenses")
        for name in ("executorch-config.cmake", "executorch-config-version.cmake"):
            text = load(self, Path(self.export_sources_folder) / "cmake" / f"{name}.in")
            save(self, package / "lib" / "cmake" / "executorch" / name, text.replace("@VERSION@", str(self.version)))

    def package_info(self):
        # CMake consumers get this package's own configuration file, with or without Conan.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.set_property("cmake_file_name", "executorch")
        runtime = self.cpp_info.components["runtime"]
        # The runtime's headers call the thread pool, and the thread pool's library needs the runtime's.
        runtime.libs = ["executorch", "executorch_threadpool"]
        runtime.includedirs = ["include", "include/executorch/runtime/core/portable_type/c10"]
        runtime.defines = ["C10_USING_CUSTOM_GENERATED_MACROS", "ET_EVENT_TRACER_ENABLED", "ET_USE_THREADPOOL"]
        runtime.system_libs = ["dl", "pthread", "m"]
        runtime.resdirs = ["res"]
        runtime.builddirs = ["lib/cmake/executorch"]
        self.cpp_info.components["threadpool"].requires = ["runtime"]
        self.cpp_info.components["etdump"].libs = ["executorch_etdump"]
        self.cpp_info.components["etdump"].requires = ["runtime"]
        for name in REGISTERING:
            component = self.cpp_info.components[name]
            component.libs = [f"executorch_{name}"]
            component.requires = ["runtime"]
            keep = f"-Wl,--push-state,--no-as-needed,-lexecutorch_{name},--pop-state"
            component.sharedlinkflags = [keep]
            component.exelinkflags = [keep]
        for name, component in self.cpp_info.components.items():
            component.set_property("pkg_config_name", f"executorch_{name}")
