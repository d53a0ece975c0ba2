"""Download a file over HTTP, going on where an earlier try stopped."""

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from tauflow._internal.sanitize import format_count

_BLOCK_BYTES = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_COMPRESSED_SUFFIXES = (".gz", ".tgz")


class ResumableDownloader:
    """A downloader for pooch that keeps what came of a file until the rest has come.

    What is there is asked for no more, if the server can send parts of files.

    Args:
        partial_file: where to keep the file until it is complete. Nothing else may write to it: two
            downloads into one would mix, so that callers hold the lock of its folder.
        resume: whether to go on from what is there. Only where the finished file is checked: the
            server's may have changed in between.
    """

    def __init__(self, partial_file: Path, *, resume: bool = True) -> None:
        self.partial_file = partial_file
        self.resume = resume

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download ``url`` to ``output_file``, which pooch then checks and renames.

        Raises:
            OSError: the connection failed or ended early, or the disk is full; what came so far is
                kept.
        """
        import requests

        have = self.partial_file.stat().st_size if self.resume and self.partial_file.exists() else 0
        # a server that compresses would count other bytes
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            if PurePosixPath(urlsplit(url).path).suffix in _COMPRESSED_SUFFIXES:
                # Some servers tell a file's own packing as that of the transfer; it has to stay.
                response.headers.pop("Content-Encoding", None)
                response.raw.headers.pop("Content-Encoding", None)
            place = response.headers.get("Content-Range", "")
            if response.status_code == _RANGE_NOT_SATISFIABLE and place != f"bytes */{have}":
                self.partial_file.unlink()  # of another, longer file
                return self(url, output_file, pooch)
            if response.status_code != _RANGE_NOT_SATISFIABLE:
                response.raise_for_status()
                goes_on = response.status_code == _PARTIAL_CONTENT and place.startswith(
                    f"bytes {have}-"
                )
                with self.partial_file.open("ab" if goes_on else "wb") as file:
                    for block in response.iter_content(_BLOCK_BYTES):
                        file.write(block)
                self._check_size(url, _compute_total_size(response.headers, have if goes_on else 0))
        os.replace(self.partial_file, output_file)
        return None

    def _check_size(self, url: str, expected: int | None) -> None:
        """Raise unless all of the file came, which older versions of urllib3 do not look at."""
        import requests

        got = self.partial_file.stat().st_size
        if expected is not None and got != expected:
            raise requests.ConnectionError(
                f"{url} ended after {format_count(got, 'byte')}, expected {expected}: the "
                "connection broke off"
            )


def _compute_total_size(headers: Mapping[str, str], received: int) -> int | None:
    """Return the size of the whole file, or ``None`` if the server does not state it."""
    if headers.get("Content-Encoding", "identity") != "identity":
        return None  # the length is that of the compressed bytes
    length = headers.get("Content-Length", "")
    return received + int(length) if length.isdecimal() else None
