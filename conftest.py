"""The surroundings of every test and doctest."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

_shared_data = Path(__file__).resolve().parent.parent / "shared" / "data"
if _shared_data.is_dir():
    os.environ.setdefault("MARGINAX_DATA", str(_shared_data))
