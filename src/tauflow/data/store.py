"""Where data files live, and how they get there.

A data set is looked for in the folder ``root``, if given; else in the folder that the environment
variable ``TAUFLOW_DATA`` names, then in the user's cache. Each set has a folder of its own there.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

from tauflow.errors import ChecksumError, DataNotFoundError

from .card import DatasetCard
from .resume import ResumingDownloader

DATA_VARIABLE = "TAUFLOW_DATA"
_CONNECTIONS = 8
_ATTEMPTS = 2
_BLOCK = 1 << 20


def read_checksums(name: str) -> dict[str, str]:
    """Return the SHA-256 of every file of a packaged list, by file name."""
    listed = resources.files("tauflow.data") / "real" / "checksums" / f"{name}.sha256"
    lines = (line.split() for line in listed.read_text(encoding="ascii").splitlines())
    return {file: digest for digest, file in lines}


def places(card: DatasetCard, root: str | Path | None = None) -> list[Path]:
    """Return the folders where a data set is looked for, the one to download into first."""
    if root is not None:
        return [Path(root) / card.folder]
    import pooch

    cache = Path(pooch.os_cache("tauflow")) / "data"
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen and not Path(chosen).expanduser().is_dir():
        raise DataNotFoundError(
            f"{DATA_VARIABLE} names {chosen}, which is not a directory. Correct it, make the "
            "directory, or unset the variable to use the cache."
        )
    roots = [Path(chosen).expanduser(), cache] if chosen else [cache]
    return [place / card.folder for place in roots]


def find(card: DatasetCard, root: str | Path | None = None) -> Path | None:
    """Return the first folder that holds all files of a data set, without opening them."""
    return next((place for place in places(card, root) if _held(card, place) is not None), None)


def held_files(card: DatasetCard, root: str | Path | None = None) -> list[Path]:
    """Return the files of a data set that are here, without opening them; none unless all are."""
    folder = find(card, root)
    files = None if folder is None else _held(card, folder)
    return [] if folder is None or files is None else [folder / name for name in sorted(files)]


def locate(
    card: DatasetCard, root: str | Path | None = None, *, download: bool = True
) -> list[Path]:
    """Return the verified files of a data set, sorted by name.

    They are the published files or, in a folder that has those instead, the repacked ones.

    Args:
        card: the data set.
        root: the only place to look in, and to download into.
        download: whether to fetch files that are missing.

    Raises:
        DataNotFoundError: a file is missing, and may not or cannot be downloaded.
        ChecksumError: a file's bytes are not the published ones.
    """
    folder = find(card, root)
    if folder is None:
        folder, *others = places(card, root)
        missing = _missing(card, folder)
        if not download or not card.base_url:
            why = (
                "downloads are switched off" if not download else "there is no address to download"
            )
            raise _not_found(card, missing, [folder, *others], why)
        _fetch(card, missing, folder)
    files = _held(card, folder) or card.files
    paths = [folder / name for name in sorted(files)]
    for path in paths:
        verify(path, files[path.name], card.name)
    return paths


def verify(path: Path, sha256: str, dataset: str) -> None:
    """Raise :class:`ChecksumError` unless a file has the given SHA-256, or none is published."""
    digest = sha256_of(path) if sha256 else ""
    if digest != sha256:
        raise ChecksumError(
            f"{path} is damaged or changed: it has {path.stat().st_size} bytes with SHA-256 "
            f"{digest[:12]}..., expected {sha256[:12]}.... Delete it, then get it again with "
            f"'tauflow data get {dataset}'."
        )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file of any size."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _held(card: DatasetCard, folder: Path) -> Mapping[str, str] | None:
    """Return the set of files that a folder holds whole, the published one first."""
    if not _missing(card, folder):
        return card.files
    whole = card.repacked and all((folder / name).is_file() for name in card.repacked)
    return card.repacked if whole else None


def _missing(card: DatasetCard, folder: Path) -> list[str]:
    return [name for name in sorted(card.files) if not (folder / name).is_file()]


def _not_found(
    card: DatasetCard, missing: list[str], looked_in: Iterable[Path], reason: str
) -> DataNotFoundError:
    more = f" and {len(missing) - 1} more files" if len(missing) > 1 else ""
    return DataNotFoundError(
        f"{card.name}: {missing[0]}{more} not found in {', '.join(map(str, looked_in))}, and "
        f"{reason}. Set {DATA_VARIABLE} to the directory that contains the folder "
        f"{card.folder!r}, or run 'tauflow data get {card.name}' with a network connection."
    )


def _fetch(card: DatasetCard, names: list[str], folder: Path) -> None:
    """Download files; each gets its final name only when complete and verified."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    digests = {name: sha256 or None for name, sha256 in card.files.items()}
    remote = pooch.create(folder, card.base_url, registry=digests, retry_if_failed=_ATTEMPTS)

    def fetch(name: str) -> None:
        digest, file = card.files[name], folder / name
        part = file.with_name(f".{file.name}.{digest[:8]}.part")
        # without a digest nothing would tell whether two parts belong together
        remote.fetch(name, downloader=ResumingDownloader(part, resume=bool(digest)))

    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fetch_all(fetch, names, card.title)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DataNotFoundError(
                f"{card.name}: the disk of {folder} is full. Free some space, or set "
                f"{DATA_VARIABLE} to a directory elsewhere; then 'tauflow data get {card.name}' "
                "goes on where it stopped."
            ) from error
        raise _not_found(card, names, [folder], f"downloading failed ({error})") from error
    except ValueError as error:  # how pooch reports a wrong checksum
        raise ChecksumError(
            f"{card.name}: {card.base_url} sent other bytes than the published ones ({error}) "
            f"Nothing of it was kept. Try again later, or set {DATA_VARIABLE} to a good copy."
        ) from error


def _fetch_all(fetch: Callable[[str], None], names: list[str], title: str) -> None:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        jobs = [pool.submit(fetch, name) for name in names]
        try:
            for job in track(jobs, title, console=console, disable=not console.is_terminal):
                job.result()
        finally:
            for job in jobs:
                job.cancel()
