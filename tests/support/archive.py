"""Servers on this machine: a small archive in Debian's layout, signed by a key made here, and one file, or a proxy."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from toolchains.debian.tree import need_reader


def make_deb(
    folder: Path, name: str, files: dict[str, str], version: str = "1.0-1", depends: str = "", **more: str
) -> Path:
    """A real package for amd64, made by dpkg-deb; ``more`` are further fields."""
    root = folder / f"{name}-root"
    (root / "DEBIAN").mkdir(parents=True)
    fields = {
        "Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "T <t@t.example>",
        **({"Depends": depends} if depends else {}), **more, "Description": "test",
    }  # fmt: skip
    (root / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    file = folder / f"{name}_{version.rpartition(':')[2]}_amd64.deb"
    subprocess.run(["dpkg-deb", "-Zxz", "--build", "--root-owner-group", root, file], check=True, capture_output=True)
    return file


def make_wheel(folder: Path, name: str, version: str, files: dict[str, str | bytes], tag: str = "py3-none-any") -> Path:
    """A package that pip installs; of the same files the same bytes every time."""
    info = f"{name}-{version}.dist-info"
    inside = {
        **files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }  # fmt: skip
    inside[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*inside, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in inside.items():
            archive.writestr(zipfile.ZipInfo(file), data)
    return path


def make_key() -> Any:
    """A key of somebody who signs archives."""
    need_reader()
    import pysequoia

    return pysequoia.Tsk.generate("Test Archive <archive@t.example>")


@contextlib.contextmanager
def _running(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on this machine while the block runs; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Archive:
    """An archive below ``folder``; `publish` writes its signed lists."""

    folder: Path
    key: Any
    suite: str = "bookworm"
    packages: list[Path] = field(default_factory=list)
    uri: str = ""
    asked: list[str] = field(default_factory=list)
    """Paths that the server was asked for."""

    @property
    def dist(self) -> Path:
        return self.folder / "dists" / self.suite

    @property
    def signed(self) -> Path:
        return self.dist / "InRelease"

    @property
    def list_file(self) -> Path:
        """The list of packages by its digest, from which readers get it."""
        (found,) = (self.dist / "main/binary-amd64/by-hash/SHA256").iterdir()
        return found

    def publish(self, *, extra: str = "", **fields: Any) -> None:
        """Write the lists of what ``packages`` has; ``fields`` change those of the signed list."""
        stanzas = []
        pool = self.folder / "pool"
        pool.mkdir(parents=True, exist_ok=True)
        for file in self.packages:
            data = file.read_bytes()
            (pool / file.name).write_bytes(data)
            said = subprocess.run(["dpkg-deb", "--field", file], check=True, capture_output=True, text=True).stdout
            digest = hashlib.sha256(data).hexdigest()
            stanzas.append(f"{said}Filename: pool/{file.name}\nSize: {len(data)}\nSHA256: {digest}\n")
        data = lzma.compress("\n".join([*stanzas, extra]).encode())
        lists = self.dist / "main/binary-amd64"
        named = lists / "by-hash/SHA256"
        named.mkdir(parents=True, exist_ok=True)
        for old in named.iterdir():
            old.unlink()
        (lists / "Packages.xz").write_bytes(data)
        (named / hashlib.sha256(data).hexdigest()).write_bytes(data)
        self.sign(**fields)

    def sign(self, *, key: Any = None, until: float | None = None, **fields: str) -> None:
        """Write the signed list of the lists that there are."""
        import pysequoia

        head = {
            "Origin": "Debian", "Label": "Debian", "Suite": "oldstable", "Codename": self.suite,
            "Date": formatdate(time.time() - 3600), "Valid-Until": "" if until is None else formatdate(until),
            "Acquire-By-Hash": "yes", **fields,
        }  # fmt: skip
        rows = []
        for file in sorted((self.dist / "main").glob("*/*.xz")):
            data = file.read_bytes()
            rows.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {file.relative_to(self.dist)}\n")
        text = "".join(f"{name}: {value}\n" for name, value in head.items() if value) + "SHA256:\n" + "".join(rows)
        signer = (key or self.key).signer()
        self.signed.write_bytes(pysequoia.sign(signer, text.encode(), mode=pysequoia.SignatureMode.CLEAR))

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name of it
                asked.append(self.path)

        with _running(partial(Handler, directory=str(self.folder))) as self.uri:
            yield


@dataclass
class Served:
    """The file, how it is served, and what was asked for."""

    data: bytes
    status: int = 0
    """Of every answer, in place of the file."""
    asked: list[str] = field(default_factory=list)
    """Of each request its path, or of a proxy the whole address."""
    address: str = ""


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, served: Served, *words: object) -> None:
        self.served = served
        super().__init__(*words)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
        if self.served.status:
            self.send_error(self.served.status)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.served.data)))
        self.end_headers()
        self.wfile.write(self.served.data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextlib.contextmanager
def serving(data: bytes) -> Iterator[Served]:
    """Serve ``data`` at every path while the block runs."""
    served = Served(data)
    with _running(partial(_Handler, served)) as served.address:
        yield served
