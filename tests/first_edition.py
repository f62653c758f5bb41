"""Data, runs and labs of the first edition (commit d627945); `editions/first.sh` made them."""

import shutil
import tarfile
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parent / "editions" / "first.tar.xz"


def unpack(folder):
    """Unpack the folders of the first edition."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    unpack(folder)
    return folder


@pytest.fixture
def first(unpacked, tmp_path):
    """A writable copy of the folders."""
    return Path(shutil.copytree(unpacked, tmp_path / "first"))
