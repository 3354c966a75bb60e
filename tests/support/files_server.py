"""A server of one file on 127.0.0.1, which can be a proxy."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial


@dataclass
class Served:
    """The file, how it is served, and what was asked for."""

    data: bytes
    status: int = 0
    """Of every answer, in place of the file."""
    asked: list[str] = field(default_factory=list)
    """Of each request its path, or of a proxy the whole address."""
    address: str = ""


class _Handler(http.server.BaseHTTPRequestHandler):
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
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, served)) as server:
        served.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=partial(server.serve_forever, 0.02), daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
