"""Contextual bandits: what agents earn on replayed data sets (Riquelme, Tucker & Snoek, 2018).

Mushrooms may be eaten or left: an edible one gives 5, a poisonous one -35 or 5, each half the time. For the shuttle and
for forest cover the right class gives 1. Agents of one seed see the same rows in the same order, with the same luck.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

SETTINGS = {
    "small": {
        "data": ("mushroom", "shuttle"),
        "num_steps": 1000,
        "num_steps_linear": 5000,
        "num_seeds": 3,
        "num_seeds_linear": 5,
        "hidden": (50,),
        "num_epochs": 10,
        "batch_size": 64,
        "num_members": 5,
        "refit_every": 100,
    },
    "full": {
        "data": ("mushroom", "shuttle", "covertype_20k"),
        "num_steps": 5000,
        "num_steps_linear": 5000,
        "num_seeds": 10,
        "num_seeds_linear": 10,
        "hidden": (50,),
        "num_epochs": 10,
        "batch_size": 64,
        "num_members": 5,
        "refit_every": 50,
    },
}

_PUBLISHED = {  # rewards of 5,000 rounds
    ("shuttle", "linear Thompson"): 4413.0,
    ("shuttle", "neural-linear"): 4089.0,
    ("covertype_20k", "linear Thompson"): 3016.0,
    ("covertype_20k", "neural-linear"): 2760.0,
}
_SOURCE = "probml/bandits"
_PUBLISHED_STEPS = 5000
_REWARD_SCALE = {"mushroom": 10.0}
_LINEAR = "uniform", "linear Thompson"
_LEAST_RUNS = 3  # for a standard error over them
_WORDS = "uniform", "linear Thompson", "neural-linear", "Thompson, ensemble", "greedy network"


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Play, count, draw."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    rows, curves, short = [], {}, settings["num_steps"]
    for name in settings["data"]:
        bandit, regret = _bandit(name), {}
        for word in _WORDS:
            rows_of, regret[word] = _played(bench, name, bandit, word)
            rows += rows_of
            curves[f"{name}: {word}"] = [regret[word].mean(0)[49::50].tolist(), _spread(regret[word])[49::50].tolist()]
        for other in ("uniform", "greedy network"):
            for word in _WORDS:
                if word not in ("uniform", other):
                    rows.append(_less(f"{name}, regret after {short}: {word} less {other}", regret, word, other, short))
    remarks = [
        f"Rounds: {settings['num_steps']} of every agent, {settings['num_steps_linear']} of those in closed form. "
        f"Seeds: {settings['num_seeds']}, and {settings['num_seeds_linear']} of those in closed form. Standard errors "
        f"are over seeds, of {_LEAST_RUNS} or more; differences are of the same seeds, which see the same rows.",
        "Regret is what the best arms are expected to give less what the pulled ones are expected to, given the class "
        "of the row; rewards are as they were seen. Curves are mean regret every 50 rounds, and its standard errors.",
        f"Networks have hidden layers {settings['hidden']}, are trained for {settings['num_epochs']} epochs every "
        f"{settings['refit_every']} rounds from where they were; before the first training all but neural-linear pull "
        "any arm. Nothing was tuned: no figure was looked at to choose a setting.",
        f"Published figures are rewards of {_PUBLISHED_STEPS} rounds by {_SOURCE}, whose rows, features and first "
        "rounds are its own; of forest cover we have other rows.",
    ]
    return rows, remarks, curves, _picture(drawing, settings, curves)


def _bandit(name: str) -> mx.decide.ReplayBandit:
    x, y = mx.data.load_bandit(name)
    rewards = mx.decide.RewardTable.mushrooms() if name == "mushroom" else None
    return mx.decide.ReplayBandit(x, y, rewards)


def _agent(word: str, name: str, bandit: mx.decide.ReplayBandit, settings: Any, seed: int) -> Any:
    if word in _LINEAR:
        return mx.decide.Uniform() if word == "uniform" else mx.decide.LinearThompson()
    net = mx.nets.MLP(bandit.x.shape[1], settings["hidden"], bandit.num_arms, key=seed)
    model = mx.Model(net, likelihood=mx.likelihoods.Gaussian())
    training = mx.infer.MAP(num_epochs=settings["num_epochs"], batch_size=settings["batch_size"])
    options = {"refit_every": settings["refit_every"], "reward_scale": _REWARD_SCALE.get(name, 1.0)}
    if word == "neural-linear":
        return mx.decide.NeuralLinear(model, training, **options)
    if word == "greedy network":
        return mx.decide.Greedy(model, training, **options)
    return mx.decide.Thompson(model, mx.infer.DeepEnsemble(settings["num_members"], training), **options)


def _played(bench: Workbench, name: str, bandit: Any, word: str) -> tuple[list[Row], np.ndarray]:
    """Rows of one agent, and its regret (seed, round)."""
    settings, short = bench.settings, bench.settings["num_steps"]
    closed = word in _LINEAR
    num_steps = max(short, settings["num_steps_linear"]) if closed else short
    found = []
    for seed in range(settings["num_seeds_linear"] if closed else settings["num_seeds"]):

        def one(seed: int = seed) -> dict[str, Any]:
            agent = _agent(word, name, bandit, settings, seed)
            played = mx.decide.play(bandit, agent, num_steps, key=seed)
            return {"regret": played.regret.tolist(), "reward": played.cumulative_reward.tolist()}

        found.append(bench.measure(f"{name}, {word}, seed {seed}", one))
    regret, reward = (np.array([each[part] for each in found], float) for part in ("regret", "reward"))
    rows = [
        _row(f"{name}, regret after {short}: {word}", regret[:, short - 1]),
        _row(f"{name}, reward after {short}: {word}", reward[:, short - 1], (name, word), short),
    ]
    if num_steps > short:
        rows.append(_row(f"{name}, reward after {num_steps}: {word}", reward[:, -1], (name, word), num_steps))
    return rows, regret


def _less(what: str, regret: dict[str, np.ndarray], word: str, other: str, num_steps: int) -> Row:
    """The difference of two agents, seed by seed."""
    num = min(len(regret[word]), len(regret[other]))
    return _row(what, regret[word][:num, num_steps - 1] - regret[other][:num, num_steps - 1])


def _spread(values: np.ndarray) -> np.ndarray:
    """Standard errors over seeds, zero where there are too few."""
    num = len(values)
    return values.std(0, ddof=1) / np.sqrt(num) if num >= _LEAST_RUNS else np.zeros(values.shape[1])


def _row(what: str, values: np.ndarray, place: tuple[str, str] | None = None, num_steps: int = 0) -> Row:
    error = float(_spread(values[:, None])[0]) if len(values) >= _LEAST_RUNS else None
    published = _PUBLISHED.get(place) if place is not None and num_steps == _PUBLISHED_STEPS else None
    source = "" if published is None else _SOURCE
    return Row(what, float(values.mean()), error, published, source, lower_is_better=place is None)


def _picture(drawing: Any, settings: Any, curves: dict[str, list[list[float]]]) -> Any:
    figure = drawing.Figure(figsize=(5 * len(settings["data"]), 4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(settings["data"])))
    for ax, name in zip(axes, settings["data"], strict=True):
        for word in _WORDS:
            mean, error = (np.array(part[: settings["num_steps"] // 50]) for part in curves[f"{name}: {word}"])
            rounds = 50 * np.arange(1, len(mean) + 1)
            ax.plot(rounds, mean, label=word)
            ax.fill_between(rounds, np.maximum(mean - 2 * error, 0.5), mean + 2 * error, alpha=0.2, lw=0)
        ax.set(xlabel="rounds", ylabel="regret", title=name)
        ax.set_yscale("log")
    axes[0].legend(frameon=False, fontsize="small")
    return figure


EXPERIMENT = Experiment("bandits", "Contextual bandits", SETTINGS, run)
