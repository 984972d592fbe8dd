"""A hub on this machine: serves folders as repositories, in the ways in which hubs answer and fail."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

REVISION = "0123456789abcdef0123456789abcdef01234567"

#: whole: as it should; silent: takes the question and says nothing; cut: breaks off in a large file; stalled: stops
#: there without a word; wrong: gives other bytes.
Manner = Literal["whole", "silent", "cut", "stalled", "wrong"]

#: From this size on, a file is a large one.
LARGE = 100_000


class FakeHub:
    """Repositories by name, the manner of answering, and what was asked."""

    def __init__(self) -> None:
        self.repositories: dict[str, Path] = {}
        self.manner: Manner = "whole"
        self.asked: list[str] = []
        self.closing = threading.Event()

    def files(self, repository: str) -> dict[str, bytes]:
        folder = self.repositories[repository]
        return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    def describe(self, repository: str) -> bytes:
        siblings = []
        for name, content in self.files(repository).items():
            entry = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
            if len(content) >= LARGE:
                entry["lfs"] = {"size": len(content), "sha256": etag(content), "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"id": repository, "sha": REVISION, "siblings": siblings}).encode()


@contextmanager
def serving(hub: FakeHub) -> Iterator[str]:
    """The hub, answering at the address that is given."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            hub.asked.append(f"{self.command} {self.path}")
            path = self.path.partition("?")[0]
            if hub.manner == "silent":
                hub.closing.wait()
                self.close_connection = True
            elif about := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/.*)?", path):
                known = about[1] in hub.repositories
                self.send(hub.describe(about[1]) if known else b"{}", {}, 200 if known else 404)
            elif file := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
                self.send_file(hub.files(file[1])[file[2]])
            else:
                self.send(b"", {}, 404)

        def send_file(self, content: bytes) -> None:
            headers = {"ETag": f'"{etag(content)}"', "X-Repo-Commit": REVISION, "Accept-Ranges": "bytes"}
            start = 0
            if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
                start = int(asked[1])
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            body = content[start:]
            if hub.manner == "wrong" and len(content) >= LARGE:
                body = bytes(len(body))
            self.send(body, headers, 206 if start else 200)

        def send(self, body: bytes, headers: dict[str, str], status: int) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if len(body) >= LARGE and hub.manner in {"cut", "stalled"}:
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                if hub.manner == "stalled":
                    hub.closing.wait()
                self.close_connection = True
            else:
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        hub.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
