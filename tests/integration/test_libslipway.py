"""libslipway in other people's programs: built outside of the checkout, and the same bits as pte_runner."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from core.formats.bundle import runner_in
from core.formats.program import load_program
from core.paths import ROOT
from core.processes.commands import Done, run
from models.export import export
from tests.support import examples, language
from tests.support.builds import least
from tests.support.processes import ran, well
from toolchains.bundle import builder
from toolchains.bundle.sdk import Sdk, build_sdk
from toolchains.bundle.wheel import write_wheel
from toolchains.compilers.families import family
from toolchains.debian import packages as debian
from toolchains.emulation import emulators
from toolchains.targets import get_target

pytestmark = [pytest.mark.build, pytest.mark.export]

long = pytest.mark.long
# A target costs minutes where its XNNPACK is not built yet: the first two are the sample that CI runs.
TARGETS = [
    "linux-x86_64",
    "linux-arm64",
    *(pytest.param(name, marks=long) for name in ("linux-armv6", "linux-armv7", "windows-x86_64")),
]
FOREIGN = [
    ("linux-arm64", "manylinux_2_28_aarch64", "arm64", "aarch64-linux-gnu"),
    ("linux-armv6", "linux_armv6l", "armhf", "arm-linux-gnueabihf"),
]
"""Targets whose wheels are tried with Debian's Python: the wheel's tag, Debian's name of the processor, and of the
libraries' folder. Debian has no Python for ARMv6: its Python for ARMv7 loads that library on an emulated Cortex-A7."""
SAID = ["tensor float32 (8, 64) static", "(8, 10)", "6 float32 8x63", "3 none.pte", "False"]
"""What a script prints that tries a wheel."""
EXAMPLES, CHECK = examples.EXAMPLES, Path(__file__).parent / "test_library"


@functools.cache
def program(model: str = "mlp") -> Path:
    folder = export(model, "fp32")
    return folder / load_program(folder).file


def configure(sdk: Sdk, source: Path, folder: Path, *words: str) -> Path:
    """Copy a project out of the checkout and build it with a toolchain file and a prefix path, nothing else."""
    shutil.copytree(source, folder / "source")
    paths = [f"-DCMAKE_PREFIX_PATH={sdk.path}", *words]
    return examples.configure(folder / "source", folder / "build", sdk.toolchain_file, paths)


def run_in(folder: Path, target: str, program: Path, words: Sequence[str]) -> Done:
    """Run a program on the target's least platform; ``{}/`` in its arguments stands for the folder of its files."""
    platform = least(get_target(target))
    if platform.target.os != "windows":
        return platform.run(program, [word.replace("{}", str(folder)) for word in words])
    # Wine shows the program its own folder.
    program = program.with_suffix(".exe")
    for file in (program, *program.parent.glob("*.dll")):
        shutil.copy(file, folder)
    return platform.run(folder / program.name, [word.replace("{}/", "Z:\\work\\") for word in words])


def works(folder: Path, target: str, program: Path, *words: str) -> str:
    done = run_in(folder, target, program, words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=TARGETS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    return build_sdk(request.param)


@pytest.fixture(scope="module")
def built(sdk: Sdk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_library(sdk, configure(sdk, EXAMPLES, tmp_path_factory.mktemp("examples")))


def with_library(sdk: Sdk, folder: Path) -> Path:
    """Put the shared library beside programs for Windows, which look for it there."""
    for file in (sdk.path / "bin").glob("*.dll"):
        shutil.copy(file, folder)
    return folder


def expected(target: str, folder: Path) -> bytes:
    """What the bundle's pte_runner makes of in.bin; both files are left in ``folder`` with the model."""
    examples.put_program(folder)
    bundle = builder.build(target, "lean")
    words = ["--model_path={}/model.pte", "--inputs={}/in.npy", "--output_file={}/out"]
    works(folder, target, bundle.path / runner_in(bundle.path), *words)
    outputs = np.load(folder / "out0.npy")
    assert outputs.dtype == np.float32
    assert np.isfinite(outputs).all()
    return bytes(outputs.tobytes())


def spoken(target: str, folder: Path) -> list[str]:
    """What the bundle's pte_runner writes after ids.txt; the programs and ids.txt are left in ``folder``."""
    shutil.copytree(language.programs(), folder, dirs_exist_ok=True)
    np.save(folder / "prompt.npy", np.array(language.PROMPT))
    (folder / "ids.txt").write_text("\n".join(map(str, language.PROMPT)), encoding="ascii")
    bundle = builder.build(target, "lean")
    words = ["--model_path={}/speaker.pte", "--prompt={}/prompt.npy", "--generate=12", "--output_file={}/text"]
    works(folder, target, bundle.path / runner_in(bundle.path), *words)
    found = [str(token) for token in np.load(folder / "text0.npy")]
    assert len(found) == 5
    assert int(found[-1]) in language.STOPS
    return found


def test_the_language_examples_write_what_the_runner_writes(sdk: Sdk, built: Path, tmp_path: Path) -> None:
    target = sdk.manifest.target
    want = spoken(target, tmp_path)
    for name in ("generate", "generate_cpp"):
        for program in ("speaker", "several"):
            words = [f"{{}}/{program}.pte", "{}/ids.txt", "12"]
            assert works(tmp_path, target, built / name, *words).split() == want, (name, program)
        (tmp_path / "wrong.txt").write_text("1 64", encoding="ascii")
        words = ["{}/speaker.pte", "{}/wrong.txt", "12"]
        done = run_in(tmp_path, target, built / name, words)
        assert (done.returncode, done.stdout, "Token 64 is outside" in done.stderr) == (6, "", True)


def test_the_examples_compute_what_the_runner_computes(sdk: Sdk, built: Path, tmp_path: Path) -> None:
    target = sdk.manifest.target
    want = expected(target, tmp_path)
    for name in ["run_once", *(["run_once_shared"] if sdk.manifest.shared else [])]:
        works(tmp_path, target, built / name, "{}/model.pte", "{}/in.bin", f"{{}}/{name}.bin")
        assert (tmp_path / f"{name}.bin").read_bytes() == want, name
    said = works(tmp_path, target, built / "camera", "{}/model.pte", "{}/in.bin", "{}/c.bin", "6")
    assert said.startswith("6 frames, 0 copied")
    frames = (tmp_path / "c.bin").read_bytes()
    assert len(frames) == 6 * len(want)
    assert frames[: len(want)] == want
    assert frames[len(want) : 2 * len(want)] != want


def test_the_c_example_is_short_and_says_what_went_wrong(sdk: Sdk, built: Path, tmp_path: Path) -> None:
    assert len((EXAMPLES / "run_once.c").read_text(encoding="utf-8").splitlines()) <= 42
    done = run_in(tmp_path, sdk.manifest.target, built / "run_once", ["{}/none.pte", "a", "b"])
    assert done.returncode == 3
    assert re.search(r"none\.pte: (No such file|[Ff]ile not found)", done.stderr), done.stderr


def test_what_the_headers_promise(sdk: Sdk, tmp_path: Path) -> None:
    """Sources, errors, copies, two programs on one pool, packed weights, sessions: check.cpp says what failed."""
    libraries = ["slipway::lean", *(["slipway::slipway"] if sdk.manifest.shared else [])]
    shutil.copy(program(), tmp_path / "model.pte")
    shutil.copy(program("conv"), tmp_path / "image.pte")
    shutil.copytree(language.programs(), tmp_path, dirs_exist_ok=True)
    for number, library in enumerate(libraries):
        folder = with_library(sdk, configure(sdk, CHECK, tmp_path / str(number), f"-DLINK={library}"))
        programs = [f"{{}}/{name}.pte" for name in ("model", "image", "speaker", "other", "several")]
        said = works(tmp_path, sdk.manifest.target, folder / "check", *programs)
        assert said.splitlines()[-1].endswith(": 0 failures"), said


def test_the_shared_library_exports_the_c_api_and_nothing_else(sdk: Sdk) -> None:
    import lief

    if not sdk.manifest.shared:
        return
    if get_target(sdk.manifest.target).os == "windows":
        dll = lief.PE.parse(str(sdk.path / "bin" / "libslipway.dll"))
        assert dll is not None
        exports = dll.get_export()
        assert exports is not None
        names = {str(entry.name) for entry in exports.entries}
    else:
        library = lief.ELF.parse(str(sdk.path / "lib" / "libslipway.so.1"))
        assert library is not None
        names = {str(symbol.name) for symbol in library.exported_symbols}
        assert not {"sigaction", "signal", "sigprocmask"} & {str(symbol.name) for symbol in library.imported_symbols}
    header = (sdk.path / "include/slipway/slipway.h").read_text(encoding="utf-8")
    declared = {word.partition("(")[0].lstrip("*") for word in header.split() if word.startswith("slipway_")}
    api = {name for name in declared if f"{name}(" in header}
    assert len(api) > 30
    assert names - {"SLIPWAY_1"} == api


def test_pkg_config_links_a_c_program(tmp_path: Path) -> None:
    """As its file says: the shared library by default, the static one with what it needs."""
    sdk = build_sdk("linux-x86_64")
    text = (sdk.path / "lib/pkgconfig/slipway.pc").read_text(encoding="utf-8")
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    compilers = family("zig").ensure(get_target("linux-x86_64"))
    run([compilers.cc, "-O2", "-c", EXAMPLES / "run_once.c", *_flags(fields["Cflags"], sdk), "-o", tmp_path / "app.o"])
    # zig's C compiler takes -lstdc++ for its own libc++: its C++ compiler links the one that the file names.
    private = [word for word in fields["Libs.private"].split() if word != "-lstdc++"]
    assert len(private) < len(fields["Libs.private"].split())
    for words in (_flags(fields["Libs"], sdk), [str(sdk.path / "lib/libslipway.a"), *private]):
        run([compilers.cxx, tmp_path / "app.o", "-o", tmp_path / "app", *words])
        env = {**os.environ, "LD_LIBRARY_PATH": str(sdk.path / "lib")}
        done = ran([tmp_path / "app"], env=env)
        assert (done.returncode, "needs a path" in done.stderr) == (2, True)


def _flags(text: str, sdk: Sdk) -> list[str]:
    for name, folder in (("libdir", "lib"), ("includedir", "include")):
        text = text.replace(f"${{{name}}}", str(sdk.path / folder))
    return text.split()


def install_package(folder: Path) -> None:
    """Python's package with this machine's library, importable from ``folder``."""
    package = shutil.copytree(ROOT / "runtime/bindings/python/slipway_runtime", folder / "slipway_runtime")
    shutil.copy(build_sdk("linux-x86_64").path / "lib/libslipway.so.1", package)


@pytest.mark.filterwarnings("ignore")
def test_an_input_whose_view_is_read_is_computed_from(tmp_path: Path) -> None:
    """The view has no instruction: it is a value in the memory planned for the input, which is given elsewhere."""
    import torch

    from verify.sound.runtime import input_viewed

    torch.manual_seed(5)
    made = input_viewed()
    (tmp_path / "model.pte").write_bytes(made.buffer)
    np.save(tmp_path / "in.npy", made.runs[0].inputs[0].numpy())
    install_package(tmp_path)
    run([sys.executable, "-c", _FORWARD], cwd=tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "python.npy"), made.runs[0].results[0].numpy())


@pytest.mark.filterwarnings("ignore")
def test_none_and_complex_numbers_go_in_and_come_out(tmp_path: Path) -> None:
    import torch

    from verify.sound.making import made, sound

    given = (torch.ones(2, dtype=torch.complex64) * 2j, None, torch.zeros(3))
    program = sound(made(lambda m, x, nothing, y: (x, nothing, y + 1)), given)
    install_package(tmp_path)
    (tmp_path / "model.pte").write_bytes(program.buffer)
    run([sys.executable, "-c", _NONE], cwd=tmp_path)


def test_the_wheel_in_a_fresh_environment(tmp_path: Path) -> None:
    """Installed by pip; arrays in and out without copies, the same bits as the runner."""
    want = expected("linux-x86_64", tmp_path)
    wheel = write_wheel(build_sdk("linux-x86_64", shared=True))
    run([sys.executable, "-m", "venv", "--system-site-packages", tmp_path / "venv"])
    python = tmp_path / "venv/bin/python"
    words = ["--disable-pip-version-check", "install", "--quiet", "--no-index", "--no-deps"]
    run([python, "-I", "-m", "pip", *words, wheel])
    # A base of a virtual environment of a virtual environment is the outermost Python, which has no NumPy.
    script = f"import sys; sys.path.append({str(Path(np.__file__).parents[1])!r})\n{_SCRIPT}"
    done = well(ran([python, "-c", script], cwd=tmp_path))
    assert (tmp_path / "wheel.bin").read_bytes() == want
    assert done.stdout.splitlines() == SAID
    said = spoken("linux-x86_64", tmp_path)
    env = {**os.environ, "PYTHONPATH": str(Path(np.__file__).parents[1])}
    for name in ("speaker", "several"):
        done = ran([python, EXAMPLES / "generate.py", f"{name}.pte", "ids.txt", "12"], cwd=tmp_path, env=env)
        assert (done.stdout.split(), done.stderr) == (said, "")
    done = ran([python, EXAMPLES / "generate.py", "model.pte", "ids.txt", "12"], cwd=tmp_path, env=env)
    assert (done.returncode, "Method forward does not read tokens" in done.stderr) == (2, True)
    done = ran([python, "-c", language.SESSIONS], cwd=tmp_path, env=env)
    assert (done.stdout, done.stderr) == ("", "")


# The sample that CI runs is the wheel of this machine, in the test before.
@pytest.mark.long
def test_the_wheels_of_other_processors_compute_the_same(tmp_path: Path) -> None:
    """Installed by pip, which reads the tag; run by that system's own Python and NumPy, out of Debian, under QEMU."""
    for name, platform, arch, triple in FOREIGN:
        folder = tmp_path / name
        folder.mkdir()
        want = expected(name, folder)
        target = get_target(name).with_shared_libraries()
        wheel = write_wheel(build_sdk(name, shared=True))
        assert wheel.stem.rpartition("-")[2] == platform
        words = ["--no-index", "--no-deps", "--only-binary=:all:", f"--platform={platform}"]
        pip = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        run([*pip, *words, "--target", folder / "site", wheel])
        root = debian.tree("bookworm", arch, ["python3-minimal", "python3-numpy", "libstdc++6"], closure=True)
        libraries = ":".join(str(root / "usr/lib" / triple / inside) for inside in ("blas", "lapack"))
        qemu = [*emulators.user_argv(target, sysroot=root), "-E", f"LD_LIBRARY_PATH={libraries}"]
        # -B: the tree of Debian's packages is shared, and stays as it was unpacked.
        script = f"import sys; sys.path.insert(0, 'site')\n{_SCRIPT}"
        argv: list[str | Path] = [*qemu, root / "usr/bin/python3.11", "-I", "-B", "-c", script]
        done = well(ran(argv, cwd=folder))
        assert (folder / "wheel.bin").read_bytes() == want, name
        assert done.stdout.splitlines() == SAID
        said, words = spoken(name, folder), ["speaker.pte", "ids.txt", "12"]
        example = repr(str(EXAMPLES / "generate.py"))
        script = f"import runpy, sys; sys.path.insert(0, 'site'); runpy.run_path({example}, run_name='__main__')"
        done = ran([*argv[:-1], script, *words], cwd=folder)
        assert (done.stdout.split(), done.stderr) == (said, "")


@pytest.mark.parametrize(
    ("name", "platform"),
    [("linux-x86_64", "manylinux_2_28_x86_64"), *(pytest.param(*row[:2], marks=long) for row in FOREIGN)],
)
def test_auditwheel_confirms_the_tags(name: str, platform: str) -> None:
    """It reads the libraries in a wheel, and names the oldest systems that load them: not newer ones than the tag."""
    wheel = write_wheel(build_sdk(name, shared=True))
    assert wheel.stem.endswith(f"-{platform}")
    said = " ".join(run([sys.executable, "-m", "auditwheel", "show", wheel]).stdout.split())
    found = re.search(r'is consistent with the following platform tag: "manylinux_2_(\d+)_(\w+)"', said)
    assert found, said
    assert int(found[1]) <= 28, said
    # It takes every hard-float library of 32-bit Arm for ARMv7's.
    assert found[2] == platform.replace("linux_armv6l", "manylinux_2_28_armv7l").removeprefix("manylinux_2_28_")


def test_the_package_has_types(tmp_path: Path) -> None:
    """mypy, as a user runs it over a program with the installed package: right use passes, wrong use is named."""
    wheel = write_wheel(build_sdk("linux-x86_64", shared=True))
    pip = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, "--no-index", "--no-deps", "--target", tmp_path / "site", wheel])
    (tmp_path / "right.py").write_text(_TYPED, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(_TYPED.replace("threads=2", 'threads="2"'), encoding="utf-8")
    env = {**os.environ, "MYPYPATH": str(tmp_path / "site")}
    argv = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", "--follow-imports=silent"]
    said = [ran([*argv, name], cwd=tmp_path, env=env).stdout for name in ("right.py", "wrong.py")]
    assert said[0].startswith("Success"), said[0]
    assert 'has incompatible type "str"; expected "int"' in said[1]


_FORWARD = """
import numpy
import slipway_runtime

(found,) = slipway_runtime.load("model.pte").forward(numpy.load("in.npy"))
numpy.save("python.npy", found)
"""
_NONE = """
import numpy as np
import slipway_runtime

method = slipway_runtime.load("model.pte").methods["forward"]
for specs in (method.inputs, method.outputs):
    assert [one.dtype for one in specs] == ["complex64", "none", "float32"]
x, y = np.full(2, 2j, np.complex64), np.zeros(3, np.float32)
one, nothing, two = method.forward(x, None, y, copy=True)
assert (one.tolist(), nothing, two.tolist()) == (x.tolist(), None, [1, 1, 1])
for wrong, said in (((x, y, y), "Input 1 is float32 3; the method takes None."), ((x, None, None), "Input 2")):
    try:
        method.forward(*wrong)
    except slipway_runtime.InputError as error:
        assert said in error.message, error
    else:
        raise AssertionError(wrong)
"""
_TYPED = """
import numpy as np
import numpy.typing as npt

import slipway_runtime

pool = slipway_runtime.Pool(threads=2)
program: slipway_runtime.Program = slipway_runtime.load("model.pte", pool=pool, methods=["forward"])
shape: tuple[int, ...] = program.methods["forward"].inputs[0].shape
outputs: list[npt.NDArray[np.float32]] = program.forward(np.zeros(shape, np.float32))
try:
    program.execute("other", copy=True)
except slipway_runtime.InputError as error:
    print(error.code + 1, error.message.upper(), error.fix.upper())
with slipway_runtime.Session(program) as session:
    session.feed([1, 2])
    token: int = session.sample() + session.stops[0] + session.position
    saved: bytes = session.to_bytes()
"""
_SCRIPT = """
import gc, threading
import numpy as np
import slipway_runtime

program = slipway_runtime.load("model.pte")
inputs = np.load("in.npy")
spec = program.methods["forward"].inputs[0]
print(spec.kind, spec.dtype, spec.shape, spec.dynamism)
(output,) = program.forward(inputs)
open("wheel.bin", "wb").write(output.tobytes())
print(output.shape)
kept = np.array(output)
try:
    program.forward(inputs[:, 1:])
except slipway_runtime.InputError as error:
    print(error.code, error.message.split(" is ")[1].split(";")[0])
try:
    slipway_runtime.load("none.pte")
except slipway_runtime.Error as error:
    print(error.code, error.message.split(":")[0].split()[-1])
# Two programs and one pool, each in a thread of its own; one of them from memory.
pool = slipway_runtime.Pool(2)
others = [slipway_runtime.load(source, pool=pool) for source in ("model.pte", open("model.pte", "rb").read())]
wrong = []

def use(other):
    for _ in range(20):
        (found,) = other.forward(inputs)
        if not np.array_equal(found, kept):
            wrong.append(found)

threads = [threading.Thread(target=use, args=(other,)) for other in others]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong
# What a program computed stays as long as an array of it does.
(output,) = others[1].forward(inputs)
del others
gc.collect()
assert np.array_equal(output, kept)
print(output.flags.writeable)
"""
