import hashlib
import subprocess
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanException
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, unzip

required_conan_version = ">=2.4"

FETCH = "user.slipway:fetch"


class FlatbuffersConan(ConanFile):
    name = "flatbuffers"
    description = "Memory-efficient serialization: the C++ headers and, with option flatc, the schema compiler"
    license = "Apache-2.0"
    homepage = "https://flatbuffers.dev"
    url = "https://github.com/google/flatbuffers"
    topics = ("serialization", "rpc", "json-parser", "header-only")
    settings = "os", "arch", "compiler", "build_type"
    options = {"flatc": [True, False]}
    default_options = {"flatc": False}
    # The headers are all a program needs that reads and verifies buffers. flatc runs on the machine that builds:
    # take it as a tool, tool_requires("flatbuffers/<host_version>", options={"flatc": True}).

    def layout(self):
        cmake_layout(self, src_folder="src")

    def package_id(self):
        if not self.info.options.flatc:
            self.info.settings.clear()
        self.info.conf.clear()

    def validate(self):
        if self.settings.get_safe("compiler.cppstd"):
            check_min_cppstd(self, 11)

    def source(self):
        unzip(self, self._fetch(**self.conan_data["sources"][str(self.version)]), strip_root=True)

    def _fetch(self, suite, package, file, sha256):
        """Path of the verified tarball. Whoever runs Conan says how to get it: conf `user.slipway:fetch` is a command
        that takes suite, package, file and sha256 and prints the file's path on its last line."""
        command = self.conf.get(FETCH, check_type=list, default=[])
        if not command:
            raise ConanException(
                f"{file} comes from the source package {package} of Debian {suite}, and the profile does not say how "
                f'to get that: set {FETCH}=["COMMAND", ...] in its [conf].'
            )
        self.output.info(f"fetching {file}")
        words = [*map(str, command), suite, package, file, sha256]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ConanException(f"{FETCH} names a command that cannot be run: {error}") from error
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines or not Path(lines[-1]).is_file():
            last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
            raise ConanException(f"{file} could not be fetched:\n{last}")
        tarball = Path(lines[-1])
        got = hashlib.sha256(tarball.read_bytes()).hexdigest()
        if got != sha256:
            raise ConanException(f"{file} is not the file that was pinned: its sha256 is {got}, not {sha256}")
        return str(tarball)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "FLATLIB", "FLATHASH", "GRPCTEST", "SHAREDLIB"):
            toolchain.cache_variables[f"FLATBUFFERS_BUILD_{part}"] = False
        toolchain.cache_variables["FLATBUFFERS_INSTALL"] = False
        toolchain.generate()

    def build(self):
        if self.options.flatc:
            cmake = CMake(self)
            cmake.configure()
            cmake.build(target="flatc")

    def package(self):
        copy(self, "LICENSE", self.source_folder, str(Path(self.package_folder, "licenses")))
        headers = str(Path(self.source_folder, "include"))
        copy(self, "flatbuffers/*.h", headers, str(Path(self.package_folder, "include")))
        if self.options.flatc:
            program = "flatc.exe" if self.settings.os == "Windows" else "flatc"
            if not copy(self, program, self.build_folder, str(Path(self.package_folder, "bin")), keep_path=False):
                raise ConanException("the build left no flatc")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "flatbuffers")
        self.cpp_info.set_property("cmake_target_name", "flatbuffers::flatbuffers")
        self.cpp_info.set_property("pkg_config_name", "flatbuffers")
        self.cpp_info.libs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = ["bin"] if self.options.flatc else []
