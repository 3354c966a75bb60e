import hashlib
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException, ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, unzip
from conan.tools.layout import basic_layout

required_conan_version = ">=2.4"

ABIS = {"armv8": "arm64-v8a", "armv7": "armeabi-v7a", "x86": "x86", "x86_64": "x86_64"}
AAR = "onnxruntime.aar"
TEXTS = ("LICENSE", "ThirdPartyNotices.txt")


class OnnxruntimeConan(ConanFile):
    python_requires = "slipway_sources/1.1"
    name = "onnxruntime"
    description = "ONNX Runtime with its XNNPACK provider for Android, as Microsoft builds it"
    license = "MIT"
    homepage = "https://onnxruntime.ai"
    topics = ("onnx", "inference", "machine-learning", "xnnpack", "pre-built")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    @property
    def _archive(self):
        return self.conan_data["archives"][str(self.version)]

    def layout(self):
        basic_layout(self, src_folder="src")

    def package_id(self):
        # Prebuilt, and its interface is C's: the same files whatever compiles against them.
        del self.info.settings.compiler
        del self.info.settings.build_type
        self.info.conf.clear()

    def validate(self):
        if self.settings.os != "Android" or str(self.settings.arch) not in ABIS:
            raise ConanInvalidConfiguration(
                f"this archive is for Android on {', '.join(ABIS)}, not for {self.settings.os} on {self.settings.arch}"
            )
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 17)

    def source(self):
        with tempfile.TemporaryDirectory() as folder, tarfile.open(self._fetched(Path(folder))) as archive:
            for name in (*TEXTS, f"Plugins/Android/{AAR}"):
                with archive.extractfile(f"package/{name}") as file:
                    Path(self.source_folder, Path(name).name).write_bytes(file.read())

    def _fetched(self, folder):
        """Path of the verified package: from the shared cache when it is there, else through npm."""
        name, sha256 = self._archive["file"], self._archive["sha256"]
        cache = self.conf.get("user.slipway:wheel_cache", check_type=str)
        kept = Path(cache) / name if cache else None
        if kept and kept.is_file() and self._sha256(kept) == sha256:
            return kept
        words = ["npm", "pack", "--silent", "--ignore-scripts", f"--pack-destination={folder}"]
        self.output.info(f"fetching {name}")
        done = self.python_requires["slipway_sources"].module.run([*words, self._archive["package"]], "npm")
        fetched = folder / name
        if done.returncode or not fetched.is_file():
            last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
            raise ConanException(f"npm could not fetch {name}:\n{last}\nCheck the network and npm's registry.")
        if (got := self._sha256(fetched)) != sha256:
            raise ConanException(
                f"{name} is not the file that was pinned: its sha256 is {got}, conandata.yml says {sha256}. "
                "Do not use it; look at what npm's registry serves."
            )
        if kept and kept.parent.is_dir():
            # Another build may do the same now: a name of its own, then the rename.
            with tempfile.TemporaryDirectory(dir=cache, prefix=".new-") as new:
                shutil.copyfile(fetched, Path(new) / name).replace(kept)
        return fetched

    @staticmethod
    def _sha256(path):
        with path.open("rb") as file:
            digest = hashlib.sha256()
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
        return digest.hexdigest()

    def package(self):
        package, source = Path(self.package_folder), Path(self.source_folder)
        with tempfile.TemporaryDirectory(dir=self.build_folder) as folder:
            unzip(self, str(source / AAR), destination=folder)
            copy(self, "*", Path(folder, "headers"), package / "include/onnxruntime")
            copy(self, "libonnxruntime.so", Path(folder, "jni", ABIS[str(self.settings.arch)]), package / "lib")
        for name in TEXTS:
            copy(self, name, source, package / "licenses")
        library = (package / "lib/libonnxruntime.so").read_bytes()
        header = (package / "include/onnxruntime/onnxruntime_c_api.h").read_text(encoding="utf-8")
        minor = re.search(r"#define ORT_API_VERSION (\d+)", header)
        if not minor or f"VERS_1.{minor[1]}.0\0".encode() not in library:
            raise ConanException("the archive's header and library are of different versions")
        if b"XnnpackExecutionProvider\0" not in library:
            raise ConanException("the archive's library has no XNNPACK provider")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "onnxruntime")
        self.cpp_info.set_property("cmake_target_name", "onnxruntime::onnxruntime")
        self.cpp_info.libs = ["onnxruntime"]
        self.cpp_info.includedirs = ["include", "include/onnxruntime"]
