"""Build Slipway's wheel: ``pip install .`` calls this (PEP 517). A wheel is an archive; the standard library writes it.

In the checkout the packages are ``core``, ``deploy`` and so on, at the top. Installed, they would meet a user's own
folders of these names. So the wheel has them below one package, ``slipway``, and their imports say so::

    slipway/__init__.py          slipway.core, slipway.deploy, ... are found in _dist/slipway
    slipway/__main__.py          the command: core/cli/launch.py
    slipway/_dist/slipway/       the checkout's files; the environment of the commands has _dist on its path

The modules stay as they are but for the words ``core`` and ``./inv``: imports, names of modules in strings and in
tables, and the commands in messages.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import re
import tokenize
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
ROOMS = ("core", "toolchains", "models", "deploy", "commands", "verify")
_DATA = ("locks", "recipes", "runtime")
_FILES = ("LICENSE", "README.md", "conanfile.py", "pyproject.toml", "tasks.py")
_LEFT_OUT = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
_HOME = "slipway/_dist/slipway"
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in the archive: the same sources give the same bytes."""
_INIT = '''\
"""Slipway, installed: its packages are slipway.core, slipway.deploy and so on."""

from pathlib import Path

__version__ = "{version}"
__path__ = [*__path__, str(Path(__file__).resolve().parent / "_dist" / "slipway")]
'''
_MODULE = rf"(?P<module>(?:{'|'.join(ROOMS)})(?:\.\w+)+)\.?"
_QUOTED = re.compile(rf"(?i:[rbuf]*)(?:\"\"\"|'''|\"|'){_MODULE}(?=[\"':{{])")
_PIECE = re.compile(rf"{_MODULE}$")
"""Names of modules in strings, and in a piece of an f-string."""
_IN_TABLE = re.compile(rf'(?<=")(?={"|".join(rf"{room}[.]" for room in ROOMS)})(?P<module>[\w.]+)(?=:\w+")')
_COMMAND = re.compile(r"\./inv(?![\w-]|\.\w)")


def files() -> Iterator[tuple[str, Path]]:
    """Every file of the wheel, by its path in the checkout, in one order."""
    for name in sorted((*ROOMS, *_DATA, *_FILES)):
        top = ROOT / name
        for file in [top] if top.is_file() else sorted(top.rglob("*")):
            path = file.relative_to(ROOT)
            if file.is_file() and not _LEFT_OUT & set(path.parts) and file.suffix not in {".pyc", ".tmp"}:
                yield path.as_posix(), file


def build_wheel(
    wheel_directory: str, _config_settings: dict[str, Any] | None = None, _metadata_directory: str | None = None
) -> str:
    """Write the wheel into a folder; its file name (PEP 427)."""
    project = toml((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version: str = project["version"]
    info = f"slipway-{version}.dist-info"
    name: str = f"slipway-{version}-py3-none-any.whl"
    contents: dict[str, bytes] = {
        "slipway/__init__.py": _INIT.format(version=version).encode(),
        "slipway/__main__.py": (ROOT / "core" / "cli" / "launch.py").read_bytes(),
        f"{_HOME}/__init__.py": f'"""Slipway\'s packages."""\n\n__version__ = "{version}"\n'.encode(),
    }
    modes: dict[str, int] = {}
    for path, file in files():
        contents[f"{_HOME}/{path}"] = shipped(path, file.read_bytes())
        modes[f"{_HOME}/{path}"] = 0o755 if file.stat().st_mode & 0o100 else 0o644
    contents[f"{info}/METADATA"] = _metadata(project).encode()
    contents[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: slipway\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents[f"{info}/entry_points.txt"] = _entry_points(project).encode()
    contents[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    contents[f"{info}/RECORD"] = record(info, contents)
    target = Path(wheel_directory, name)
    temporary = target.with_name(f".{name}.tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | modes.get(path, 0o644)) << 16
            archive.writestr(entry, data)
    temporary.replace(target)
    return name


def toml(text: str) -> dict[str, Any]:
    """What a TOML file says."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[no-redef,import-not-found]
    found: dict[str, Any] = tomllib.loads(text)
    return found


def record(info: str, contents: Mapping[str, bytes]) -> bytes:
    """A wheel's list of its files, which lies in its folder ``info``: digests are URL-safe base 64 without padding."""
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()) for path, data in contents.items()}
    rows = [f"{path},sha256={digests[path].rstrip(b'=').decode()},{len(data)}" for path, data in contents.items()]
    return "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()


def _metadata(project: dict[str, Any]) -> str:
    """The core metadata, version 2.4."""
    lines = [
        "Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {project['version']}",
        f"Summary: {project['description']}", f"License-Expression: {project['license']}",
        *(f"License-File: {name}" for name in project["license-files"]),
        f"Requires-Python: {project['requires-python']}", "Description-Content-Type: text/markdown",
        *(f"Requires-Dist: {each}" for each in project["dependencies"]),
    ]  # fmt: skip
    readme: str = project["readme"]
    return "\n".join(lines) + "\n\n" + (ROOT / readme).read_text(encoding="utf-8")


def _entry_points(project: dict[str, Any]) -> str:
    return "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
        for group, names in {"console_scripts": project["scripts"], **project["entry-points"]}.items()
    )


def shipped(path: str, data: bytes) -> bytes:
    """A file of the checkout as the wheel has it."""
    room = path.partition("/")[0]
    if path == "tasks.py" or (room in ROOMS and path.endswith(".py")):
        return below_slipway(data.decode("utf-8"), path).encode()
    if room in ROOMS and path.endswith(".toml"):
        return _IN_TABLE.sub(lambda match: f"slipway.{match[0]}", data.decode("utf-8")).encode()
    return data


def below_slipway(source: str, path: str) -> str:
    """A module's source with its own packages below ``slipway``, and ``slipway`` for ``./inv`` in its strings.

    Raises:
        ValueError: it has a statement ``import core.x``, which would give its names to another variable.
    """
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []  # line (from 0), column, characters to replace, text
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and any(each.name.partition(".")[0] in ROOMS for each in node.names):
            raise ValueError(f"{path}:{node.lineno}: write from ... import ...; the wheel cannot rename this import")
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in ROOMS:
            line = lines[node.lineno - 1]
            at = line.index(str(node.module), len(line.encode()[: node.col_offset].decode()) + len("from"))
            edits.append((node.lineno - 1, at, 0, "slipway."))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _STRINGS:
            continue
        if (changed := _COMMAND.sub("slipway", _module_names(token))) == token.string:
            continue
        (first, column), (last, end) = token.start, token.end
        if first == last:
            edits.append((first - 1, column, end - column, changed))
            continue
        # A string over several lines: its first line gets all of it, the others nothing.
        edits.append((first - 1, column, len(lines[first - 1]) - column, changed))
        edits += [(number, 0, len(lines[number]), "") for number in range(first, last - 1)]
        edits.append((last - 1, 0, end, ""))
    for number, column, length, text in sorted(edits, reverse=True):
        lines[number] = lines[number][:column] + text + lines[number][column + length :]
    return "".join(lines)


# From Python 3.12 on, the pieces of an f-string are tokens of their own.
_STRINGS = {tokenize.STRING, *(kind for name, kind in vars(tokenize).items() if name == "FSTRING_MIDDLE")}


def _module_names(token: tokenize.TokenInfo) -> str:
    """A string's source with ``slipway.`` before the name of a module of ours that it is, or begins with."""
    match = (_QUOTED if token.type == tokenize.STRING else _PIECE).match(token.string)
    if match is None or not _is_module(match["module"]):
        return token.string
    at = match.start("module")
    return f"{token.string[:at]}slipway.{token.string[at:]}"


def _is_module(name: str) -> bool:
    """Whether a module or a package of ours has this name."""
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()
