"""A small data set, and a server on this machine that has its files."""

import hashlib
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tauflow.data.card import DatasetCard

CONTENT = {"a.npy": b"first file", "b.npy": b"second file", "c.npy": b"third file"}

CARD = DatasetCard(
    name="toy",
    title="Toy",
    task="regress",
    input_size=1,
    target_size=1,
    time_unit="s",
    sizes=(1, 1, 1),
    source="a test",
    licence="none",
    split="none",
    loss="mse",
    metric="mse",
    folder="toy_files",
    files={name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()},
)


def fill(root: Path, names=tuple(CONTENT)) -> Path:
    folder = root / CARD.folder
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_bytes(CONTENT[name])
    return folder


class Server:
    """Serves files on this machine; what it sends can be spoiled per file."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.pause = 0.0  # seconds between two bytes
        self.sent = dict(CONTENT)
        self.announced = {name: len(content) for name, content in CONTENT.items()}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rsplit("/", 1)[-1]
                outer.asked.append(name)
                content, length = outer.sent.get(name, b""), outer.announced.get(name, 0)
                self.send_response(200 if name in outer.sent else 404)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if not outer.pause:
                    self.wfile.write(content)
                    return
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    time.sleep(outer.pause)

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.card = replace(CARD, base_url=f"http://127.0.0.1:{self.http.server_port}/files/")
