"""Storing objects without pickle: a registry of classes, a tree encoder, and checked directories of files.

A *bundle* is a directory with `arrays.safetensors` and `manifest.json`. Reading one builds objects only from
the registry; nothing is unpickled, and nothing is imported by a name found in a file. A *run directory* is what can be
resumed: bundles, growing files and the result.
"""

from marginax.files.error import FileError, InUseError
from marginax.files.growing import GrowingArrays, GrowingFile
from marginax.files.parts import Parts
from marginax.files.registry import register, register_function, register_on_demand
from marginax.files.run import RunDirectory
from marginax.files.single import read_arrays, write_arrays, write_text
from marginax.files.store import load_tree, read_bundle, save_tree, write_bundle
from marginax.files.tree import decode, encode

__all__ = [
    "FileError",
    "GrowingArrays",
    "GrowingFile",
    "InUseError",
    "Parts",
    "RunDirectory",
    "decode",
    "encode",
    "load_tree",
    "read_arrays",
    "read_bundle",
    "register",
    "register_function",
    "register_on_demand",
    "save_tree",
    "write_arrays",
    "write_bundle",
    "write_text",
]
