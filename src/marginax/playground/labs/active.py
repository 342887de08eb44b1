"""Ask for labels: you or BALD choose the next point, and the fit is on what was asked for."""

from typing import Any

import jax
import numpy as np

from marginax import Model, likelihoods, priors
from marginax.data import Arrays
from marginax.decide import BALD
from marginax.infer import AbstractMethod, Event, fit
from marginax.nets import MLP
from marginax.playground.labs.curves import Watch
from marginax.playground.labs.methods import ENSEMBLES, method_of
from marginax.playground.labs.planes import NUM_SAMPLES, grid, maps_of, moons
from marginax.playground.labs.streaming import hooks_for
from marginax.playground.labs.text import array, expression, program
from marginax.playground.playable import Frame, Numbers, Playable, Settings, Stage
from marginax.playground.protocol import Choice, Lab, ProtocolError, Setting
from marginax.posterior import AbstractPosterior

_NUM_POOL, _NUM_TEST, _MOST_ASKED = 120, 400, 60
_START = (0, 1)  # one of each class is known from the beginning
_METHODS = ("HMC", "NUTS", "MCLMC", "SGHMC", "DeepEnsemble", "Laplace", "VI", "MCDropout")
LAB = Lab(
    "active",
    "Ask for labels",
    "Labels cost something: which point would you ask about next, and which would BALD?",
    (
        Setting(
            "chosen",
            "Asked for",
            "numbers",
            [],
            "places in the pool, in order; the first two points are known from the beginning",
            least=0,
            most=_NUM_POOL - 1,
            max_length=_MOST_ASKED,
        ),
        Setting("method", "Method", "choice", "HMC", choices=tuple(Choice(n, n) for n in _METHODS)),
        Setting("budget", "Budget", "number", 0.5, "a factor of all steps", least=0.02, most=4.0, log=True),
        Setting("pool", "Pool", "integer", 0, "another pool of points", least=0, most=99),
        Setting("seed", "Seed", "integer", 0, least=0, most=9999),
    ),
)


def check(settings: Settings) -> None:
    """Whole numbers, each once."""
    chosen = settings["chosen"]
    if any(place != int(place) for place in chosen):
        raise ProtocolError("settings: chosen must be whole numbers, places in the pool")
    if len(set(chosen) | set(_START)) != len(chosen) + len(_START):
        raise ProtocolError("settings: chosen must name each point once, and not the two that are known: 0 and 1")


def asked_for(settings: Settings) -> list[int]:
    """Places in the pool whose labels are known."""
    return [*_START, *(int(place) for place in settings["chosen"])]


def model_of(settings: Settings) -> Model:
    """A small network."""
    net = MLP(in_size=2, hidden=(20, 20), out_size=2, activation=jax.nn.tanh, key=settings["seed"])
    return Model(net, likelihood=likelihoods.Categorical(), prior=priors.Normal(priors.FanIn(2.8)))


def data_of(points: np.ndarray, known: list[int]) -> Arrays:
    """The whole pool, of which only what was asked for counts: so one program serves every number of labels.

    Labels that are not known are zero, so that nothing is known of them.
    """
    counts = np.isin(np.arange(len(points)), known)
    return Arrays(points[:, :2], np.where(counts, points[:, 2], 0).astype(int), weight=counts.astype(float))


def chosen_method(settings: Settings) -> AbstractMethod:
    """The method with its budget."""
    return method_of(settings["method"], budget=settings["budget"])


def run(settings: Settings, stage: Stage) -> Numbers:
    """Fit to what is known, and say what BALD would ask for next."""
    pool, known, seed = moons(_NUM_POOL, seed=1000 + settings["pool"]).round(3), asked_for(settings), settings["seed"]
    test = moons(_NUM_TEST, seed=5000 + settings["pool"])
    data, method, axis = data_of(pool, known), chosen_method(settings), grid()[0]
    fixed = {"x": axis, "y": axis, "points": pool[known], "num_classes": 2, "pool": pool[:, :2], "chosen": known}
    fixed["labels"] = pool[known, 2].astype(int)

    def judged(posterior: AbstractPosterior) -> dict[str, Any]:
        prediction: Any = posterior.predict(test[:, :2], num_samples=NUM_SAMPLES)
        scores = scores_of(posterior, pool, known)
        accuracy = float(np.mean(prediction.labels == test[:, 2]))
        return {"scores": scores, "suggested": suggested_by(scores, known), "accuracy": accuracy}

    def show(phase: str, step: int, of: int, posterior: AbstractPosterior, log_density: list[float]) -> None:
        data = {**fixed, **maps_of(posterior), **judged(posterior), "log_density": log_density}
        stage.show(Frame(step, of, phase, data))

    def tell(event: Event, posterior: AbstractPosterior) -> None:
        found = event.info.get("log_density")
        last = [] if found is None else found[:, -1].tolist()
        show(event.phase, event.step, event.num_steps, posterior, last)

    watch = Watch(method, data.spec, key=seed, tell=tell)
    hooks = hooks_for(method, len(pool), watch, stage.alive)
    chains = None if settings["method"] in ENSEMBLES else 2
    posterior = fit(model_of(settings), data, method, key=seed, num_chains=chains, hooks=hooks, progress=False)
    show("posterior", 1, 1, posterior, [])
    found = judged(posterior)
    return {"accuracy": found["accuracy"], "suggested": found["suggested"], "scores": found["scores"].tolist()}


def scores_of(posterior: AbstractPosterior, pool: np.ndarray, known: list[int]) -> np.ndarray:
    """What the label of each point would teach, in nats; nothing where it is known."""
    scores = np.array(BALD().scores(posterior.predict(pool[:, :2], num_samples=NUM_SAMPLES)))
    scores[known] = 0.0
    return scores


def suggested_by(scores: np.ndarray, known: list[int]) -> int:
    """The place with the highest score among those whose labels are not known."""
    return int(np.where(np.isin(np.arange(len(scores)), known), -np.inf, scores).argmax())


def to_python(settings: Settings) -> str:
    """The text that gives the same suggestion."""
    pool, known, seed = moons(_NUM_POOL, seed=1000 + settings["pool"]).round(3), asked_for(settings), settings["seed"]
    chains = "" if settings["method"] in ENSEMBLES else ", num_chains=2"
    return program(
        [
            "import jax",
            "import numpy as np",
            "",
            "import marginax as mx",
            "from marginax.playground.labs.planes import moons",
            "",
            f"pool = {array(pool)}",
            f"test = moons({_NUM_TEST}, seed={5000 + settings['pool']})",
            f"known = {known!r}",
            "counts = np.isin(np.arange(len(pool)), known)",
            "labels = np.where(counts, pool[:, 2], 0).astype(int)  # labels that are not known are not looked at",
            "data = mx.data.Arrays(pool[:, :2], labels, weight=counts.astype(float))",
            f"net = mx.nets.MLP(in_size=2, hidden=(20, 20), out_size=2, activation=jax.nn.tanh, key={seed})",
            "prior = mx.priors.Normal(mx.priors.FanIn(2.8))",
            "model = mx.Model(net, likelihood=mx.likelihoods.Categorical(), prior=prior)",
            f"method = {expression(chosen_method(settings))}",
            f"posterior = mx.fit(model, data, method, key={seed}{chains})",
            f"scores = np.array(mx.decide.BALD().scores(posterior.predict(pool[:, :2], num_samples={NUM_SAMPLES})))",
            "scores[known] = 0.0",
            f"prediction = posterior.predict(test[:, :2], num_samples={NUM_SAMPLES})",
            "numbers = {",
            '    "accuracy": float(np.mean(prediction.labels == test[:, 2])),',
            '    "suggested": int(np.where(counts, -np.inf, scores).argmax()),',
            '    "scores": scores.tolist(),',
            "}",
            "print(numbers)",
        ]
    )


PLAYABLE = Playable(LAB, run, to_python, check)
