"""Download the files of a data set; each gets its final name only when complete and verified."""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tauflow.errors import ChecksumError, DataError, TauflowError, TimeError

from .card import DatasetCard

DATA_VARIABLE = "TAUFLOW_DATA"
"""Environment variable that names the folder of the data sets."""

NOT_WRITABLE_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""How a system says that a folder may not be written to."""

UNCHECKED_FOLDER = ".unchecked"
"""Folder where files lie whose content is yet to be checked."""

Check = Callable[[list[Path]], object]
"""Reads the files of a data set, sorted by name; raises an error if they do not hold it."""

_CONNECTIONS = 8
_ATTEMPTS = 2
_TIMEOUT = 30.0  # seconds without a byte


def download_files(
    card: DatasetCard, names: Sequence[str], folder: Path, check: Check | None
) -> None:
    """Download files into a folder that no other process downloads to.

    Args:
        card: the data set.
        names: of the files.
        folder: where to put them.
        check: what the files must pass if one of them has no published digest.

    Raises:
        ChecksumError: the server sent other bytes than the published ones.
        DataError: it sent something that does not pass the check.
        OSError: the connection failed, or the folder cannot be written, as on a full disk.
    """
    published = [name for name in names if card.files[name]]
    others = [name for name in names if not card.files[name]]
    try:
        _download_into(card, published, folder)
        if others:
            _download_and_check(card, others, folder, check)
    except TauflowError:
        raise
    except ValueError as error:  # how pooch reports a wrong checksum
        raise ChecksumError(
            f"{card.name}: {card.base_url} sent other bytes than the published ones ({error}) "
            f"Nothing of it was kept. Try again later, or set {DATA_VARIABLE} to a good copy."
        ) from error


def _download_and_check(
    card: DatasetCard, names: list[str], folder: Path, check: Check | None
) -> None:
    """Download files without a digest, and move them to their place if they pass the check."""
    aside = folder / UNCHECKED_FOLDER
    shutil.rmtree(aside, ignore_errors=True)  # of a program that was killed
    try:
        aside.mkdir()
        _download_into(card, names, aside)
        if check is not None:
            check([(aside if name in names else folder) / name for name in sorted(card.files)])
        for name in names:
            os.replace(aside / name, folder / name)
    except (ChecksumError, DataError, TimeError) as error:
        # The rest of the message tells to delete the file, which is done here.
        reason = str(error).replace(f"{aside}{os.sep}", "").partition(". ")[0]
        raise type(error)(
            f"{card.name}: what {card.base_url} sent is not this data set: {reason}. Nothing of it "
            f"was kept. Try again later, or set {DATA_VARIABLE} to a directory with a good copy."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _download_into(card: DatasetCard, names: list[str], folder: Path) -> None:
    import pooch

    pooch.get_logger().setLevel("WARNING")
    digests = {name: sha256 or None for name, sha256 in card.files.items()}
    remote = pooch.create(folder, card.base_url, registry=digests, retry_if_failed=_ATTEMPTS)

    # A server that compresses would send other bytes than those of the digest.
    downloader = pooch.HTTPDownloader(headers={"Accept-Encoding": "identity"}, timeout=_TIMEOUT)

    def fetch_one(name: str) -> None:
        remote.fetch(name, downloader=downloader)

    _download_all(fetch_one, names, card.title)


def _download_all(download_one: Callable[[str], None], names: list[str], title: str) -> None:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        jobs = [pool.submit(download_one, name) for name in names]
        try:
            # Older versions of rich end a bar that is disabled with an empty line.
            for job in track(jobs, title, console=console) if console.is_terminal else jobs:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
