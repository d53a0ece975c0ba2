"""Where data files live, and how they get there.

A data set is looked for in the folder ``root``, if given; else in the folder that the environment
variable ``TAUFLOW_DATA`` names, then in the user's cache. Each set has its own folder there.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from tauflow._internal.locks import lock_folder
from tauflow._internal.regular_file import open_regular_file
from tauflow._internal.sanitize import format_count
from tauflow.errors import ArgumentError, ChecksumError, DataNotFoundError

from .card import DatasetCard
from .download import DATA_VARIABLE, NOT_WRITABLE_ERRNOS, Check, download_files

_BLOCK_BYTES = 1 << 20


def read_checksums(package: str, name: str) -> dict[str, str]:
    """Return the SHA-256 of every file of a list in a package's folder ``checksums``, by name."""
    listed = resources.files(package) / "checksums" / f"{name}.sha256"
    lines = (line.split() for line in listed.read_text(encoding="ascii").splitlines())
    return {file: digest for digest, file in lines}


def list_data_folders(card: DatasetCard, root: str | Path | None = None) -> list[Path]:
    """Return the folders where a data set is looked for.

    A download goes to the first of them that can be written.
    """
    if root is not None:
        return [_expand_home(root) / card.folder]
    import pooch

    cache = Path(pooch.os_cache("tauflow")) / "data"
    chosen = os.environ.get(DATA_VARIABLE)
    if chosen and not _expand_home(chosen).is_dir():
        raise DataNotFoundError(
            f"{DATA_VARIABLE} names {chosen}, which is not a directory. Correct it, make the "
            "directory, or unset the variable to use the cache."
        )
    roots = [_expand_home(chosen), cache] if chosen else [cache]
    return [place / card.folder for place in roots]


def _expand_home(folder: str | Path) -> Path:
    """Return a folder whose ``~`` no shell has expanded."""
    return Path(os.path.expanduser(folder))  # pathlib's raises if there is no such user


def find_data_folder(card: DatasetCard, root: str | Path | None = None) -> Path | None:
    """Return the first folder that holds all files of a data set, without opening them."""
    return next(
        (
            place
            for place in list_data_folders(card, root)
            if _find_file_set(card, place) is not None
        ),
        None,
    )


def list_local_files(card: DatasetCard, root: str | Path | None = None) -> list[Path]:
    """Return the files of a data set that are here, without opening them; none unless all are."""
    folder = find_data_folder(card, root)
    files = None if folder is None else _find_file_set(card, folder)
    return [] if folder is None or files is None else [folder / name for name in sorted(files)]


def fetch_files(
    card: DatasetCard,
    root: str | Path | None = None,
    *,
    download: bool = True,
    check: Check | None = None,
) -> list[Path]:
    """Return the verified files of a data set, sorted by name.

    They are the published files or, in a folder that has those instead, the repacked ones.

    Args:
        card: the data set.
        root: the only place to look in, and to download into.
        download: whether to fetch files that are missing.
        check: reads the files, and raises an error if they do not hold the data set. It is called
            after a download of files without a published digest: a server that answers with some
            page would pass otherwise.

    Raises:
        DataNotFoundError: a file is missing, and may not or cannot be downloaded.
        ChecksumError: a file's bytes are not the published ones.
        DataError: what was downloaded does not pass the check, and was not kept.
    """
    folder = find_data_folder(card, root)
    if folder is None:
        looked_in = list_data_folders(card, root)
        if not download or not card.base_url:
            why = (
                "downloads are switched off" if not download else "there is no address to download"
            )
            raise _not_found_error(card, _list_missing(card, looked_in[0]), looked_in, why)
        folder = _download_missing(card, looked_in, check)
    files = _find_file_set(card, folder) or card.files
    paths = [folder / name for name in sorted(files)]
    for path in paths:
        verify_checksum(path, files[path.name], card.name)
    return paths


def verify_checksum(path: Path, sha256: str, dataset: str) -> None:
    """Raise :class:`ChecksumError` unless a file has the given SHA-256, or none is published."""
    digest = compute_sha256(path) if sha256 else ""
    if digest != sha256:
        raise ChecksumError(
            f"{path} is damaged or changed: it has {format_count(path.stat().st_size, 'byte')} "
            "with SHA-256 "
            f"{digest[:12]}..., expected {sha256[:12]}.... Delete it, then get it again with "
            f"'tauflow data get {dataset}'."
        )


def compute_sha256(path: Path) -> str:
    """Return the SHA-256 of a file of any size.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is not a regular file, or cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular_file(path, advice="Replace it with a copy of the file.") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _find_file_set(card: DatasetCard, folder: Path) -> Mapping[str, str] | None:
    """Return the set of files that a folder holds whole, the published one first."""
    if not _list_missing(card, folder):
        return card.files
    is_repacked = card.repacked and all((folder / name).is_file() for name in card.repacked)
    return card.repacked if is_repacked else None


def _list_missing(card: DatasetCard, folder: Path) -> list[str]:
    return [name for name in sorted(card.files) if not (folder / name).is_file()]


def _not_found_error(
    card: DatasetCard, missing: list[str], looked_in: Iterable[Path], reason: str
) -> DataNotFoundError:
    more = f" and {format_count(len(missing) - 1, 'more file')}" if len(missing) > 1 else ""
    return DataNotFoundError(
        f"{card.name}: {missing[0]}{more} not found in {', '.join(map(str, looked_in))}, and "
        f"{reason}. Set {DATA_VARIABLE} to the directory that contains the folder "
        f"{card.folder!r}, or run 'tauflow data get {card.name}' with a network connection."
    )


def _download_missing(card: DatasetCard, folders: list[Path], check: Check | None) -> Path:
    """Download what is missing into the first folder that can be written, and return it."""
    refused: list[tuple[Path, OSError]] = []
    for folder in folders:
        try:
            with lock_folder(folder):
                # looked for only now: another program may have fetched them while this one waited
                if missing := _list_missing(card, folder):
                    download_files(card, missing, folder, check)
            return folder
        except (ChecksumError, DataNotFoundError):
            raise
        except (ArgumentError, OSError) as error:
            if isinstance(error, ArgumentError) or error.errno not in NOT_WRITABLE_ERRNOS:
                why = f"downloading failed ({error})"
                raise _not_found_error(card, _list_missing(card, folder), [folder], why) from error
            refused.append((folder, error))
    trouble = " and ".join(f"{folder} cannot be written ({e.strerror})" for folder, e in refused)
    raise DataNotFoundError(
        f"{card.name} is not here, and there is no place to download it to: "
        f"{trouble}. Name a directory that you may write to, or one that contains the folder "
        f"{card.folder!r}, as root or in {DATA_VARIABLE}."
    ) from refused[0][1]
