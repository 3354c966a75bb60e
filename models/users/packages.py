"""Packages that a user's model file imports: ``requirements.txt`` beside it, installed apart from the exporter's own.

The exporter's torch is a CPU build, and what is installed here must fit it: pip resolves against the exporter's
environment, whose packages stay as they are. Without torch.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from core.aside import NAMES
from core.console import note
from core.environment import bootstrap
from core.environment.installer import Size
from core.errors import ConfigError, ExportError, HostError
from core.files import locked, sha256_bytes, write_atomic
from core.paths import cache_dir


@functools.cache
def serve(folder: Path) -> Any:
    """Make the packages in ``folder`` usable here; what is returned must live as long as they do."""
    if (folder / "torchaudio").is_dir():
        _torchaudio()
    return _torchvision() if (folder / "torchvision").is_dir() else None


def _torchvision() -> Any:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):  # which it describes when it is imported
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision.ops")
    sys.modules["torchvision.ops.boxes"]._assert_has_ops = _refusing(  # type: ignore[attr-defined]
        "torchvision's nms",
        "no runtime has a kernel for it: return boxes and scores from forward, and choose among them in the program "
        "that calls the model",
    )
    for name in ("deform_conv", "ps_roi_align", "ps_roi_pool", "roi_pool"):
        sys.modules[f"torchvision.ops.{name}"]._assert_has_ops = _refusing(f"torchvision's {name}")  # type: ignore[attr-defined]
    # Without compiled code it would compile itself, for which it wants a C++ compiler on this machine.
    own = sys.modules["torchvision.ops.roi_align"]
    own._roi_align = getattr(own._roi_align, "__wrapped__", own._roi_align)  # type: ignore[attr-defined]
    return library


def _refusing(what: str, why: str = "the package index has that for GPUs only") -> Any:
    """A function that says that ``what`` is not here."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{what} is compiled, and {why}")

    return refuse


def _torchaudio() -> None:
    """Let torchaudio find that its extension is not there."""

    def absent(function: Any) -> Any:
        return functools.wraps(function)(_refusing(f"torchaudio's {function.__name__}"))

    module = ModuleType("torchaudio._extension")
    vars(module).update(_IS_TORCHAUDIO_EXT_AVAILABLE=False, _IS_ALIGN_AVAILABLE=False, fail_if_no_align=absent)
    sys.modules.setdefault(module.__name__, module)


REQUIREMENTS = "requirements.txt"
_LOCK = "lock.txt"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PROJECT = (".git", "pyproject.toml", "setup.py")
"""The topmost folder of a project has one of them."""
_OURS = frozenset(["executorch", "numpy", "torch", "torchao"])
"""Never installed again: the exporter's own are used, whatever the file says."""
_PACKAGES_OF = {"cv2": "opencv-python-headless", "PIL": "Pillow", "sklearn": "scikit-learn", "skimage": "scikit-image"}
"""Modules whose packages have other names."""


def normal(name: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def listed(text: str, source: str) -> list[str]:
    """The requirements in a file, sorted, without comments and without the exporter's own packages.

    Raises:
        ConfigError: a line that is not a package of the index.
    """
    found = []
    for line in text.splitlines():
        word = line.partition("#")[0].strip()
        if not word:
            continue
        name = _NAME.match(word)
        if name is None or "://" in word or "@" in word or word.startswith("-"):
            raise ConfigError(
                f"{source} has a line that Slipway does not install: {word}",
                "it takes names of packages with versions, as timm==1.0.31: neither options nor addresses",
                "remove the line, and put modules of your own beside the model's file",
                [word],
            )
        if normal(name.group()) not in _OURS:
            found.append(word)
    return sorted(set(found))


def wanted(source: Path) -> tuple[str, ...]:
    """What a model's file needs: the lines of ``requirements.txt`` beside it.

    Raises:
        ConfigError: a line that is not a package of the index.
    """
    file = source.parent / REQUIREMENTS
    return tuple(listed(file.read_text(encoding="utf-8"), str(file))) if file.is_file() else ()


def folder_of(lines: Sequence[str]) -> Path:
    """Where these requirements are installed, whether they are or not."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = sha256_bytes(json.dumps([sorted(lines), bootstrap.lock_file("export").read_text("utf-8")]).encode())
    return cache_dir("packages") / f"python{python}-{digest[:16]}"


def pins(lines: Sequence[str]) -> dict[str, str]:
    """Name and version of everything that is installed for these requirements; empty if nothing is."""
    file = folder_of(lines) / _LOCK
    return _versions(file.read_text("utf-8")) if lines and file.is_file() else {}


def _versions(lock: str) -> dict[str, str]:
    found = (line.split()[0].partition("==") for line in lock.splitlines() if "==" in line)
    return {name: version for name, _, version in found}


def install(lines: Sequence[str], lock: str = "") -> Path:
    """Install requirements, and what they need, unless they are there; their folder.

    Args:
        lock: what to install for them, if that is known already.

    Raises:
        HostError: no version fits the exporter's packages, no network, no space.
    """
    folder = folder_of(lines)
    if folder.is_dir():
        return folder
    with locked(f"packages-{folder.name}"):
        if not folder.is_dir():
            lock = lock or _resolve(lines)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as fresh:
                target = Path(fresh) / "packages"
                target.mkdir()
                write_atomic(target / _LOCK, lock)
                if "==" in lock:
                    bootstrap.install_listed(target / _LOCK, Path(sys.prefix), target, Size("the model's packages"))
                target.rename(folder)
    return folder


def _resolve(lines: Sequence[str]) -> str:
    """The lock of what pip would install for ``lines`` into the exporter's environment, without changing that."""
    note(f"Looking for versions of {', '.join(lines)} that fit the exporter's torch")
    # Of the environment alone: packages of other commands may be on this process's path.
    there = metadata.distributions(path=[sysconfig.get_path("purelib")])
    present = {normal(one.metadata["Name"]): one.version for one in there}
    with tempfile.TemporaryDirectory(prefix="slipway-packages-") as temporary:
        constraints, report = Path(temporary) / "constraints.txt", Path(temporary) / "report.json"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in present.items()), "utf-8")
        done = subprocess.run(
            [
                sys.executable, "-I", "-m", "pip", "install", "--dry-run", "--quiet", "--no-input",
                "--disable-pip-version-check", "--only-binary=:all:", "--report", report, "-c", constraints, *lines,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
            raise HostError(
                f"No versions of {', '.join(lines)} were found that fit the exporter.",
                "\n".join(said[-6:]),
                f"other versions: the exporter has torch {present.get('torch')} and numpy {present.get('numpy')}; "
                "packages without wheels are not built here: PIP_FIND_LINKS=FOLDER names a folder with yours",
            )
        found = json.loads(report.read_text("utf-8"))["install"]
    return "".join(_pin(one) for one in found) or "# everything is in the exporter's environment\n"


def _pin(found: dict[str, Any]) -> str:
    name, version = found["metadata"]["name"], found["metadata"]["version"]
    digest = found["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not digest:
        raise HostError(
            f"The index gives no SHA-256 of {name} {version}.",
            "pip cannot check what it downloads then",
            "another index",
        )
    return f"{name}=={version} --hash=sha256:{digest}\n"


_entered: list[Path] = []


def enter(lines: Sequence[str]) -> None:
    """Make installed requirements importable in this process, after the exporter's own packages.

    Raises:
        ExportError: this process has others already; a package cannot be loaded in two versions.
    """
    if not lines:
        return
    folder = folder_of(lines)
    if _entered and _entered[0] != folder:
        raise ExportError(
            "One command cannot export models with different requirements.",
            f"packages from {_entered[0]} are loaded already",
            "a command for each folder of models",
        )
    if not _entered:
        _entered.append(folder)
        sys.path.append(str(folder))
        importlib.invalidate_caches()

        serve(folder)


def advice(error: BaseException, source: Path) -> str:
    """The next command after an error of the user's code; empty if that was not a missing package.

    A package of the index has the name of a module of the user's only by chance: it would be a stranger's.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module, _, rest = error.name.partition(".")
    for folder in _own_folders(source):
        if PathFinder.find_spec(module, [str(folder)]):
            if str(folder) in sys.path or folder == source.parent:
                return f"correct the import: {module} is your own, in {folder}, and has no {rest or 'module'}"
            return f"sys.path.insert(0, {str(folder)!r}) before the import in {source}: your {module} is there"
    if module in NAMES:
        return f"put your package {module} beside {source}, or before the import its folder into sys.path"
    if module in sys.modules:
        return ""
    return f"./inv models --add {_PACKAGES_OF.get(module, module)} --model {source}"


def _own_folders(source: Path) -> list[Path]:
    """The file's folder and those above it, as far as its project goes; at most three if it is in none."""
    folders = list(source.absolute().parents)[:-1]
    ends = [place for place, one in enumerate(folders) if any((one / name).exists() for name in _PROJECT)]
    return folders[: ends[0] + 1 if ends else 3]


def add(names: Iterable[str], source: Path) -> Path:
    """Add packages to ``requirements.txt`` beside a model's file, pinned to the versions that fit, and install them.

    Returns:
        the file.

    Raises:
        ConfigError: something that is not the name of a package. HostError: as `install`.
    """
    chosen = listed("\n".join(names), "the command")
    file = source.parent / REQUIREMENTS
    before = file.read_text("utf-8") if file.is_file() else ""
    names_of = [normal(match[0]) for word in chosen if (match := _NAME.match(word))]
    kept = [
        line for line in before.splitlines() if not (match := _NAME.match(line)) or normal(match[0]) not in names_of
    ]
    lock = _resolve(listed("\n".join([*kept, *chosen]), str(file)))
    versions = {normal(name): version for name, version in _versions(lock).items()}
    pinned = [
        f"{name}=={versions[name]}" if name in versions and "=" not in word else word
        for name, word in zip(names_of, chosen, strict=True)
    ]
    text = "\n".join([*kept, *pinned]) + "\n"
    install(listed(text, str(file)), lock)
    write_atomic(file, text)
    return file
