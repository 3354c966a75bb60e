"""Language models to export: what a user names, and its program, current or made anew. Without torch."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.console import note, shown
from core.console.units import size
from core.environment import apart, ensure_export
from core.environment.installer import Size
from core.errors import ConfigError, ExportError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.paths import IMPORTS, programs_dir
from models.lowering.progress import Stages, log_path
from models.request import versions
from models.zoo.schemes import HERE, read
from models.zoo.trained import File, bring

SCHEMES = ("qd8_qb4w", "qd8_qc8w", "fp32", "fp16")
"""The first one is the usual one."""
if TYPE_CHECKING:
    import numpy as np

_CONTEXT = 1024
_GROUP = 32
_RECORD = "language.json"
_CODE = ("text/exporting.py", "lowering/shortcuts.py")


@dataclass(frozen=True)
class Language:
    """One language model to export, and how."""

    model: str
    """As the user wrote it."""
    stem: str
    path: Path
    """A GGUF file, or a folder of Hugging Face."""
    file: File | None
    """Of the zoo: where ``path`` comes from."""
    scheme: str
    context: int
    group: int
    plain: bool = False
    """Attention by the operators of any model, which every engine has."""

    @property
    def name(self) -> str:
        """Of its program's folder."""
        return f"{self.stem}-{self.scheme}{'-plain' * self.plain}"

    @property
    def folder(self) -> Path:
        """Its program's."""
        return programs_dir() / self.name

    @property
    def program(self) -> Path:
        """``model.pte``; the tokenizer lies beside it."""
        return self.folder / "model.pte"


def zoo() -> Mapping[str, Mapping[str, Any]]:
    """The zoo's language models."""
    return read("zoo/language.toml")


def listing() -> list[dict[str, Any]]:
    """Those of the zoo, for ``./inv models``, each with the schemes in which it is exported already."""
    found = []
    for name, row in zoo().items():
        file = find(name).file
        assert file is not None  # noqa: S101 - the zoo's come from a file
        found.append(
            {
                "model": name, "title": row["title"], "description": row["description"], "format": "pte",
                "schemes": list(SCHEMES), "trained": file.described(row["title"], name),
                "exported": [scheme for scheme in SCHEMES if find(name, scheme).program.is_file()],
            }
        )  # fmt: skip
    return found


def is_language(model: str) -> bool:
    """Whether ``model`` names a language model: one of the zoo, a GGUF file or a folder of Hugging Face."""
    path = Path(model).expanduser()
    return model in zoo() or path.suffix == ".gguf" or (path / "config.json").is_file()


def find(model: str, scheme: str = "", options: Mapping[str, str] | None = None) -> Language:
    """The language model that a user names.

    Args:
        model: as `is_language` knows it.
        scheme: of `SCHEMES`; empty: the first.
        options: ``context``, ``group`` and ``attention``.

    Raises:
        ConfigError: a scheme or an option that it does not have, or no such file.
    """
    scheme, row = scheme or SCHEMES[0], zoo().get(model)
    if scheme not in SCHEMES:
        raise ConfigError(
            f"A language model cannot be exported as {scheme}.",
            f"upstream's exporter has {', '.join(SCHEMES)} for it",
            f"--scheme {SCHEMES[0]}",
            [scheme],
        )
    given = {"context": str(row["context"] if row else _CONTEXT), "group": str(_GROUP), **(options or {})}
    attention = given.pop("attention", "cache")
    if others := sorted(given.keys() - {"context", "group"}):
        raise ConfigError(
            f"A language model has no option {others[0]}.",
            "it has context, group and attention",
            "--options 'context=2048'",
            others,
        )
    if attention not in ("cache", "plain"):
        raise ConfigError(
            f"Option attention cannot be {attention!r}.", "it is cache or plain", "--options attention=plain"
        )
    numbers = {}
    for name, text in given.items():
        if not re.fullmatch(r"[1-9][0-9]{0,6}", text) or (name == "group" and int(text) % 32):
            raise ConfigError(
                f"Option {name} cannot be {text!r}.",
                "it is a multiple of 32" if name == "group" else "it is a number of tokens",
                f"--options '{name}={_GROUP if name == 'group' else _CONTEXT}'",
                [name],
            )
        numbers[name] = int(text)
    if row:
        package, inside = row["package"], row["path"]
        file = File(Path(inside).name, package, inside, row["sha256"], row["licence"])
        return Language(model, model, file.here, file, scheme, **numbers, plain=attention == "plain")
    path = Path(model).expanduser()
    if not path.exists():
        raise ConfigError(f"There is no file {path}.", "", f"ls {path.parent}", [model])
    if path.is_dir() and not any(path.glob("*.safetensors")):
        raise ConfigError(
            f"{path} has no weights.",
            "they are in *.safetensors beside config.json",
            "download the whole model",
            [model],
        )
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", path.resolve().name.removesuffix(".gguf")).strip(".-") or "model"
    return Language(model, stem, path.resolve(), None, scheme, **numbers, plain=attention == "plain")


def number_of(program: Path, name: str) -> int:
    """Of a program of `exported`, its file or folder: ``context`` in tokens, or ``plain``; 0 if it is another's."""
    folder = program if program.is_dir() else program.parent
    try:
        return int(json.loads((folder / _RECORD).read_text(encoding="utf-8"))[name])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _key(language: Language) -> str:
    """Of all that decides what the program is."""
    path = language.path
    files = sorted(path.glob("*.json")) + sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    parts: dict[str, Any] = {file.name: sha256_file(file) for file in files}
    parts |= {name: sha256_file(HERE / name) for name in _CODE}
    parts |= {"scheme": language.scheme, "context": language.context, "group": language.group, **versions()}
    parts |= {"plain": True} if language.plain else {}
    return sha256_bytes(json.dumps(parts, sort_keys=True).encode())


def exported(language: Language, force: bool = False) -> Path:
    """Export, unless the program that is there is current; the program.

    Raises:
        ExportError: it cannot be exported. HostError: its weights or the exporter's packages cannot be had.
    """
    with locked(f"program-{sha256_bytes(os.fspath(language.folder).encode())[:16]}"):
        if language.file and not language.path.is_file():
            megabytes = zoo()[language.model]["megabytes"]
            bring([language.file], Size(language.file.name, megabytes, megabytes))
        ensure_export()
        from models.export import check_ours

        key, record = _key(language), language.folder / _RECORD
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if not force and json.loads(record.read_text(encoding="utf-8"))["key"] == key:
                return language.program
        check_ours(language.folder, _RECORD)
        with new_folder(language.folder) as folder:
            seconds = _run(language, folder)
            made = {"key": key, "model": language.model, "scheme": language.scheme, "context": language.context}
            write_json(folder / _RECORD, {**made, "plain": language.plain, "seconds": round(seconds, 1)})
    note(f"{language.name}: {size(language.program.stat().st_size)}, {seconds:.0f} s -> {shown(language.folder)}")
    return language.program


def _run(language: Language, folder: Path) -> float:
    """Let a process export into ``folder``; the seconds that it took."""
    log = log_path(language.name)
    words = {
        "source": str(language.path), "folder": str(folder), "scheme": language.scheme, "log": str(log),
        "context": language.context, "group": language.group, "plain": language.plain,
    }  # fmt: skip
    with contextlib.closing(Stages(language.name, sys.stderr)) as stages:
        with child("exporting", json.dumps(words)) as process:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            for line in process.stdout:
                stages.show(line.strip())
        failed = folder / "error.json"
        if process.returncode:
            what, cause, hint = "Upstream's exporter ended.", f"its exit status is {process.returncode}", ""
            if failed.is_file():
                what, cause, hint = json.loads(failed.read_text(encoding="utf-8"))
            raise ExportError(f"{language.name}: {what}", f"{cause}\nThe whole log is in {shown(log)}", hint)
        stages.done()
    return stages.seconds


@contextlib.contextmanager
def child(module: str, *words: str, log: BinaryIO | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process with a module, by its whole name or of this package, that has the packages of language models.

    It is ended with the block.
    """
    path = os.pathsep.join([str(IMPORTS), str(apart("text")), str(apart("language"))])
    process = subprocess.Popen(
        [sys.executable, "-m", module if "." in module else f"models.text.{module}", *words],
        stdout=log or subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_WAIT_POLICY": "PASSIVE"},
    )  # fmt: skip
    try:
        yield process
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()


def answers(program: Path, tokens: np.ndarray[Any, Any], count: int, scratch: Path) -> np.ndarray[Any, Any] | None:
    """What upstream's runtime on this machine answers; ``None`` if it cannot run the program, with a note.

    Args:
        tokens: int64 ``[n]``; the first ``count`` of them are the prompt.
        scratch: a folder for files.

    Returns:
        The scores of what follows the prompt read token by token; then of what follows it read at once, and each token
        after it: float32 ``[n - count + 2, vocabulary]``.
    """
    import numpy as np

    log = log_path("answers")
    read, scores = scratch / "tokens.npy", scratch / "scores.npy"
    np.save(read, tokens)
    with log.open("wb") as kept, child("answers", str(program), str(read), str(count), str(scores), log=kept) as one:
        one.communicate()
    if one.returncode:
        note(f"Warning: upstream's runtime does not run this program here, so it is not compared; see {shown(log)}")
        return None
    found: np.ndarray[Any, Any] = np.load(scores)
    return found
