"""Give a user's own packages the names of ours while his code runs: ``core``, ``models``, ``tests`` and the others.

Python has one table of modules, where a name belongs to who came first. While ours stand aside, the table has them as
``slipway.core``, ``slipway.models`` and so on, the names that they have in an installed Slipway, and imports in our own
files look for them there. Every other import finds the user's packages: those in his files, ``import_module``,
pickles, `torch.load`, torch.export's own look-ups.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import FunctionType, ModuleType
from typing import Any

from core.paths import IMPORTS, INSTALLED, ROOT

PREFIX = "slipway."
NAMES = frozenset(["commands", "core", "deploy", "models", "tasks", "tests", "toolchains", "verify"])
"""What lies at the top of the checkout and can be imported."""
OFFERED = frozenset(["models.methods"])
"""Modules that users' files import from us (docs/models.md), unless a package of the user's has them, too."""
_FOLDERS = tuple(os.fspath(ROOT / name) + os.sep for name in sorted(NAMES - {"tests"}))

_import, _import_module = builtins.__import__, importlib.import_module
_depth = 0


def _top(name: str) -> str:
    return name.partition(".")[0]


def _by_us(where: Mapping[str, Any]) -> bool:
    """Whether the globals are those of one of our files."""
    name, file = where.get("__name__"), where.get("__file__")
    return str(name).startswith(PREFIX) or str(file).startswith(_FOLDERS)


def _imported(
    name: str,
    globals: Mapping[str, Any] | None = None,  # noqa: A002  # Python's names
    locals: Mapping[str, Any] | None = None,  # noqa: A002
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """What an import statement calls."""
    top = _top(name)
    if level or top not in NAMES or not _depth:
        return _import(name, globals, locals, fromlist or (), level)
    # Compiled code, such as pickle's, passes a list, and the globals of whichever file has called it.
    if isinstance(fromlist, list) or not _by_us(globals or {}):
        try:
            return _import(name, globals, locals, fromlist or (), level)
        except ModuleNotFoundError as error:
            if name not in OFFERED or error.name not in (name, top):
                raise
    found = _import(PREFIX + name, globals, locals, fromlist or ("__name__",), 0)
    return found if fromlist else sys.modules[PREFIX + top]


def _imported_module(name: str, package: str | None = None) -> ModuleType:
    """`importlib.import_module`."""
    if _depth and _top(name) in NAMES and _by_us(sys._getframe(1).f_globals):
        name = PREFIX + name
    return _import_module(name, package)


class _NotOurs:
    """Finds the user's packages of these names, also where our folder is among those to look in."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None) -> ModuleSpec | None:
        """Called by Python for each module that its table lacks."""
        if path is not None or name not in NAMES:
            return None
        folders = [one for one in sys.path if os.path.realpath(one) != os.fspath(ROOT)]
        found = PathFinder.find_spec(name, folders)
        if found is None and len(folders) != len(sys.path):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found


def _ours() -> dict[str, ModuleType]:
    """Our modules, by the names that the table has them under."""
    found = {}
    for name, module in list(sys.modules.items()):
        if (top := _top(name)) in NAMES:
            file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
            if os.path.realpath(file).startswith((f"{ROOT / top}{os.sep}", f"{ROOT / top}.py")):
                found[name] = module
    return found


def _rename(module: ModuleType, name: str) -> None:
    """Let a module, and the classes and functions in it, say that its name is ``name``."""
    old, module.__name__ = module.__name__, name
    module.__package__ = name if hasattr(module, "__path__") else name.rpartition(".")[0]
    for one in (module.__spec__, getattr(module, "__loader__", None)):
        if getattr(one, "name", None) == old:
            one.name = name  # type: ignore[union-attr]
    for value in list(vars(module).values()):
        if isinstance(value, (type, FunctionType)) and value.__module__ == old:
            value.__module__ = name


def _step_aside() -> None:
    if "slipway" not in sys.modules:
        spec = ModuleSpec("slipway", None, is_package=True)
        spec.submodule_search_locations = [os.fspath(IMPORTS)]
        sys.modules["slipway"] = module_from_spec(spec)
    for name, module in _ours().items():
        sys.modules[PREFIX + name] = module
        _rename(module, PREFIX + name)
        if name in NAMES:
            setattr(sys.modules["slipway"], name, module)
    builtins.__import__, importlib.import_module = _imported, _imported_module
    sys.meta_path.insert(0, _NotOurs)
    for name in _ours():
        del sys.modules[name]


def _step_back() -> None:
    for name in [name for name in sys.modules if _top(name) in NAMES]:
        del sys.modules[name]
    for name, module in list(sys.modules.items()):
        public = name.removeprefix(PREFIX)
        if public != name and _top(public) in NAMES:
            _rename(module, public)
            sys.modules[public] = module
    # Another one who has replaced it calls ours, which does nothing then.
    if builtins.__import__ is _imported:
        builtins.__import__ = _import
    if importlib.import_module is _imported_module:
        importlib.import_module = _import_module
    sys.meta_path.remove(_NotOurs)


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Let names at the top belong to the user's packages while the block runs. May be nested.

    After it, the table has ours again, and nothing under their names that is not ours.
    """
    global _depth  # noqa: PLW0603  # the table of modules is one for the process, too
    if INSTALLED:
        yield  # ours have other names always
        return
    _depth += 1
    if _depth == 1:
        _step_aside()
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _step_back()
