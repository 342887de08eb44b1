"""Functions of one variable: what a network believes before there is data, and what it learns from points."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from marginax import Model, likelihoods, priors
from marginax.data import Arrays, as_arrays, as_source, standardise
from marginax.infer import AbstractMethod, Event, fit
from marginax.nets import MLP
from marginax.playground.labs.curves import Watch, summarise
from marginax.playground.labs.methods import ENSEMBLES, METHODS, TEMPERED, method_of
from marginax.playground.labs.points import data_set
from marginax.playground.labs.streaming import hooks_for
from marginax.playground.labs.text import array, expression, program
from marginax.playground.playable import Frame, Numbers, Playable, Settings, Stage
from marginax.playground.protocol import Choice, Lab, ProtocolError, Setting
from marginax.posterior import AbstractPosterior, Draws

NUM_GRID, NUM_SAMPLES, _NUM_PRIOR = 121, 200, 40
_ACTIVATIONS = {"silu": jax.nn.silu, "tanh": jax.nn.tanh, "relu": jax.nn.relu, "sin": jnp.sin}
_HIDDEN = {"10": (10,), "50": (50,), "20-20": (20, 20), "50-50": (50, 50), "none": ()}
_SETS = (
    Choice("ten", "ten measurements of y = 3x"),
    Choice("gap", "a gap"),
    Choice("heteroscedastic", "noise that grows"),
    Choice("sinus", "a sine"),
    Choice("co2", "carbon dioxide"),
    Choice("own", "my points"),
)
LAB = Lab(
    "functions",
    "Functions",
    "Place points, choose a network and a method, and see which functions the posterior holds to be possible.",
    (
        Setting("data", "Data", "choice", "ten", choices=_SETS),
        Setting("points", "Points", "points", [], least=-1e5, most=1e5, max_length=300, when={"data": ("own",)}),
        Setting("prior_only", "Prior alone", "flag", False, "draws of the prior, before there is data"),
        Setting("method", "Method", "choice", "HMC", choices=METHODS, when={"prior_only": (False,)}),
        Setting("hidden", "Hidden units", "choice", "50", choices=tuple(Choice(n, n) for n in _HIDDEN)),
        Setting("activation", "Activation", "choice", "silu", choices=tuple(Choice(n, n) for n in _ACTIVATIONS)),
        Setting(
            "prior_scale",
            "Prior scale",
            "number",
            1.0,
            "of weights, times 1 / sqrt(fan-in), and of biases",
            least=0.1,
            most=10.0,
            log=True,
        ),
        Setting(
            "likelihood",
            "Noise",
            "choice",
            "input",
            choices=(
                Choice("input", "depends on x"),
                Choice("learned", "one scale, learned"),
                Choice("fixed", "one scale, known"),
                Choice("student", "heavy tails, learned"),
            ),
        ),
        Setting(
            "noise_scale",
            "Noise scale",
            "number",
            0.1,
            "in standard deviations of y",
            least=0.005,
            most=2.0,
            log=True,
            when={"likelihood": ("fixed",)},
        ),
        Setting(
            "temperature",
            "Temperature",
            "number",
            1.0,
            "of the posterior: 1 is Bayes, less is sharper",
            least=0.01,
            most=4.0,
            log=True,
            when={"method": TEMPERED, "prior_only": (False,)},
        ),
        Setting("ask", "What is y at x =", "number", 7.0, least=-1e6, most=1e6),
        Setting("chains", "Chains", "integer", 2, "independent runs", least=1, most=6, when={"prior_only": (False,)}),
        Setting(
            "budget",
            "Budget",
            "number",
            1.0,
            "a factor of all steps",
            least=0.02,
            most=4.0,
            log=True,
            when={"prior_only": (False,)},
        ),
        Setting("seed", "Seed", "integer", 0, least=0, most=9999),
    ),
)


def points_of(settings: Settings) -> np.ndarray:
    """Points (n, 2)."""
    if settings["data"] == "own":
        return np.asarray(settings["points"], float).reshape(-1, 2)
    return data_set(settings["data"])


def model_of(settings: Settings) -> Model:
    """Network, likelihood and prior."""
    net = MLP(
        in_size=1,
        hidden=_HIDDEN[settings["hidden"]],
        out_size=2 if settings["likelihood"] == "input" else 1,
        activation=_ACTIVATIONS[settings["activation"]],
        key=settings["seed"],
    )
    return Model(net, likelihood=_likelihood(settings), prior=priors.Normal(_prior_scale(settings)))


def _prior_scale(settings: Settings) -> priors.FanIn:
    return priors.FanIn(settings["prior_scale"], bias=settings["prior_scale"])


def _likelihood(settings: Settings) -> Any:
    if settings["likelihood"] == "input":
        return likelihoods.Gaussian(scale=likelihoods.FromNetwork(min_scale=0.02))
    if settings["likelihood"] == "fixed":
        return likelihoods.Gaussian(scale=settings["noise_scale"])
    return likelihoods.StudentT() if settings["likelihood"] == "student" else likelihoods.Gaussian()


def check(settings: Settings) -> None:
    """Points that can be fitted, or none."""
    if settings["prior_only"] or settings["data"] != "own" or not settings["points"]:
        return
    points = points_of(settings)
    if len(points) < 3:
        raise ProtocolError(
            f"settings: points must be at least 3 to be fitted (none shows the prior), got {len(points)}"
        )
    for column, name in enumerate("xy"):
        if np.ptp(points[:, column]) == 0:
            raise ProtocolError(f"settings: points must differ in {name} to be fitted")


def chosen_method(settings: Settings) -> AbstractMethod:
    """The method with its budget."""
    return method_of(settings["method"], budget=settings["budget"], temperature=settings["temperature"])


def num_chains_of(settings: Settings) -> int | None:
    """How many runs; None for methods that are many networks already."""
    return None if settings["method"] in ENSEMBLES else settings["chains"]


def run(settings: Settings, stage: Stage) -> Numbers:
    """Fit and show curves while it runs."""
    points, model, method = points_of(settings), model_of(settings), chosen_method(settings)
    grid, ask = grid_of(points, settings["ask"]), settings["ask"]

    def show(phase: str, step: int, of: int, posterior: AbstractPosterior, log_density: Any) -> None:
        found = summarise(posterior, grid, num_samples=NUM_SAMPLES)
        numbers = {"x": ask, **answer(posterior, ask)}
        rest = {"grid": grid, "points": points, "log_density": log_density, "answer": numbers}
        stage.show(Frame(step, of, phase, {**found, **rest}))

    if shows_prior(settings):
        posterior = prior_draws(model, data_of(points), key=settings["seed"])
        show("prior", 1, 1, posterior, [])
        return answer(posterior, ask)
    data, last = data_of(points), []

    def tell(event: Event, posterior: AbstractPosterior) -> None:
        found = event.info.get("log_density")
        last[:] = [] if found is None else found[:, -1].tolist()
        show(event.phase, event.step, event.num_steps, posterior, last)

    watch = Watch(method, data.spec, key=settings["seed"], tell=tell)
    hooks = hooks_for(method, len(points), watch, stage.alive)
    chains = num_chains_of(settings)
    posterior = fit(model, data, method, key=settings["seed"], num_chains=chains, hooks=hooks, progress=False)
    show("posterior", 1, 1, posterior, last)
    return answer(posterior, ask)


def shows_prior(settings: Settings) -> bool:
    """Whether there is nothing to be fitted."""
    return settings["prior_only"] or len(points_of(settings)) == 0


def data_of(points: np.ndarray) -> Arrays:
    """Standardised, if there are enough points for that."""
    if len(points) < 3:
        return as_arrays((np.zeros((3, 1)), np.zeros(3)))
    return standardise((points[:, :1], points[:, 1]))


def prior_draws(model: Model, data: Arrays, *, key: int) -> AbstractPosterior:
    """Networks drawn from the prior, as a posterior of no data that predicts in the units of `data`."""
    source = as_source(data, None, model.read)
    params = model.init(source)
    keys = jax.random.split(jax.random.key(key), _NUM_PRIOR)
    drawn = jax.vmap(lambda k: model.sample_prior(params, key=k))(keys)
    one_chain = jax.tree.map(lambda leaf: leaf[None], drawn)
    return Draws(model, one_chain, spec=source.spec, key=jax.random.key(key))


def grid_of(points: np.ndarray, ask: float) -> np.ndarray:
    """Inputs beyond the points on both sides, with the one that is asked about within them where it is near."""
    low, high = (points[:, 0].min(), points[:, 0].max()) if len(points) > 2 else (-2.0, 2.0)
    reach = 0.4 * (high - low)
    if low - 4 * reach <= ask <= high + 4 * reach:
        low, high = min(low, ask), max(high, ask)
    return np.linspace(low - reach, high + reach, NUM_GRID)


def answer(posterior: AbstractPosterior, ask: float) -> Numbers:
    """What y is at one x, and how sure we are."""
    prediction: Any = posterior.predict(np.array([[ask]]), num_samples=NUM_SAMPLES)
    lower, upper = prediction.interval(0.9)
    return {
        "mean": float(prediction.mean[0]),
        "epistemic": float(np.sqrt(prediction.epistemic[0])),
        "aleatoric": float(np.sqrt(prediction.aleatoric[0])),
        "total": float(prediction.std[0]),
        "lower": float(lower[0]),
        "upper": float(upper[0]),
    }


def to_python(settings: Settings) -> str:
    """The text that gives the same answer."""
    points, seed = points_of(settings), settings["seed"]
    outputs = 2 if settings["likelihood"] == "input" else 1
    activation = settings["activation"]
    network = (
        f"net = mx.nets.MLP(in_size=1, hidden={_HIDDEN[settings['hidden']]!r}, out_size={outputs}, "
        f"activation={'jnp.sin' if activation == 'sin' else f'jax.nn.{activation}'}, key={seed})"
    )
    prior = expression(priors.Normal(_prior_scale(settings)))
    lines = [
        "import jax",
        *(["import jax.numpy as jnp"] if activation == "sin" else []),
        "import numpy as np",
        "",
        "import marginax as mx",
        "",
        network,
        f"likelihood = {expression(_likelihood(settings))}",
        f"model = mx.Model(net, likelihood=likelihood, prior={prior})",
        *_data_lines(points),
        "",
        *(_prior_lines(seed) if shows_prior(settings) else _fit_lines(settings)),
        f"prediction = posterior.predict(np.array([[{settings['ask']!r}]]), num_samples={NUM_SAMPLES})",
        "lower, upper = prediction.interval(0.9)",
        "numbers = {",
        '    "mean": float(prediction.mean[0]),',
        '    "epistemic": float(np.sqrt(prediction.epistemic[0])),',
        '    "aleatoric": float(np.sqrt(prediction.aleatoric[0])),',
        '    "total": float(prediction.std[0]),',
        '    "lower": float(lower[0]),',
        '    "upper": float(upper[0]),',
        "}",
        "print(numbers)",
    ]
    return program(lines)


def _data_lines(points: np.ndarray) -> list[str]:
    if len(points) < 3:
        return ["data = mx.data.as_arrays((np.zeros((3, 1)), np.zeros(3)))  # no data: shapes alone"]
    lines = [f"x = {array(points[:, 0])}", f"y = {array(points[:, 1])}"]
    return [*lines, "data = mx.data.standardise((x[:, None], y))"]


def _fit_lines(settings: Settings) -> list[str]:
    chains = num_chains_of(settings)
    chosen = "" if chains is None else f", num_chains={chains}"
    method = expression(chosen_method(settings))
    return [f"method = {method}", f"posterior = mx.fit(model, data, method, key={settings['seed']}{chosen})"]


def _prior_lines(seed: int) -> list[str]:
    return [
        "source = mx.data.as_source(data, None, model.read)",
        "params = model.init(source)",
        f"keys = jax.random.split(jax.random.key({seed}), {_NUM_PRIOR})",
        "drawn = jax.vmap(lambda k: model.sample_prior(params, key=k))(keys)",
        "draws = jax.tree.map(lambda leaf: leaf[None], drawn)  # axes (chain, draw)",
        f"posterior = mx.posterior.Draws(model, draws, spec=source.spec, key=jax.random.key({seed}))",
    ]


PLAYABLE = Playable(LAB, run, to_python, check)
