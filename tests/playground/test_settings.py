"""Settings: what can be meant is taken, all else is refused by name."""

import json

import pytest

from marginax.playground.labs import PLAYABLE
from marginax.playground.protocol import ProtocolError, Setting

LABS = list(PLAYABLE.values())
NAMES = list(PLAYABLE)


@pytest.mark.parametrize("playable", LABS, ids=NAMES)
def test_defaults_can_be_meant(playable):
    settings = playable.lab.complete({})
    assert playable.lab.complete(settings) == settings
    playable.check(settings)


@pytest.mark.parametrize("playable", LABS, ids=NAMES)
def test_descriptions_are_json_and_tell_what_a_control_needs(playable):
    described = json.loads(json.dumps(playable.lab.described(), allow_nan=False))
    assert described["name"] == playable.lab.name
    names = {setting["name"] for setting in described["settings"]}
    for setting in described["settings"]:
        assert setting["label"]
        assert set(setting["when"]) <= names
        if setting["kind"] == "choice":
            assert setting["default"] in [choice["value"] for choice in setting["choices"]]
        if setting["kind"] in ("number", "integer"):
            assert setting["least"] <= setting["default"] <= setting["most"]
            assert not (setting["log"] and setting["least"] <= 0)
        if setting["kind"] in ("points", "numbers"):
            assert setting["max_length"] > 0


@pytest.mark.parametrize("playable", LABS, ids=NAMES)
def test_settings_out_of_bounds_are_refused_by_name(playable):
    for setting in playable.lab.settings:
        for value in _wrong_values(setting):
            with pytest.raises(ProtocolError, match=setting.name):
                playable.lab.complete({setting.name: value})


def _wrong_values(setting):
    wrong = {
        "choice": ["nothing", 1, None, ["count"], "__class__"],
        "flag": [0, "true", None],
        "number": [setting.least - 1e-3, setting.most * 1.1 + 1, float("nan"), float("inf"), "1", True, None, []],
        "integer": [setting.least - 1, setting.most + 1, 1.5, True, "1", None],
        "points": [
            [[0.0]],
            [[0.0] * setting.columns] * (setting.max_length + 1),
            [["a"] * setting.columns],
            [[setting.most * 2 + 1] * setting.columns],
            3,
            None,
        ],
        "numbers": [[setting.most + 1], [0.0] * (setting.max_length + 1), ["x"], 1.0, None],
    }
    return wrong[setting.kind]


@pytest.mark.parametrize("given", [None, [], "x", 3], ids=repr)
def test_settings_are_an_object(given):
    with pytest.raises(ProtocolError, match="object"):
        LABS[0].lab.complete(given)


def test_unknown_names_are_refused():
    with pytest.raises(ProtocolError, match="has no 'sed'"):
        LABS[0].lab.complete({"sed": 1})


def test_whole_numbers_may_be_written_as_floats():
    assert Setting("seed", "Seed", "integer", 0, most=9.0).checked(7.0) == 7


def test_points_that_cannot_be_fitted_are_refused_before_anything_is_computed():
    functions, boundaries = PLAYABLE["functions"], PLAYABLE["boundaries"]
    for points in ([[0.0, 1.0]], [[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]], [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]):
        with pytest.raises(ProtocolError, match="points"):
            functions.check(functions.lab.complete({"data": "own", "points": points}))
    for points in ([], [[0.0, 0.0, 1.0]] * 5, [[0.0, 0.0, 0.5], [1.0, 0.0, 1.0]] * 3):
        with pytest.raises(ProtocolError, match="points"):
            boundaries.check(boundaries.lab.complete({"data": "own", "points": points}))
