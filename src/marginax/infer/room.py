"""Whether draws will fit where they go."""

import shutil
from pathlib import Path

from marginax._machine import available_memory
from marginax.files import FileError


def check_room(need: int | float, directory: Path | None) -> None:
    """Raise if so many bytes are not free in the directory, or in memory where there is none."""
    if directory is None:
        error, free, where = MemoryError, available_memory(), "of memory"
        instead = "pass directory=... to keep them on disk"
    else:
        error, free, where = FileError, shutil.disk_usage(directory).free, "on the disk"
        instead = "choose another directory"
    if need > free:
        raise error(
            f"the draws take {need / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB {where} are free: "
            f"{instead}, or keep fewer (thin=...)"
        )
