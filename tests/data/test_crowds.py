"""Answers of crowds: lists to matrices, votes, and what files and lists are refused."""

import numpy as np
import pytest

import marginax as mx
from marginax.data import as_answers, load_crowd, majority_vote
from marginax.files import FileError

SIZES = {
    "bluebirds": (108, 39, 4212, 2, None),
    "snow_rte": (800, 164, 8000, 2, None),
    "snow_temp": (462, 76, 4620, 2, None),
    "labelme": (1000, 59, 2547, 8, (1000, 512)),
    "music_genre": (700, 44, 2945, 10, (700, 124)),
}
VOTES = {"bluebirds": 75.9, "snow_rte": 89.7, "snow_temp": 93.6}


@pytest.mark.parametrize("name", SIZES)
def test_crowds_are_those_that_were_published(name, data_dir):
    items, people, num_answers, num_classes, shape = SIZES[name]
    found = load_crowd(name)
    assert found.answers.shape == (items, people)
    assert (found.answers >= 0).sum() == num_answers
    assert (found.num_classes, found.gold.max() + 1) == (num_classes, num_classes)
    assert (None if found.x is None else found.x.shape) == shape
    assert (found.test is None) == (shape is None)
    vote = majority_vote(found.answers, num_classes)
    if name in VOTES:
        assert round(100 * vote[np.arange(items), found.gold].mean(), 1) == VOTES[name]


def test_a_file_of_other_numbers_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINAX_DATA", str(tmp_path))
    (tmp_path / "crowd").mkdir()
    path = tmp_path / "crowd" / "bluebirds.npz"
    with pytest.raises(FileError, match=r"missing.*Welinder"):
        load_crowd("bluebirds")
    arrays = {"gold": np.zeros(108, np.int8), "image_id": np.zeros(108, int), "worker_id": np.zeros(39, int)}
    np.savez(path, labels=np.zeros((108, 38), np.int8), **arrays)
    with pytest.raises(FileError, match=r"labels must be of shape \(108, 39\)"):
        load_crowd("bluebirds")
    np.savez(path, labels=np.full((108, 39), 2, np.int8), **arrays)
    with pytest.raises(FileError, match="labels below 2"):
        load_crowd("bluebirds")
    with pytest.raises(ValueError, match="name must be one of 'bluebirds'"):
        load_crowd("birds")


def test_lists_become_matrices():
    rng = np.random.default_rng(0)
    matrix = rng.integers(-1, 3, size=(20, 6))
    matrix[0, 0], matrix[-1, -1] = 1, 2
    items, people = np.nonzero(matrix >= 0)
    order = rng.permutation(len(items))
    found = as_answers(items[order], people[order], matrix[items, people][order])
    np.testing.assert_array_equal(found, matrix)
    wider = as_answers(items, people, matrix[items, people], num_items=22, num_annotators=7)
    assert wider.shape == (22, 7)
    assert (wider[:, 6] == -1).all()


def test_votes_share_ties():
    assert majority_vote([[0, 0, 1], [2, 1, 0], [-1, -1, 2]], 3).tolist() == [
        [1, 0, 0],
        [1 / 3, 1 / 3, 1 / 3],
        [0, 0, 1],
    ]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: as_answers([0, 1], [0, 5], [0, 1], num_annotators=5), "annotators must be whole numbers from 0 to 4"),
        (lambda: as_answers([0, -1], [0, 1], [0, 1]), "items must be whole numbers >= 0, got -1 in place 1"),
        (lambda: as_answers([0, 1], [0, 1], [0, 0.5]), "labels must be whole numbers"),
        (lambda: as_answers([0, 0], [1, 1], [0, 1]), "annotator 1 answered item 0 2 times"),
        (lambda: as_answers([0, 1], [0], [0, 1]), "lists of one length"),
        (lambda: majority_vote([0, 1], 2), "shape"),
        (lambda: majority_vote([[0, 2]], 2), "from -1 to 1"),
    ],
)
def test_lists_that_cannot_be_meant_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_an_intercept_gives_the_same_for_all():
    with pytest.raises(ValueError, match="out_size must be an int >= 1"):
        mx.nets.Intercept(0)
