"""Libraries that not everybody needs, and what to install where one is missing."""

import importlib
import warnings
from typing import Any

EXTRAS = {
    "PIL": "images",
    "arviz": "plot",
    "distributed": "launch",
    "filelock": "tables",
    "matplotlib": "plot",
    "numpyro": "programs",
    "openpyxl": "tables",
    "pandas": "tables",
    "pooch": "data",
    "pyarrow": "tables",
    "rdkit": "molecules",
    "rich": "cli",
    "selfies": "molecules",
    "sklearn": "tables",
    "starlette": "playground",
    "threadpoolctl": "tables",
    "torch": "torch",
    "typer": "cli",
    "uvicorn": "playground",
    "websockets": "playground",
}
"""The extra of pyproject.toml that brings a library."""


def require(name: str) -> Any:
    """Import a module; where a library is not installed, say which extra brings it.

    >>> require("pandas.api").__name__
    'pandas.api'
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing a major refactor", FutureWarning)
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        message = f"{missing} is not installed: pip install 'marginax[{EXTRAS[missing]}]'"
        raise ModuleNotFoundError(message, name=error.name) from None
