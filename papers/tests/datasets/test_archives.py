import gzip
import hashlib
import io
import random
import zipfile

import pytest

from tauflow.errors import ChecksumError, DataError
from tauflow_papers.datasets.real.archives import check_members, read_member


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


CONTENT = random.Random(0).randbytes(2000)  # does not compress: the middle of a file is data
PACKINGS = {
    "plain": ("a.csv", CONTENT),
    "gzip": ("a.csv.gz", gzip.compress(CONTENT)),
    "zip": ("x.zip", zipped(**{"folder/b.csv": b"b", "__MACOSX/._a.csv": b"m", "a.csv": CONTENT})),
    "nested": ("x.zip", zipped(**{"in.zip": zipped(**{"deep/er/a.csv": CONTENT}), "n": b""})),
    "zipped gzip": ("x.zip", zipped(**{"a.csv.gz": gzip.compress(CONTENT)})),
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_member_is_found_however_it_is_packed(tmp_path, packing):
    name, content = PACKINGS[packing]
    other = tmp_path / "other.txt"
    other.write_bytes(b"other")
    (tmp_path / name).write_bytes(content)
    assert read_member([other, tmp_path / name], "a.csv") == CONTENT


def test_missing_member_is_named(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(zipped(**{"b.csv": b""}))
    with pytest.raises(DataError, match=r"a\.csv is in none of: .*x\.zip\. Delete"):
        read_member([path], "a.csv")


@pytest.mark.parametrize("packing", ["gzip", "zip", "nested", "zipped gzip"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_damaged_archive_is_refused(tmp_path, packing, damage):
    name, content = PACKINGS[packing]
    at = len(content) // 2
    flipped = content[:at] + bytes(b ^ 0xFF for b in content[at : at + 9]) + content[at + 9 :]
    path = tmp_path / name
    path.write_bytes({"cut": content[: len(content) // 2], "flip": flipped, "empty": b""}[damage])
    with pytest.raises(DataError, match=rf"{name} cannot be unpacked .* get it again"):
        read_member([path], "a.csv")


def test_members_of_an_archive_are_compared_with_their_digests(tmp_path):
    path = tmp_path / "x.zip"
    path.write_bytes(PACKINGS["zip"][1])
    digest = hashlib.sha256(CONTENT).hexdigest()
    check_members([path], {"a.csv": digest}, "toy")
    with pytest.raises(ChecksumError, match=r"b\.csv in .*x\.zip is not the published file.*toy"):
        check_members([path], {"a.csv": digest, "b.csv": digest}, "toy")
