"""Output files: what a path leads to stays what it is, and a failure leaves what was there."""

import os
import stat
import threading

import pytest

from kitsune_mlir import UserError, files


def write(path, content=b"new"):
    with files.output(path) as file:
        file.write(content)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_new_file_has_what_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "file")
    finally:
        os.umask(before)
    assert mode(tmp_path / "file") == 0o640


def test_a_file_keeps_its_mode_and_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with open(path, "rb") as reader:
        write(path)
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new" and mode(path) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_a_symbolic_link_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder/file")
    for content in (b"first", b"second"):  # the first into nothing
        write(link, content)
        assert link.is_symlink() and (tmp_path / "folder" / "file").read_bytes() == content


def test_a_fifo_stays(tmp_path):
    path, found = tmp_path / "fifo", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()))
    reader.start()
    write(path)
    reader.join()
    assert found == [b"new"] and path.is_fifo()


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(UserError, match="cannot write .*: No space left on device"), files.output(path) as file:
        file.write(b"half")
        raise OSError(28, "No space left on device")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_written(tmp_path):
    for path in (tmp_path, tmp_path / "none" / "file", ""):
        with pytest.raises(UserError, match="cannot write"):
            write(path)
