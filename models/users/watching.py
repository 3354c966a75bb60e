"""See what a user's model function reads, so that a change of it makes the export outdated. Without torch.

Python reports each file that it opens to audit hooks (`sys.addaudithook`). Libraries that open files in compiled code
do not report: those that weights usually come from, safetensors and two functions of torch, are wrapped instead.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import site
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from core.aside import PREFIX
from core.files import sha256_bytes, sha256_file
from core.paths import ROOT, cache_dir

CHANGING = "changed while it was read"
"""Instead of a digest; equal to no file's."""
_SETTLED = 2_000_000_000  # nanoseconds; file systems' clocks may tick as slowly


def looks(path: Path) -> list[int]:
    """Size, inode and times of a file: while they stay the same, so does its content.

    Raises:
        OSError: there is no such file.
    """
    found = path.stat()
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def file(path: Path, before: Sequence[int] = ()) -> dict[str, Any]:
    """What is kept of a file: its digest, and its looks so that the digest need not be computed each time.

    Args:
        before: its looks when it was opened; then a file that has changed since is equal to none.
    """
    now = looks(path)
    sha256 = sha256_file(path)
    if now != looks(path) or (before and list(before) != now):
        return {"sha256": CHANGING, "looks": []}
    settled = time.time_ns() - max(now[2], now[3]) > _SETTLED
    return {"sha256": sha256, "looks": now if settled else []}


def names(folder: Path) -> str:
    """Digest of the names in a folder; hidden files and Python's own do not count."""
    kept = sorted(one.name for one in folder.iterdir() if not one.name.startswith((".", "__pycache__")))
    return sha256_bytes("\0".join(kept).encode(errors="surrogateescape"))


@functools.cache
def version(package: str) -> str:
    """A package's version, without importing it; ``absent`` if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def changed(depends: Mapping[str, Mapping[str, Any]]) -> str:
    """The first dependency that is not what it was, in words; empty if all are the same.

    Args:
        depends: as `models.users.watching` notes it: ``files``, ``folders`` and ``packages`` by name.
    """
    return next(filter(None, _changes(depends)), "")


def _changes(depends: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    for package, was in depends.get("packages", {}).items():
        if was != version(package):
            yield f"{package} is now {version(package)}, it was {was}"
    for folder, was in depends.get("folders", {}).items():
        if not Path(folder).is_dir() or names(Path(folder)) != was:
            yield f"the folder {folder} has other files"
    for path, was in depends.get("files", {}).items():
        yield _file_changed(Path(path), was)


def _file_changed(path: Path, was: Mapping[str, Any]) -> str:
    if not was["sha256"]:
        return f"{path} has appeared" if path.exists() else ""
    if not path.is_file():
        return f"{path} is missing"
    return "" if was["looks"] == looks(path) or sha256_file(path) == was["sha256"] else f"{path} has changed"


_SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/run/", "/usr/lib/", "/usr/share/")
_INSTALLED = frozenset(["site-packages", "dist-packages"])
_WRITES = os.O_WRONLY | os.O_RDWR


@functools.cache
def _elsewhere() -> tuple[str, ...]:
    """The beginnings of paths that are no input of a model: the system's, Python's, this project's and its cache's."""
    folders: list[str] = [*sysconfig.get_paths().values(), *site.getsitepackages(), sys.prefix, os.fspath(cache_dir())]
    rooms = [os.fspath(ROOT / name) for name in ("commands", "core", "deploy", "models", "toolchains", "verify")]
    found = {os.path.realpath(folder) for folder in (*folders, *rooms)} - {"/", "/usr", "/usr/local"}
    return (*_SYSTEM, *(folder + os.sep for folder in sorted(found)))


class Watch:
    """What was read while it was active, but the user's file ``source``, which is in the export's key anyway."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.folder = source.parent
        self._opened: dict[str, list[int]] = {}
        self._wrote: set[str] = set()
        self._absent: set[str] = set()
        self._listed: set[str] = set()
        self._modules = set(sys.modules)

    def _counts(self, path: str) -> bool:
        """Whether a file can be the user's: it is beside the model's file, or not part of what is installed."""
        if _INSTALLED.intersection(Path(path).parts):
            return False
        return path.startswith(os.fspath(self.folder) + os.sep) or not path.startswith(_elsewhere())

    def _path(self, value: Any) -> str:
        """The absolute path of what was opened; empty if it is not a path that counts."""
        if isinstance(value, int) or not isinstance(value, (str, bytes, os.PathLike)):
            return ""
        path = os.path.realpath(os.fsdecode(value))
        if path.endswith(".pyc"):
            with contextlib.suppress(ValueError):
                path = importlib.util.source_from_cache(path)
        return path if path != os.fspath(self.source) and self._counts(path) else ""

    def opened(self, value: Any, mode: Any = "r", flags: Any = 0) -> None:
        """A file is about to be opened."""
        if path := self._path(value):
            writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & _WRITES)
            if writes:
                self._wrote.add(path)
            if not Path(path).exists():
                self._absent.add(path)
            elif not writes and Path(path).is_file():
                self._opened.setdefault(path, looks(Path(path)))

    def listed(self, value: Any, frame: FrameType) -> None:
        """A folder's names are read; Python's look for modules does not count."""
        if "importlib" not in frame.f_code.co_filename and (path := self._path("." if value is None else value)):
            self._listed.add(path)

    def modules(self) -> dict[str, ModuleType]:
        """Modules of the user's own that were imported meanwhile, by name: not those of installed packages."""
        found = {}
        for name in set(sys.modules) - self._modules:
            module = sys.modules[name]
            file = getattr(module, "__file__", None)
            # A package without a file has no path if its own package was not imported after all.
            with contextlib.suppress(KeyError):
                file = file or next(iter(getattr(module, "__path__", ())), None)
            if file and not name.startswith(PREFIX) and Path(file).exists() and self._counts(os.path.realpath(file)):
                found[name] = module
        return dict(sorted(found.items()))

    def found(self) -> dict[str, dict[str, Any]]:
        """What the export depends on, as `models.users.watching.changed` compares it."""
        kept: dict[str, Any] = {}
        for path, before in self._opened.items():
            if Path(path).is_file():
                kept[path] = file(Path(path), () if path in self._wrote else before)
        # What the function writes itself and removes again is no input.
        for path in self._absent - self._wrote - set(kept):
            if not Path(path).exists():
                kept[path] = {"sha256": "", "looks": []}
        return {
            "files": dict(sorted(kept.items())),
            "folders": {path: names(Path(path)) for path in sorted(self._listed) if Path(path).is_dir()},
            "packages": {name: version(name) for name in self._packages()},
        }

    def _packages(self) -> list[str]:
        """The installed packages that the user's modules import, and those that were imported meanwhile."""
        import ast

        names = {name.partition(".")[0] for name in set(sys.modules) - self._modules}
        for file in {os.fspath(self.source), *(path for path in self._opened if path.endswith(".py"))}:
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                for node in ast.walk(ast.parse(Path(file).read_bytes())):
                    if isinstance(node, ast.Import):
                        names |= {alias.name.partition(".")[0] for alias in node.names}
                    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                        names.add(node.module.partition(".")[0])
        by_module = metadata.packages_distributions()
        found = {package for name in names if name in sys.modules for package in by_module.get(name, ())}
        # What was installed for the model's own file is in the export's key.
        apart = os.fspath(cache_dir("packages"))
        return sorted(one for one in found if not str(metadata.distribution(one).locate_file("")).startswith(apart))


_active: Watch | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _active is None or event not in _EVENTS:
        return
    with contextlib.suppress(Exception):  # an exception of a hook would stop the user's own call
        _EVENTS[event](_active, arguments, sys._getframe(1))


_EVENTS: dict[str, Callable[[Watch, tuple[Any, ...], FrameType], None]] = {
    "open": lambda watch, arguments, _: watch.opened(*arguments),
    "sqlite3.connect": lambda watch, arguments, _: watch.opened(arguments[0]),
    "ctypes.dlopen": lambda watch, arguments, _: watch.opened(arguments[0]),
    "import": lambda watch, arguments, _: watch.opened(arguments[1]),
    "os.listdir": lambda watch, arguments, frame: watch.listed(arguments[0], frame),
    "os.scandir": lambda watch, arguments, frame: watch.listed(arguments[0], frame),
}


def _noting(function: Any) -> Any:
    """``function``, whose first argument is a path that it opens in compiled code."""

    @functools.wraps(function, updated=())
    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        if _active is not None:
            with contextlib.suppress(Exception):
                _active.opened(path)
        return function(path, *arguments, **options)

    return call


# Module -> the function that opens a file in compiled code.
_COMPILED = {"safetensors": "safe_open", "safetensors.torch": "safe_open", "torch": "from_file", "torch.jit": "load"}


@functools.cache
def _install() -> None:
    """Once a process: an audit hook cannot be removed, and packages keep what they have imported."""
    sys.addaudithook(_hook)
    with contextlib.suppress(ImportError):
        import safetensors  # type: ignore[import-not-found,unused-ignore]  # before the packages that import from it

        del safetensors
    for module, name in _COMPILED.items():
        if module in sys.modules and hasattr(sys.modules[module], name):
            setattr(sys.modules[module], name, _noting(getattr(sys.modules[module], name)))


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Note in ``watch`` what is read while the block runs."""
    global _active  # noqa: PLW0603  # a hook cannot be removed: it asks for this
    _install()
    _active = watch
    try:
        yield
    finally:
        _active = None
