"""Bandits: all of the experiment in few rounds."""

from dataclasses import replace

from marginax.reproduce import experiment, reproduce

TINY = {
    "data": ("shuttle",),
    "num_steps": 60,
    "num_steps_linear": 120,
    "num_seeds": 2,
    "num_seeds_linear": 3,
    "hidden": (8,),
    "num_epochs": 2,
    "batch_size": 16,
    "num_members": 2,
    "refit_every": 30,
}


def test_all_of_it_in_few_rounds(tmp_path, data_dir):
    record = reproduce(replace(experiment("bandits"), settings={"small": TINY}), tmp_path, progress=False)
    for word in ("uniform", "linear Thompson", "neural-linear", "Thompson, ensemble", "greedy network"):
        regret = record.row(f"shuttle, regret after 60: {word}")
        reward = record.row(f"shuttle, reward after 60: {word}")
        assert abs(regret.ours + reward.ours - 60) < 1e-3  # the right class always gives 1 here
        assert regret.lower_is_better
        assert not reward.lower_is_better
    last = record.row("shuttle, reward after 120: linear Thompson")
    assert last.standard_error is not None
    assert record.row("shuttle, regret after 60: greedy network").standard_error is None  # of two seeds
    gap = record.row("shuttle, regret after 60: neural-linear less greedy network").ours
    each = [record.row(f"shuttle, regret after 60: {word}").ours for word in ("neural-linear", "greedy network")]
    assert abs(gap - (each[0] - each[1])) < 1e-6
    assert last.published is None  # of 5,000 rounds
    assert last.ours > record.row("shuttle, reward after 120: uniform").ours
