"""Molecules as rows of tokens, by SELFIES (Krenn et al., 2020): every row of tokens is a molecule.

A molecule is written in SMILES, and canonical SMILES of two are equal only if the molecules are. Not every text is
SMILES of something. In SELFIES every sequence of tokens is: what would break a rule of valence is read as what obeys
it.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int, Integer, Shaped

from marginax._extras import require
from marginax.data.dataset_files import FileSource, find_file
from marginax.files import FileError

PADDING = "[nop]"
"""The token that stands for nothing; readers of SELFIES skip it."""

_COLUMNS = ("homo_lumo_gap_hartree", "dipole_debye", "heat_capacity")
_NUM_MOLECULES = 130_831
_MOST_BYTES = 2**24
_QM9 = FileSource(
    origin="a csv file, gzipped, with the columns smiles and " + ", ".join(_COLUMNS) + " of the 130,831 molecules of "
    "QM9 (Ramakrishnan et al., 2014) that are consistent"
)


def load_qm9() -> tuple[Shaped[np.ndarray, " n"], Float[np.ndarray, "n 3"]]:
    """The 130,831 molecules of QM9 with up to nine atoms of C, N, O and F besides hydrogen.

    Of Ramakrishnan, Dral, Rupp & von Lilienfeld (2014); they are in the order of the data base, small ones first.

    Returns:
        SMILES, as texts, and three properties of each: the gap between the highest occupied and the lowest unoccupied
            orbital (Hartree), the dipole moment (Debye), the heat capacity (calories per mole and Kelvin).
    """
    path = find_file("molecules", "qm9.csv.gz", _QM9)
    try:
        with gzip.open(path, "rb") as file:
            content = file.read(_MOST_BYTES)  # no more is ever unpacked
        lines = list(csv.reader(io.StringIO(content.decode("ascii")), strict=True))
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        raise FileError(f"{path}: damaged or not a csv file, gzipped ({error})") from error
    if not lines or lines[0] != ["smiles", *_COLUMNS]:
        raise FileError(f"{path}: the first line must be {','.join(['smiles', *_COLUMNS])!r}")
    if len(lines) != _NUM_MOLECULES + 1 or {len(line) for line in lines} != {4}:
        raise FileError(f"{path}: damaged, it must have {_NUM_MOLECULES} lines of four entries, got {len(lines) - 1}")
    try:
        properties = np.array([line[1:] for line in lines[1:]], np.float64)
    except ValueError as error:
        raise FileError(f"{path}: damaged ({error})") from error
    if not np.isfinite(properties).all():
        raise FileError(f"{path}: damaged, a property is not finite")
    return np.array([line[0] for line in lines[1:]]), properties


def read_molecule(smiles: str) -> Any:
    """A molecule of RDKit; None if the text is none, or has no atom.

    >>> read_molecule("CCO").GetNumAtoms(), read_molecule("C(C)(C)(C)(C)C"), read_molecule("")
    (3, None, None)
    """
    chem, log = require("rdkit.Chem"), require("rdkit.rdBase")
    with log.BlockLogs():
        molecule = chem.MolFromSmiles(smiles)
    return None if molecule is None or molecule.GetNumAtoms() == 0 else molecule


def canonical_smiles(smiles: str) -> str | None:
    """The one way of writing a molecule, by RDKit; None if the text is no molecule.

    >>> canonical_smiles("OCC"), canonical_smiles("C1CC")
    ('CCO', None)
    """
    molecule = read_molecule(smiles)
    return None if molecule is None else require("rdkit.Chem").MolToSmiles(molecule)


class SelfiesTokenizer(eqx.Module):
    """Molecules to rows of tokens of one length, and back.

    Args:
        alphabet: the tokens, the first of which is `[nop]`, the padding.
        length: of every row.

    >>> tokenizer = SelfiesTokenizer.from_smiles(["CCO", "C=O"])
    >>> tokenizer.alphabet, tokenizer.length
    (('[nop]', '[=O]', '[C]', '[O]'), 3)
    >>> tokenizer.encode(["OCC", "C=O"]).tolist()
    [[2, 2, 3], [2, 1, 0]]
    >>> tokenizer.decode([[2, 1, 0], [1, 1, 2]])
    ['C=O', 'O=O']
    """

    alphabet: tuple[str, ...] = eqx.field(static=True)
    length: int = eqx.field(static=True)

    def __init__(self, alphabet: Iterable[str], length: int):
        self.alphabet, self.length = tuple(alphabet), length
        if not self.alphabet or self.alphabet[0] != PADDING or len(set(self.alphabet)) < len(self.alphabet):
            raise ValueError(f"alphabet must be distinct tokens, the first of them {PADDING!r}, got {self.alphabet}")
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"length must be an int >= 1, got {length!r}")

    @classmethod
    def from_smiles(cls, smiles: Iterable[str]) -> "SelfiesTokenizer":
        """The tokens of these molecules, and the length of the longest."""
        rows = [_split(each) for each in smiles]
        if not rows:
            raise ValueError("smiles must be at least one molecule, got none")
        return cls((PADDING, *sorted(set().union(*rows))), max(map(len, rows)))

    @property
    def num_tokens(self) -> int:
        """Padding included."""
        return len(self.alphabet)

    def encode(self, smiles: Iterable[str]) -> Int[np.ndarray, "n length"]:
        """Tokens of molecules as they are canonically written, padded at the end."""
        index = {token: i for i, token in enumerate(self.alphabet)}
        rows = [(each, _split(each)) for each in smiles]
        tokens = np.zeros((len(rows), self.length), np.int32)
        for place, (text, row) in zip(tokens, rows, strict=True):
            if unknown := sorted(set(row) - set(index)):
                raise ValueError(f"smiles has {text!r}, whose token {unknown[0]} is not in the alphabet")
            if len(row) > self.length:
                raise ValueError(f"smiles has {text!r} of {len(row)} tokens, more than length {self.length}")
            place[: len(row)] = [index[token] for token in row]
        return tokens

    def decode(self, tokens: Integer[np.ndarray, "n length"] | Sequence[Sequence[int]]) -> list[str | None]:
        """Canonical SMILES of rows of tokens; None for a row that is no molecule, such as padding alone."""
        rows = np.asarray(tokens)
        if rows.ndim != 2 or rows.shape[1] != self.length:
            raise ValueError(f"tokens must have shape (n, {self.length}), got {rows.shape}")
        if rows.size and not (rows.min() >= 0 and rows.max() < self.num_tokens):
            wrong = rows.min() if rows.min() < 0 else rows.max()
            raise ValueError(f"tokens must be from 0 to {self.num_tokens - 1}, got {wrong}")
        selfies = require("selfies")
        texts = ("".join(self.alphabet[i] for i in row if i) for row in rows)
        return [canonical_smiles(selfies.decoder(text)) for text in texts]


def _split(smiles: str) -> list[str]:
    """The SELFIES tokens of a molecule."""
    selfies, canonical = require("selfies"), canonical_smiles(smiles)
    if canonical is None:
        raise ValueError(f"smiles must be molecules, got {smiles!r}")
    try:
        return list(selfies.split_selfies(selfies.encoder(canonical)))
    except selfies.EncoderError as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"smiles has {smiles!r}, which cannot be written in SELFIES: {reason}") from error
