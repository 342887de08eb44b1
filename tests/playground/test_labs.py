"""Labs: frames are what the protocol says, and "copy as Python" gives the numbers that the page shows."""

import json
import math

import numpy as np
import pytest

from marginax.playground.labs import PLAYABLE
from marginax.playground.playable import Cancelled, Stage, as_json
from marginax.playground.worker import without_nan

MAPS = {"x", "y", "points", "num_classes", "probability", "entropy", "expected_entropy", "mutual_information"}
KEYS = {
    "functions": {"grid", "points", "curves", "mean", "epistemic", "aleatoric", "total", "lower", "upper"}
    | {"log_density", "answer"},
    "samplers": {"draws", "moves", "histogram", "diagnostics"},
    "boundaries": MAPS | {"point", "log_density"},
    "correlated": {"example", "target", "log_evidence", "mean_field", "full_rank", "steps", "bound"},
    "mixture": {"example", "points", "responsibilities", "components", "bound", "reconstruction", "complexity"},
    "coin": {"example", "flips", "grid", "prior", "posterior", "a", "b", "mean", "lower", "upper", "log_evidence"},
    "active": MAPS | {"log_density", "pool", "chosen", "labels", "scores", "suggested", "accuracy"},
    "decode": {"task", "z", "mean", "std", "codes"},
    "encode": {"task", "z", "z_std", "digit", "mean", "std", "codes"},
    "complete": {"task", "z", "z_std", "digit", "erased", "completions", "mean", "std", "codes"},
}
QUICK = [
    ("functions", {"method": "MAP", "budget": 0.02, "hidden": "10", "chains": 1}),
    ("functions", {"prior_only": True, "hidden": "10", "activation": "sin", "likelihood": "learned"}),
    ("boundaries", {"method": "MAP", "budget": 0.02, "hidden": "10", "chains": 1}),
    ("samplers", {"sampler": "HMC", "steps": 50, "chains": 2}),
    ("samplers", {"sampler": "SGLD", "steps": 25, "chains": 2, "decreasing": True, "target": "two_modes"}),
    ("variational", {"example": "coin", "flips": [1.0, 0.0, 1.0], "heads": 2.0}),
    ("variational", {"example": "mixture", "by": "EM", "iterations": 5, "components": 3}),
    ("variational", {"example": "correlated", "steps": 100, "particles": 2}),
]
TEN = [
    ("functions", {}),
    ("functions", {"method": "NUTS", "data": "own", "points": [[0, 1], [1, 3], [2, 2], [4, 5]], "likelihood": "fixed"}),
    ("functions", {"method": "Laplace", "data": "co2", "ask": 2022.5, "likelihood": "learned", "budget": 0.5}),
    ("functions", {"method": "SGHMC", "data": "gap", "temperature": 0.3, "hidden": "20-20", "ask": 0.0}),
    ("functions", {"method": "VI", "data": "heteroscedastic", "activation": "tanh", "prior_scale": 2.0, "seed": 7}),
    ("boundaries", {}),
    ("boundaries", {"method": "HMC", "data": "circles", "beside": False, "ask_x": 2.0, "seed": 3, "budget": 0.3}),
    ("samplers", {"sampler": "NUTS", "target": "network", "step_size": 0.3}),
    ("samplers", {"sampler": "ParallelTempering", "target": "two_modes", "temperatures": 4, "hottest": 30.0}),
    ("variational", {"example": "mixture"}),
    ("active", {"chosen": [5.0, 40.0], "method": "NUTS"}),
]


def play(lab, given):
    """Settings, frames and numbers of a run, as the page gets them."""
    playable = PLAYABLE[lab]
    settings = playable.lab.complete(json.loads(json.dumps(given)))
    playable.check(settings)
    frames = []
    numbers = playable.run(settings, Stage(frames.append, lambda: None))
    for frame in frames:
        json.dumps(as_json(frame.data), allow_nan=False)
    return settings, frames, numbers


def executed(lab, settings):
    """The numbers of the text that is copied."""
    names = {"__name__": "copied"}
    exec(PLAYABLE[lab].to_python(settings), names)  # noqa: S102  # our own text
    return names["numbers"]


def check_run(lab, given):
    settings, frames, numbers = play(lab, given)
    assert without_nan(executed(lab, settings)) == without_nan(numbers)
    kind = settings.get("example") or settings.get("task") or lab
    for i, frame in enumerate(frames):
        first = {"map"} if lab == "samplers" and i == 0 else set()
        assert set(frame.data) == KEYS[kind] | first
        assert 0 <= frame.step <= frame.of
    return settings, frames, numbers


@pytest.mark.parametrize(("lab", "given"), QUICK, ids=lambda value: str(value)[:40])
def test_copied_text_gives_the_same_numbers_and_frames_have_what_is_promised(lab, given):
    settings, frames, numbers = check_run(lab, given)
    last = frames[-1].data
    if lab == "functions":
        assert last["answer"] == {"x": settings["ask"], **numbers}
        assert last["total"] == pytest.approx(np.hypot(last["epistemic"], last["aleatoric"]))
        assert np.shape(last["curves"])[1] == len(last["grid"]) == len(last["mean"])
    if lab == "boundaries":
        assert sum(last["probability"]) == pytest.approx(np.ones((41, 41)), abs=1e-5)
        parts = last["expected_entropy"] + last["mutual_information"]
        assert last["entropy"] == pytest.approx(parts, abs=1e-5)
        assert last["point"] is not None


@pytest.mark.slow
@pytest.mark.parametrize(("lab", "given"), TEN, ids=lambda value: str(value)[:40])
def test_copied_text_of_ten_states_gives_the_same_numbers(lab, given, request):
    if given.get("data") == "co2":
        request.getfixturevalue("data_dir")
    check_run(lab, given)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["decode", "encode", "complete"])
def test_copied_text_of_digits_gives_the_same_digits(task, data_dir):
    _, frames, numbers = check_run("latent", {"task": task, "budget": 0.05})
    assert len(numbers["mean"]) == 784
    assert frames[-1].data["codes"].shape == (400, 3)


def test_digits_that_are_not_there_are_asked_for_politely(tmp_path, monkeypatch):
    from marginax.playground.labs import latent

    latent.digits.cache_clear()
    monkeypatch.setattr(latent, "load_mnist", lambda split: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(FileNotFoundError, match="MARGINAX_DATA"):
        play("latent", {})
    latent.digits.cache_clear()


def test_measurements_that_are_not_there_are_asked_for_politely_by_who_computes(monkeypatch):
    """The server reads no data: where they are missing, the worker says so, and no connection ends."""
    from marginax.playground.labs import points

    def nothing(kind):
        raise OSError("no network")

    monkeypatch.setattr(points, "load_co2", nothing)
    functions = PLAYABLE["functions"]
    functions.check(functions.lab.complete({"data": "co2"}))
    with pytest.raises(FileNotFoundError, match=r"MARGINAX_DATA.*no network"):
        play("functions", {"data": "co2"})


def test_bald_suggests_no_label_that_is_known_even_where_all_networks_agree():
    from marginax.playground.labs.active import suggested_by

    assert suggested_by(np.zeros(5), [0, 1]) == 2
    assert suggested_by(np.array([0.0, 0.0, 0.1, 0.3]), [3, 0]) == 2
    settings = PLAYABLE["active"].lab.complete({"method": "DeepEnsemble", "budget": 0.02})
    numbers = PLAYABLE["active"].run(settings, Stage(lambda frame: None, lambda: None))
    assert numbers["suggested"] not in (0, 1)
    assert executed("active", settings) == numbers


def test_the_path_of_sgd_is_looked_at_before_it_has_two_snapshots():
    _, frames, numbers = play("functions", {"method": "SWAG", "budget": 0.03, "hidden": "10", "chains": 1})
    assert len(frames) >= 2
    assert np.isfinite(np.hstack([np.ravel(value) for value in numbers.values()])).all()


@pytest.mark.slow
def test_the_game_of_labels_begins_with_networks_that_disagree():
    """By the default method: two labels leave much to be asked, and nothing is settled by a prior alone."""
    _, frames, numbers = play("active", {})
    assert max(numbers["scores"]) > 0.1
    assert numbers["accuracy"] > 0.6
    assert frames[-1].data["suggested"] == numbers["suggested"]


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["functions", "boundaries"])
def test_every_method_of_the_choice_runs(lab):
    """All of the catalogue is there, and each gives finite numbers in the end."""
    from marginax.infer.catalogue import catalogue
    from marginax.playground.labs.methods import METHODS

    assert {choice.value for choice in METHODS} == {entry.name for entry in catalogue()}
    setting = next(setting for setting in PLAYABLE[lab].lab.settings if setting.name == "method")
    for choice in setting.choices:
        _, frames, numbers = play(lab, {"method": choice.value, "budget": 0.03, "hidden": "10", "chains": 1})
        assert np.isfinite(np.hstack([np.ravel(value) for value in numbers.values()])).all(), choice.value
        assert len(frames) >= 2, choice.value


def test_a_run_that_nobody_wants_ends():
    playable = PLAYABLE["samplers"]
    settings = playable.lab.complete({"steps": 5000, "chains": 1})
    seen = []

    def show(frame):
        seen.append(frame)
        if len(seen) == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        playable.run(settings, Stage(show, lambda: None))
    assert len(seen) == 3


def test_the_ten_measurements_are_those_of_the_demo():
    from marginax.demo import measure
    from marginax.playground.labs.points import data_set

    x, y = measure()
    np.testing.assert_allclose(data_set("ten"), np.column_stack([x, y]), atol=1e-4)


def test_the_bound_of_a_mixture_is_its_parts_and_never_falls():
    _, frames, _ = play("variational", {"example": "mixture", "iterations": 15, "components": 4})
    data = frames[-1].data
    np.testing.assert_allclose(data["bound"], np.subtract(data["reconstruction"], data["complexity"]), rtol=1e-4)
    assert np.diff(data["bound"]).min() > -0.05
    np.testing.assert_allclose(np.sum(data["responsibilities"], axis=1), 1.0, rtol=1e-4)
    assert len(frames) == 16


def test_a_coin_is_the_beta_law_of_its_flips():
    _, frames, numbers = play("variational", {"example": "coin", "flips": [1.0, 1.0, 0.0], "heads": 2.0, "tails": 3.0})
    assert [len(frame.data["flips"]) for frame in frames] == [0, 1, 2, 3]
    assert (numbers["a"], numbers["b"]) == (4.0, 4.0)
    beta = [math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b) for a, b in ((4, 4), (2, 3))]
    assert numbers["log_evidence"] == pytest.approx(beta[0] - beta[1], abs=1e-4)


@pytest.mark.slow
def test_full_rank_finds_the_correlation_and_mean_field_the_conditional_spread():
    _, frames, numbers = play("variational", {"example": "correlated", "correlation": 0.8, "steps": 4000})
    assert numbers["full_rank_cov"][0][1] == pytest.approx(0.8, abs=0.08)
    assert numbers["mean_field_cov"][0][0] == pytest.approx(1 - 0.8**2, abs=0.05)
    bound = frames[-1].data["bound"]
    assert np.mean(bound["full_rank"][-20:]) == pytest.approx(0.0, abs=0.1)
    assert np.mean(bound["mean_field"][-20:]) == pytest.approx(0.5 * math.log(1 - 0.8**2), abs=0.1)
