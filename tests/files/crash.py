"""Writes bundles over and over, dying at each system call in turn, and checks what is left every time.

Run as `python crash.py FOLDER`; prints the number of crashes survived.
"""

import os
import sys
from pathlib import Path

import numpy as np

from marginax.files import read_bundle, write_bundle

CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "write", "fsync")


def write(path, number):
    write_bundle(path, "run", {"number": number}, {"a": np.full(1000, float(number))}, overwrite=True)


def die_at(place, after):
    """Make the process end at that call of the file system from now, before or after it is done."""
    count = 0

    def dying(call):
        def wrapped(*args, **kwargs):
            nonlocal count
            count += 1
            if count == place and not after:
                os._exit(9)
            try:
                return call(*args, **kwargs)
            finally:
                if count == place:
                    os._exit(9)

        return wrapped

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))


def main(folder):
    path, number, crashes = Path(folder) / "run", 0, 0
    write(path, number)
    for after in (False, True):
        for place in range(1, 1000):
            child = os.fork()
            if child == 0:
                die_at(place, after)
                write(path, number + 1)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            document, arrays = read_bundle(path, "run")  # a whole one, the old or the new
            assert document["number"] in (number, number + 1), (document, number)
            assert (arrays["a"] == document["number"]).all()
            number = document["number"]
            if status == 0:
                break
            assert status == 9, status
            crashes += 1
    write(path, number)
    assert list(Path(folder).iterdir()) == [path]  # all leftovers are gone
    print(crashes)


if __name__ == "__main__":
    main(sys.argv[1])
