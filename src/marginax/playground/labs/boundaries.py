"""Classes in the plane: where the posterior is sure, where classes overlap, and where it has seen nothing."""

from typing import Any

import jax
import numpy as np

from marginax import Model, infer, likelihoods, priors
from marginax.data import as_arrays
from marginax.infer import AbstractMethod, Event, fit
from marginax.nets import MLP
from marginax.playground.labs.curves import Watch
from marginax.playground.labs.methods import ENSEMBLES, METHODS, TEMPERED, method_of
from marginax.playground.labs.planes import NUM_SAMPLES, data_set, grid, maps_of
from marginax.playground.labs.streaming import hooks_for
from marginax.playground.labs.text import array, expression, program
from marginax.playground.playable import Frame, Numbers, Playable, Settings, Stage
from marginax.playground.protocol import Choice, Lab, ProtocolError, Setting
from marginax.posterior import AbstractPosterior

_HIDDEN = {"10": (10,), "20-20": (20, 20), "50-50": (50, 50), "none": ()}
_ACTIVATIONS = {"tanh": jax.nn.tanh, "silu": jax.nn.silu, "relu": jax.nn.relu}
_NOT_FOR_CLASSES = ("AnchoredEnsemble",)
_METHODS = tuple(choice for choice in METHODS if choice.value not in _NOT_FOR_CLASSES)
LAB = Lab(
    "boundaries",
    "Decision boundaries",
    "Classes in the plane: noise of the labels beside what the network cannot know.",
    (
        Setting(
            "data",
            "Data",
            "choice",
            "moons",
            choices=(*(Choice(name, name) for name in ("moons", "circles", "spirals")), Choice("own", "my points")),
        ),
        Setting("points", "Points", "points", [], least=-3, most=3, columns=3, max_length=300, when={"data": ("own",)}),
        Setting("method", "Method", "choice", "DeepEnsemble", choices=_METHODS),
        Setting("hidden", "Hidden units", "choice", "20-20", choices=tuple(Choice(n, n) for n in _HIDDEN)),
        Setting("activation", "Activation", "choice", "tanh", choices=tuple(Choice(n, n) for n in _ACTIVATIONS)),
        Setting(
            "prior_scale",
            "Prior scale",
            "number",
            2.8,
            "of weights, times 1 / sqrt(fan-in)",
            least=0.1,
            most=10.0,
            log=True,
        ),
        Setting("temperature", "Temperature", "number", 1.0, least=0.01, most=4.0, log=True, when={"method": TEMPERED}),
        Setting("beside", "Point estimate", "flag", True, "show beside it what the single network of MAP says"),
        Setting("ask_x", "Asked at x", "number", 0.0, least=-3, most=3),
        Setting("ask_y", "Asked at y", "number", 0.0, least=-3, most=3),
        Setting("chains", "Chains", "integer", 2, least=1, most=6),
        Setting("budget", "Budget", "number", 1.0, "a factor of all steps", least=0.02, most=4.0, log=True),
        Setting("seed", "Seed", "integer", 0, least=0, most=9999),
    ),
)


def points_of(settings: Settings) -> np.ndarray:
    """Points (n, 3)."""
    if settings["data"] == "own":
        return np.asarray(settings["points"], float).reshape(-1, 3)
    return data_set(settings["data"])


def num_classes_of(points: np.ndarray) -> int:
    """Two, or three."""
    return 2 if len(points) == 0 else max(2, int(points[:, 2].max()) + 1)


def check(settings: Settings) -> None:
    """Points of two classes at least."""
    if settings["data"] != "own":
        return
    points = points_of(settings)
    if len(points) and not np.isin(points[:, 2], (0, 1, 2)).all():
        raise ProtocolError("settings: points must be of class 0, 1 or 2")
    if len(points) < 4 or len(np.unique(points[:, 2])) < 2:
        raise ProtocolError(f"settings: points must be at least 4, of 2 classes or more, got {len(points)}")


def model_of(settings: Settings, num_classes: int) -> Model:
    """Network, likelihood and prior."""
    net = MLP(
        in_size=2,
        hidden=_HIDDEN[settings["hidden"]],
        out_size=num_classes,
        activation=_ACTIVATIONS[settings["activation"]],
        key=settings["seed"],
    )
    return Model(net, likelihood=likelihoods.Categorical(), prior=_prior(settings))


def _prior(settings: Settings) -> priors.Normal:
    return priors.Normal(priors.FanIn(settings["prior_scale"]))


def chosen_method(settings: Settings) -> AbstractMethod:
    """The method with its budget."""
    return method_of(settings["method"], budget=settings["budget"], temperature=settings["temperature"])


def point_method(settings: Settings) -> infer.MAP:
    """What gives the single network."""
    return infer.MAP(num_epochs=max(4, round(2000 * settings["budget"])))


def num_chains_of(settings: Settings) -> int | None:
    """How many runs; None for methods that are many networks already."""
    return None if settings["method"] in ENSEMBLES else settings["chains"]


def run(settings: Settings, stage: Stage) -> Numbers:
    """Fit, and show maps while it runs."""
    points, seed = points_of(settings), settings["seed"]
    axis, _ = grid()
    model, method = model_of(settings, num_classes_of(points)), chosen_method(settings)
    data = as_arrays((points[:, :2], points[:, 2].astype(int)))
    fixed: dict[str, Any] = {"x": axis, "y": axis, "points": points, "num_classes": num_classes_of(points)}
    last: dict[str, Any] = {"point": None, "log_density": []}

    def show(phase: str, step: int, of: int, posterior: AbstractPosterior) -> None:
        stage.show(Frame(step, of, phase, {**fixed, **maps_of(posterior), **last}))

    def tell(event: Event, posterior: AbstractPosterior) -> None:
        found = event.info.get("log_density")
        last["log_density"] = [] if found is None else found[:, -1].tolist()
        show(event.phase, event.step, event.num_steps, posterior)

    def fitted(method: AbstractMethod, chains: int | None) -> AbstractPosterior:
        watch = Watch(method, data.spec, key=seed, tell=tell)
        hooks = hooks_for(method, len(points), watch, stage.alive)
        return fit(model, data, method, key=seed, num_chains=chains, hooks=hooks, progress=False)

    if settings["beside"]:
        found = maps_of(fitted(point_method(settings), 1))
        last["point"] = {name: found[name] for name in ("probability", "entropy")}
    posterior = fitted(method, num_chains_of(settings))
    show("posterior", 1, 1, posterior)
    return answer(posterior, settings)


def answer(posterior: AbstractPosterior, settings: Settings) -> Numbers:
    """What class a place has, and how sure we are."""
    place = np.array([[settings["ask_x"], settings["ask_y"]]])
    prediction: Any = posterior.predict(place, num_samples=NUM_SAMPLES)
    return {
        "probability": prediction.probs[0].tolist(),
        "entropy": float(prediction.entropy[0]),
        "expected_entropy": float(prediction.expected_entropy[0]),
        "mutual_information": float(prediction.mutual_information[0]),
    }


def to_python(settings: Settings) -> str:
    """The text that gives the same answer."""
    points, seed = points_of(settings), settings["seed"]
    chains = num_chains_of(settings)
    chosen = "" if chains is None else f", num_chains={chains}"
    return program(
        [
            "import jax",
            "import numpy as np",
            "",
            "import marginax as mx",
            "",
            f"x = {array(points[:, :2])}",
            f"y = {array(points[:, 2].astype(int))}",
            f"net = mx.nets.MLP(in_size=2, hidden={_HIDDEN[settings['hidden']]!r}, out_size={num_classes_of(points)}, "
            f"activation=jax.nn.{settings['activation']}, key={seed})",
            f"prior = {expression(_prior(settings))}",
            "model = mx.Model(net, likelihood=mx.likelihoods.Categorical(), prior=prior)",
            f"method = {expression(chosen_method(settings))}",
            f"posterior = mx.fit(model, (x, y), method, key={seed}{chosen})",
            f"place = {array([[settings['ask_x'], settings['ask_y']]])}",
            f"prediction = posterior.predict(place, num_samples={NUM_SAMPLES})",
            "numbers = {",
            '    "probability": prediction.probs[0].tolist(),',
            '    "entropy": float(prediction.entropy[0]),',
            '    "expected_entropy": float(prediction.expected_entropy[0]),',
            '    "mutual_information": float(prediction.mutual_information[0]),',
            "}",
            "print(numbers)",
        ]
    )


PLAYABLE = Playable(LAB, run, to_python, check)
