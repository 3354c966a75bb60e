"""A server of one file on 127.0.0.1, which resumes downloads, breaks off on request, and can be a proxy."""

from __future__ import annotations

import contextlib
import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial


@dataclass
class Served:
    """The file, how it is served, and what was asked for."""

    data: bytes
    cuts: list[int] = field(default_factory=list)
    """Bytes after which the connection ends, one for each request, until none is left."""
    status: int = 0
    """Of every answer, in place of the file."""
    resumes: bool = True
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Of each request: its path, or of a proxy the whole address, and the range."""
    address: str = ""


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, served: Served, *words: object) -> None:
        self.served = served
        super().__init__(*words)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        served, wanted = self.served, self.headers.get("Range", "")
        served.asked.append((self.path, wanted))
        if served.status:
            self.send_error(served.status)
            return
        begin = int(re.findall(r"bytes=(\d+)-", wanted)[0]) if wanted and served.resumes else 0
        if begin >= len(served.data) > 0:
            self.send_error(416)
            return
        rest = served.data[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: served.cuts.pop(0)] if served.cuts else rest)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@contextlib.contextmanager
def serving(data: bytes) -> Iterator[Served]:
    """Serve ``data`` at every path while the block runs."""
    served = Served(data)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, served)) as server:
        served.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=partial(server.serve_forever, 0.02), daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
