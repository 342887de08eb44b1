"""Molecules to tokens and back, and what is refused."""

import gzip
import importlib

import numpy as np
import pytest

from marginax import _extras
from marginax.data import SelfiesTokenizer, canonical_smiles, load_qm9, molecules, read_molecule
from marginax.files import FileError

SMILES = ["CCO", "C#N", "O=C1CC1", "C1=CC=CC=C1", "O=N(=O)C1=NC=CO1", "[NH3+]CC([O-])=O"]


def test_tokens_and_back_are_the_same_molecules():
    tokenizer = SelfiesTokenizer.from_smiles(SMILES)
    tokens = tokenizer.encode(SMILES)
    assert tokens.shape == (len(SMILES), tokenizer.length)
    assert (tokens[:, 0] > 0).all()
    assert (tokens[:, -1] > 0).any()  # the longest has no padding
    assert tokenizer.decode(tokens) == [canonical_smiles(each) for each in SMILES]


def test_padding_is_skipped_wherever_it_is():
    tokenizer = SelfiesTokenizer(["[nop]", "[C]", "[O]"], 4)
    assert tokenizer.decode(np.array([[1, 0, 0, 2], [0, 1, 2, 0], [0, 0, 0, 0]])) == ["CO", "CO", None]


def test_every_row_of_tokens_is_a_molecule():
    tokenizer = SelfiesTokenizer.from_smiles(SMILES)
    rows = np.random.default_rng(0).integers(0, tokenizer.num_tokens, size=(500, tokenizer.length))
    rows[:, 0] = tokenizer.alphabet.index("[C]")
    assert all(read_molecule(text) for text in tokenizer.decode(rows) if text)
    assert None not in tokenizer.decode(rows)


def test_the_molecules_are_those_of_qm9(data_dir):
    smiles, properties = load_qm9()
    assert len(smiles) == 130_831
    assert smiles[:3].tolist() == ["C", "N", "O"]
    np.testing.assert_allclose(properties[0], [0.5048, 0.0, 6.469])
    some = np.random.default_rng(0).permutation(len(smiles))[:500]
    atoms = [{atom.GetSymbol() for atom in read_molecule(each).GetAtoms()} for each in smiles[some]]
    assert set().union(*atoms) == {"C", "N", "O", "F"}
    assert max(read_molecule(each).GetNumAtoms() for each in smiles[some]) == 9
    tokenizer = SelfiesTokenizer.from_smiles(smiles[some])
    assert tokenizer.decode(tokenizer.encode(smiles[some])) == [canonical_smiles(each) for each in smiles[some]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.encode(["C(C"]), r"smiles must be molecules, got 'C\(C'"),
        (lambda t: t.encode(["CF"]), r"smiles has 'CF', whose token \[F\] is not in the alphabet"),
        (lambda t: t.encode(["CCO" * 3]), "of 9 tokens, more than length 4"),
        (lambda t: t.decode(np.zeros((2, 3), int)), r"tokens must have shape \(n, 4\), got \(2, 3\)"),
        (lambda t: t.decode(np.full((2, 4), 3)), "tokens must be from 0 to 2, got 3"),
        (lambda t: SelfiesTokenizer(["[C]"], 3), "alphabet must be distinct tokens, the first of them"),
        (lambda t: SelfiesTokenizer(["[nop]"], 0), "length must be an int >= 1, got 0"),
        (lambda t: SelfiesTokenizer.from_smiles([]), "smiles must be at least one molecule, got none"),
    ],
    ids=["no molecule", "token", "long", "shape", "range", "alphabet", "length", "none"],
)
@pytest.mark.usefixtures("as_users_run")
def test_what_cannot_be_meant_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(SelfiesTokenizer(["[nop]", "[C]", "[O]"], 4))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no gzip", "damaged or not a csv file"),
        (gzip.compress(b"a,b\n1,2\n"), "the first line must be 'smiles,homo_lumo_gap_hartree"),
        (
            gzip.compress(b"smiles,homo_lumo_gap_hartree,dipole_debye,heat_capacity\nC,1,2,3\n"),
            "must have 130831 lines",
        ),
    ],
    ids=["gzip", "header", "lines"],
)
def test_damaged_files_are_refused(content, words, tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINAX_DATA", str(tmp_path))
    (tmp_path / "molecules").mkdir()
    (tmp_path / "molecules" / "qm9.csv.gz").write_bytes(content)
    with pytest.raises(FileError, match=words):
        load_qm9()


def test_a_missing_file_is_described(tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINAX_DATA", str(tmp_path))
    with pytest.raises(FileError, match=r"qm9.csv.gz is missing and has no download: put it as molecules/qm9.csv.gz"):
        load_qm9()


def test_what_is_not_installed_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert _extras.EXTRAS["rdkit"] == _extras.EXTRAS["selfies"] == "molecules"
    with pytest.raises(ModuleNotFoundError, match=r"rdkit is not installed: pip install 'marginax\[molecules\]'"):
        molecules.canonical_smiles("C")
