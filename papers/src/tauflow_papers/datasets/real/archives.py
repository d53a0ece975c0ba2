"""Find a file among the files of a data set, whether it lies there plain or packed."""

import gzip
import hashlib
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

from tauflow.errors import ChecksumError, DataError

# A damaged zip entry shows as any of these; RuntimeError is an encrypted one.
_DAMAGE_ERRORS = (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile)


def read_member(paths: Iterable[Path], name: str) -> bytes:
    """Return the content of a file.

    It may be one of ``paths``, be compressed with gzip there, or be in a zip archive in any folder;
    archives inside of archives are opened too.

    Args:
        paths: the files of a data set.
        name: of the file, without folders.

    Raises:
        DataError: none of them holds it, or what holds it is damaged.
    """
    known = list(paths)
    for path in known:
        try:
            content = _search_member(path.name, path.read_bytes, name)
        except _DAMAGE_ERRORS as error:
            raise DataError(
                f"{path} cannot be unpacked ({error}). Delete it and get it again."
            ) from error
        if content is not None:
            return content
    raise DataError(
        f"{name} is in none of: {', '.join(map(str, known))}. Delete these files and get them "
        "again; if that does not help, the published archive has changed: please report it."
    )


def check_members(paths: Iterable[Path], digests: Mapping[str, str], dataset: str) -> None:
    """Compare files with their digests, also where they lie in an archive that has none.

    Args:
        paths: the files of a data set.
        digests: SHA-256 of every file, by name.
        dataset: its name, for messages.

    Raises:
        ChecksumError: a file has another content.
        DataError: a file cannot be found or unpacked.
    """
    known = list(paths)
    for name, sha256 in digests.items():
        digest = hashlib.sha256(read_member(known, name)).hexdigest()
        if digest != sha256:
            raise ChecksumError(
                f"{name} in {known[0]} is not the published file: it has the SHA-256 "
                f"{digest[:12]}..., expected {sha256[:12]}.... Delete {known[0].name}, then get it "
                f"again with 'tauflow data get {dataset}'."
            )


def iter_tar_members(
    archive: Path, names: re.Pattern[str]
) -> Iterator[tuple[re.Match[str], bytes]]:
    """Yield how the name matched, and the content, of files of a tar archive, in its order.

    Args:
        archive: the file, in any compression.
        names: what the whole name of a file must match to be read.

    Raises:
        DataError: the archive is damaged.
    """
    try:
        with tarfile.open(archive) as members:
            for member in members:
                match = names.fullmatch(member.name)
                if match is not None and member.isfile():
                    content = members.extractfile(member)
                    assert content is not None  # a regular file
                    yield match, content.read()
    except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        raise DataError(
            f"{archive} is not a whole tar archive ({error}). Get the file again."
        ) from error


def _search_member(label: str, read: Callable[[], bytes], name: str) -> bytes | None:
    if label == name:
        return read()
    if label == f"{name}.gz":
        # gzip takes an empty file for one that holds nothing.
        return gzip.decompress(read() or b"empty")
    if not label.endswith(".zip"):
        return None
    with zipfile.ZipFile(io.BytesIO(read())) as archive:
        for member in archive.infolist():
            inner = PurePosixPath(member.filename).name
            content = _search_member(inner, partial(archive.read, member), name)
            if content is not None:
                return content
    return None
