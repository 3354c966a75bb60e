"""What the `console` blocks of docs/ tell a reader to type, and where each line of them is tried."""

from __future__ import annotations

import re

from core.paths import ROOT

DOCS = ROOT / "docs"
INSPECT = "Inspecting a run"
"""The section of compare.md whose commands take what tests/integration/test_inspect.py has at hand."""


def section(page: str, title: str) -> str:
    (found,) = (part for part in sections(page) if part.startswith(f"{title}\n"))
    return found


def sections(page: str) -> list[str]:
    """What stands before a page's first section, and its sections."""
    return re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)


Line = tuple[str, str]
"""A page, and a command as it stands there, without its comment."""

RUN = {
    "build.md": ("./inv build --profiles profiles", "./inv build --profiles profiles --target linux-armv6"),
    "devices.md": (
        "./inv deploy --device cpu:cortex-a53",
        "./inv build --target linux-armv6",
        "./inv devices.run pi-zero",
    ),
    "embedding.md": ("cmake -S runtime/examples -B build -D", "cmake --build build", "build/run_once "),
    "howto.md": ("./inv deploy --device pi", "./inv deploy --device local", "./inv inspect"),
    "lean.md": ("./inv build", "./inv deploy"),
    "matrix.md": ("./inv matrix --devices local --engines lean",),
    "models.md": ("./inv export --model net.py:make_model --scheme qs8", "./inv deploy --device pi", "./inv deploy"),
    "onnx.md": (
        "./inv deploy --device pi --model some.onnx",
        "./inv deploy --device pi --model some.onnx --inputs",
        "./inv deploy --device pi --model some.onnx",
    ),
}
"""Pages and the beginnings of commands that tests/integration/test_tutorials.py types, in this order: all that need
nothing of the reader's, and are not typed by another test."""

DEVICE = "it takes a device of the reader's; tests/integration/test_virtual_machines.py has a virtual one"
ELSEWHERE = (
    ("tutorials.md", "", "tests/integration/test_tutorials.py and test_virtual_phone.py"),
    ("matrix.md", "python3 -m venv", "tests/integration/test_pytest_plugin.py"),
    ("matrix.md", ".venv/bin/", "tests/integration/test_pytest_plugin.py"),
    ("matrix.md", "PYTHONPATH=", "tests/integration/test_pytest_plugin.py"),
    ("matrix.md", "podman ", "it takes podman; tests/unit/test_workflow.py reads the Containerfile"),
    ("matrix.md", "../slipway/inv matrix", "tests/integration/test_matrix.py"),
    ("matrix.md", "rm -r ~/.cache/slipway/warm", "it ends other exporters; tests/integration/test_warm.py"),
    ("build.md", "conan ", "tests/integration/test_conan_package.py"),
    ("build.md", "export SLIPWAY_DEBIAN_MIRROR", "it takes a mirror; tests/integration/test_installing.py"),
    ("build.md", "export ", "it takes a server; tests/integration/test_shared_builds.py has one"),
    ("build.md", "python -m toolchains.debian.fetch_source pins", "it asks Debian's server; tests/unit/test_debian.py"),
    ("build.md", "ANDROID_NDK_HOME=", "it takes Google's NDK; tests/integration/test_toolchain.py"),
    ("embedding.md", "ANDROID_NDK_HOME=", "it takes Google's NDK; tests/integration/test_java.py"),
    ("embedding.md", "conan ", "tests/integration/test_conan_package.py"),
    ("embedding.md", "path/to/slipway/inv build --profiles", "tests/integration/test_conan_package.py"),
    ("embedding.md", "cmake ", "tests/integration/test_libslipway.py and test_sdk.py"),
    ("embedding.md", "pip install", "it takes an Arm device; tests/integration/test_libslipway.py"),
    ("build.md", "./inv doctor", "tests/integration/test_installing.py has it without a mirror"),
    ("howto.md", "./inv deploy --device pi --model llama.pte", "tests/integration/test_answer.py"),
    ("models.md", "./inv deploy --model smollm2_135m", "half an hour; test_answer.py has a small one"),
    ("models.md", "./inv chat", "half an hour; test_answer.py has a small one"),
    ("howto.md", "source ", "tests/integration/test_userlands.py"),
    ("howto.md", "export INVOKE", "it is for the reader's shell; tests/unit/test_command_line.py"),
    ("lean.md", "pte_runner ", "tests/integration/test_weights_cache.py"),
    ("proofs.md", "cd dist/tests", "tests/integration/test_runtime.py"),
    ("proofs.md", "./tail_tests", "tests/integration/test_runtime.py"),
    ("proofs.md", "SLIPWAY_TESTS_", "tests/integration/test_runtime.py"),
    ("devices.md", "./inv deploy --device cpu:", "tests/integration/test_emulated_devices.py"),
    ("devices.md", "./inv deploy --device wine", "tests/integration/test_emulated_devices.py"),
    ("devices.md", "adb connect", "it takes adb; tests/integration/test_virtual_phone.py"),
    ("*", "./inv self.agree", "hours on all CPUs; tests/integration/test_lean_layers.py and test_sound_programs.py"),
    ("*", "./inv self.bench", "hours, and it writes tracked figures; tests/unit/test_nets.py"),
    ("*", "./inv build", "tests/integration/test_build.py"),
    ("*", "./inv deploy", f"{DEVICE}; tests/integration/test_deploy_local.py"),
    ("*", "./inv devices.", DEVICE),
    ("*", "./inv self.docs", "tests/integration/test_pages.py"),
    ("*", "./inv export", "tests/integration/test_export.py"),
    ("*", "./inv self.fuzz", "hours; tests/integration/test_damaged_graphs.py"),
    ("*", "./inv inspect", "tests/integration/test_inspect.py"),
    ("*", "./inv matrix", "tests/integration/test_matrix.py"),
    ("*", "./inv models --add", "it asks a package index; tests/integration/test_tutorials.py"),
    ("*", "./inv test", "it is what runs the tests"),
)  # fmt: skip
"""Page, how a command begins, and why no test types it, or which test runs what it runs. The first that fits counts."""


def lines(blocks: str = "console") -> list[Line]:
    """All that the pages of docs/ tell a reader to type; a line that ends with a backslash goes on in the next."""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for block in re.findall(rf"^ *```{blocks}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
            for line in block.replace("\\\n", " ").splitlines():
                if blocks == "sh" or line.lstrip().startswith("$ "):
                    command = re.sub(r"(^| )# .*|\s+# .*", "", line.strip().removeprefix("$ "))
                    found += [(page.name, " ".join(command.split()))] if command else []
    return found


def to_run(page: str) -> list[str]:
    """The commands of a page that are typed, in `RUN`'s order."""
    own = [command for name, command in lines() if name == page]
    return [next(one for one in own if one.startswith(start)) for start in RUN[page]]


def reason(line: Line) -> str:
    """Why a line is not typed; empty if nothing says so."""
    return next((why for page, start, why in ELSEWHERE if page in ("*", line[0]) and line[1].startswith(start)), "")
