"""Samplers in the plane: how each moves, and how soon its histogram is the truth."""

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np

from marginax import Density, infer
from marginax.evaluate.convergence import measure_convergence
from marginax.infer import AbstractMethod, Event, fit
from marginax.playground.labs.moves import MAX_LEAPFROG, MAX_TREE_DEPTH, FixedStep
from marginax.playground.labs.streaming import Streaming
from marginax.playground.labs.targets import TARGETS, Target
from marginax.playground.labs.text import expression, program
from marginax.playground.playable import Frame, Numbers, Playable, Settings, Stage
from marginax.playground.protocol import Choice, Lab, Setting

_STEPS_PER_STATE = 25
_LEAST_DRAWS = 10
_NEVER_REFUSE = ("SGLD", "SGHMC", "MCLMC")
_MOST_MOVES = 8
_SAMPLERS = (
    Choice("MetropolisHastings", "Metropolis-Hastings"),
    Choice("MALA", "MALA"),
    Choice("HMC", "HMC"),
    Choice("NUTS", "NUTS"),
    Choice("SGLD", "SGLD (Langevin without accept)"),
    Choice("SGHMC", "SGHMC (with momentum, without accept)"),
    Choice("MCLMC", "MCLMC"),
    Choice("ParallelTempering", "parallel tempering"),
)
LAB = Lab(
    "samplers",
    "Samplers",
    "Choose a density and a sampler, and see how it moves, what it finds, and what it misses.",
    (
        Setting("target", "Target", "choice", "banana", choices=tuple(Choice(n, t.label) for n, t in TARGETS.items())),
        Setting("sampler", "Sampler", "choice", "HMC", choices=_SAMPLERS),
        Setting("step_size", "Step size", "number", 0.2, least=0.005, most=3.0, log=True),
        Setting(
            "decreasing",
            "Decreasing steps",
            "flag",
            False,
            "the step size falls as (1 + t / 100)^-0.55; all draws count alike",
            when={"sampler": ("SGLD", "SGHMC")},
        ),
        Setting(
            "path_length",
            "Path length",
            "number",
            1.5,
            "mean length of trajectories; for MCLMC, over which the direction is forgotten",
            least=0.05,
            most=10.0,
            log=True,
            when={"sampler": ("HMC", "MCLMC")},
        ),
        Setting("friction", "Friction", "number", 0.1, least=0.01, most=1.0, log=True, when={"sampler": ("SGHMC",)}),
        Setting("tree_depth", "Deepest tree", "integer", 5, least=1, most=MAX_TREE_DEPTH, when={"sampler": ("NUTS",)}),
        Setting(
            "temperatures", "Temperatures", "integer", 5, least=2, most=10, when={"sampler": ("ParallelTempering",)}
        ),
        Setting(
            "hottest",
            "Hottest",
            "number",
            20.0,
            least=1.5,
            most=100.0,
            log=True,
            when={"sampler": ("ParallelTempering",)},
        ),
        Setting("steps", "Steps", "integer", 1000, "of each chain", least=_STEPS_PER_STATE, most=5000, log=True),
        Setting("chains", "Chains", "integer", 4, least=1, most=6),
        Setting("seed", "Seed", "integer", 0, least=0, most=9999),
    ),
)


def inner_of(settings: Settings) -> AbstractMethod:
    """The sampler without its step size, unless it has one of its own."""
    name, step = settings["sampler"], settings["step_size"]
    if name in ("SGLD", "SGHMC"):
        step = infer.PolynomialDecay(step, delay=100.0) if settings["decreasing"] else step
        options: dict[str, Any] = {"num_warmup": 0, "batch_size": None, "training": None}
        if name == "SGLD":
            return infer.SGLD(step_size=step, **options)
        return infer.SGHMC(step_size=step, friction=settings["friction"], **options)
    if name == "HMC":
        return infer.HMC(path_length=settings["path_length"], max_leapfrog=MAX_LEAPFROG)
    if name == "NUTS":
        return infer.NUTS(max_tree_depth=settings["tree_depth"])
    if name == "MCLMC":
        return infer.MCLMC(path_length=settings["path_length"] / float(np.sqrt(2.0)))
    if name == "ParallelTempering":
        return infer.ParallelTempering(
            num_temperatures=settings["temperatures"], max_temperature=settings["hottest"], num_leapfrog=5
        )
    return infer.MALA() if name == "MALA" else infer.MetropolisHastings()


def method_of(settings: Settings) -> FixedStep:
    """The sampler with its step size."""
    return FixedStep(inner=inner_of(settings), step_size=settings["step_size"], num_samples=settings["steps"])


def run(settings: Settings, stage: Stage) -> Numbers:
    """Sample, and show moves, histograms and diagnostics."""
    target = TARGETS[settings["target"]]
    scene = _Scene(target, settings, stage)
    scene.show_map()
    density = Density(target.log_prob, jnp.array(target.start))
    posterior: Any = fit(
        density,
        None,
        method_of(settings),
        key=settings["seed"],
        num_chains=settings["chains"],
        hooks=(Streaming(scene.look, {}),),
        chunk_size=_STEPS_PER_STATE,
        progress=False,
    )
    numbers = numbers_of(np.asarray(posterior.params), posterior.sample_info)
    return numbers if settings["sampler"] not in _NEVER_REFUSE else numbers | {"acceptance": None}


def numbers_of(draws: np.ndarray, info: dict[str, np.ndarray]) -> Numbers:
    """What the draws say, axes (chain, draw, coordinate), and what they cost."""
    found = measure_convergence(draws)
    return {
        "mean": draws.mean((0, 1), np.float64).tolist(),
        "std": draws.std((0, 1), np.float64).tolist(),
        "rhat": found.r_hat.tolist(),
        "ess": found.bulk_ess.tolist(),
        "num_gradients": int(info["num_gradients"].sum()),
        "acceptance": float(info["acceptance"].mean(dtype=np.float64)),
    }


class _Scene:
    """Collects what chains do, and shows it."""

    def __init__(self, target: Target, settings: Settings, stage: Stage):
        self._target, self._settings, self._stage = target, settings, stage
        self._truth, self._edges = target.truth, target.edges()
        self._draws = np.zeros((settings["chains"], 0, 2))
        self._gradients, self._acceptance = 0, 0.0
        self._never_refuses = settings["sampler"] in _NEVER_REFUSE

    def show_map(self) -> None:
        """Before the first step."""
        data = {"map": self._target.map(), "draws": self._draws, "moves": [], **self._judged()}
        self._stage.show(Frame(0, self._settings["steps"], "sample", data))

    def look(self, event: Event) -> None:
        """A chunk of steps."""
        info = event.info
        new = info["position"].astype(np.float64)
        self._draws = np.concatenate([self._draws, new], axis=1)
        self._gradients += int(info["num_gradients"].sum())
        self._acceptance += float(info["acceptance"].sum(dtype=np.float64))
        data = {"draws": new, "moves": self._moves(info), **self._judged()}
        self._stage.show(Frame(event.step, event.num_steps, "sample", data))

    def _moves(self, info: dict[str, np.ndarray]) -> list[dict[str, Any]]:
        num = info["acceptance"].shape[1]
        return [describe_move({name: info[name][0, i] for name in info}) for i in range(max(0, num - _MOST_MOVES), num)]

    def _judged(self) -> dict[str, Any]:
        draws, truth = self._draws, self._truth
        count = draws.shape[0] * draws.shape[1]
        histogram = []
        for i, edges in enumerate(self._edges):
            counts = np.histogram(draws[:, :, i], edges)[0] if count else np.zeros(len(edges) - 1)
            density = counts / max(count, 1) / np.diff(edges)
            histogram.append({"edges": edges, "density": density, "truth": truth.marginals[i]})
        enough = draws.shape[1] >= _LEAST_DRAWS
        found = measure_convergence(draws) if enough else None
        ess = None if found is None else found.bulk_ess
        diagnostics = {
            "num_draws": count,
            "num_gradients": self._gradients,
            "acceptance": self._acceptance / count if count and not self._never_refuses else None,
            "step_size": self._settings["step_size"],
            "mean": draws.mean((0, 1)) if count else [None, None],
            "std": draws.std((0, 1)) if count else [None, None],
            "true_mean": truth.mean,
            "true_std": truth.std,
            "rhat": None if found is None else found.r_hat,
            "ess": ess,
            "ess_per_gradient": None if ess is None else ess.min() / max(self._gradients, 1),
        }
        return {"histogram": histogram, "diagnostics": diagnostics}


def describe_move(move: dict[str, Any]) -> dict[str, Any]:
    """A move for the page: its path in order, and what became of it."""
    count, doublings = int(move["num_points"]), move["doublings"]
    path, energy = move["path"], move["energy"].astype(np.float64)
    result: dict[str, Any] = {
        "accepted": bool(move["accepted"]),
        "acceptance": float(move["acceptance"]),
        "end": move["position"],
        "divergent": bool(move["diverging"]),
    }
    if doublings.any():
        after, before = [], []  # depths of points after the start, and before it, from it outwards
        for depth, added in enumerate(doublings.tolist()):
            (after if added > 0 else before).extend([depth] * abs(added))
        half = (len(path) + 1) // 2
        order = [*range(half + len(before) - 1, half - 1, -1), 0, *range(1, len(after) + 1)]
        depths = [*reversed(before), -1, *after]
        return {"path": path[order], "energy": energy[order], "depth": depths, **result}
    if count == 0:
        return {"path": [], "energy": [], **result}
    return {"path": path[: count + 1], "energy": energy[: count + 1], **result}


def to_python(settings: Settings) -> str:
    """The text that gives the same draws."""
    target = TARGETS[settings["target"]]
    inner = expression(inner_of(settings))
    accepted = 'float(info["acceptance"].mean(dtype=np.float64))'
    if settings["sampler"] in _NEVER_REFUSE:
        accepted = "None"
    return program(
        [
            "import jax.numpy as jnp",
            "import numpy as np",
            "",
            "import marginax as mx",
            "from marginax.evaluate.convergence import measure_convergence",
            "from marginax.playground.labs.moves import FixedStep",
            "",
            "",
            *inspect.getsource(target.log_prob).rstrip().splitlines(),
            "",
            "",
            f"density = mx.Density({target.log_prob.__name__}, jnp.array({target.start!r}))",
            f"method = FixedStep({inner}, step_size={settings['step_size']!r}, num_samples={settings['steps']})",
            f"posterior = mx.fit(density, None, method, key={settings['seed']}, num_chains={settings['chains']})",
            "draws, info = np.asarray(posterior.params), posterior.sample_info",
            "found = measure_convergence(draws)",
            "numbers = {",
            '    "mean": draws.mean((0, 1), np.float64).tolist(),',
            '    "std": draws.std((0, 1), np.float64).tolist(),',
            '    "rhat": found.r_hat.tolist(),',
            '    "ess": found.bulk_ess.tolist(),',
            '    "num_gradients": int(info["num_gradients"].sum()),',
            f'    "acceptance": {accepted},',
            "}",
            "print(numbers)",
        ]
    )


PLAYABLE = Playable(LAB, run, to_python)
