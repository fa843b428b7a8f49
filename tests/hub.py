"""A stand-in for the Hugging Face hub that can be made to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest


class Hub:
    """Serves one file, well or badly."""

    def __init__(self, path: str) -> None:
        self.path = path  # such as /owner/name/resolve/revision/model.safetensors
        self.body = b""
        self.status = 200
        self.cut = 0  # bytes missing at the end of what is promised
        self.requests: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                hub.requests.append(f"{self.command} {self.path}")
                found = self.path == hub.path
                revision = hub.path.partition("/resolve/")[2].partition("/")[0]
                self.send_response(hub.status if found else 404)
                self.send_header("X-Repo-Commit", revision)
                self.send_header("ETag", '"the-same-for-good-and-bad"')
                self.send_header("Content-Length", str(len(hub.body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(hub.body[: len(hub.body) - hub.cut])

            do_GET = do_HEAD = answer

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def serving(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hub]:
    """Let the hub's own client find the stand-in, and keep its cache for one test."""
    hub = Hub(path)
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    constants = huggingface_hub.constants
    address = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache(tmp_path)))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the hub's retries
    yield hub
    hub.server.shutdown()
    thread.join()
    hub.server.server_close()


def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub-cache"


def cached(tmp_path: Path) -> list[str]:
    """Names of all that a later call could take for data."""
    found = (path for path in cache(tmp_path).rglob("*") if not path.is_dir())
    return [p.name for p in found if p.parent.name == "blobs" or "snapshots" in p.parts]
