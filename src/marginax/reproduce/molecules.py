"""Models of small molecules: autoencoders of SELFIES tokens, and the search for better molecules among their latents.

Molecules of QM9 with up to nine heavy atoms are rows of tokens (Krenn et al., 2020), entries of a categorical
likelihood given the latents: the decoder gives all tokens at once, so latents cannot be ignored in favour of the tokens
before. Training goes on in stages; with a small weight of the divergence molecules are kept better, with weight 1 the
bound is one of the density. Then a property of the decoded molecule is a black box over latents (Gomez-Bombarelli et
al., 2018): a Gaussian process says where to look next, by expected improvement, against draws from the prior.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

SETTINGS = {
    "small": {
        "num_train": 20_000,
        "num_valid": 1000,
        "num_test": 1000,
        "embedding_size": 16,
        "hidden": (256, 256),
        "latent_size": 32,
        "batch_size": 200,
        "stages": {  # epochs, learning rate, weight of the divergence; each model begins where the one before ended
            "beta 0.3": [(20, 1e-3, 0.3), (10, 3e-4, 0.3)],
            "beta 1": [(20, 1e-3, 1.0), (10, 3e-4, 1.0)],
        },
        "num_importance": 100,
        "num_generated": 2000,
        "properties": ("logP", "QED"),
        "num_seeds": 15,
        "num_initial": 20,
        "num_rounds": 5,
        "num_per_round": 20,
        "num_candidates": 2000,
    },
    "full": {
        "num_train": 110_831,
        "num_valid": 10_000,
        "num_test": 10_000,
        "embedding_size": 32,
        "hidden": (512, 512),
        "latent_size": 56,
        "batch_size": 200,
        "stages": {
            "beta 0.3": [(60, 1e-3, 0.3), (20, 3e-4, 0.3)],
            "beta 1": [(60, 1e-3, 1.0), (20, 3e-4, 1.0)],
        },
        "num_importance": 1000,
        "num_generated": 30_000,
        "properties": ("logP", "QED"),
        "num_seeds": 20,
        "num_initial": 50,
        "num_rounds": 20,
        "num_per_round": 20,
        "num_candidates": 5000,
    },
}

_MOST_ATOMS = 9  # besides hydrogen, as in QM9
_WORDS = {"logP": "logP (Wildman & Crippen)", "QED": "QED (Bickerton et al.)"}


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train, generate, reconstruct, search, draw."""
    settings, drawing = bench.settings, require("matplotlib.figure")  # what is missing is missed before, not after
    smiles, _ = mx.data.load_qm9()
    order = np.random.default_rng(0).permutation(len(smiles))
    ends = np.cumsum([settings["num_test"], settings["num_valid"], settings["num_train"]])
    test, valid, train = np.split(smiles[order[: ends[-1]]], ends[:-1])
    tokenizer = mx.data.SelfiesTokenizer.from_smiles([*train, *valid, *test])
    tokens = {name: tokenizer.encode(part) for name, part in (("train", train), ("valid", valid), ("test", test))}
    known = set(tokenizer.decode(tokens["train"]))
    rows, curves, posteriors, posterior = [], {}, {}, None
    for name in settings["stages"]:
        posterior, curves[name] = _trained(bench, name, tokenizer, tokens, posterior)
        posteriors[name] = posterior
        rows += _autoencoding(bench, name, posterior, tokenizer, tokens["test"], known, curves[name][-1][0])
    best = max(posteriors, key=lambda name: curves[name][-1][2])
    trajectories = {}
    for name in settings["properties"]:
        trajectories[name] = _searches(bench, name, posteriors[best], tokenizer)
        rows += _comparison(name, trajectories[name])
    num = settings["num_initial"] + settings["num_rounds"] * settings["num_per_round"]
    remarks = [
        f"{len(train)} molecules of QM9 for training, {len(valid)} for choosing, {len(test)} for the figures; "
        f"{tokenizer.num_tokens} tokens, {tokenizer.length} a molecule; {settings['latent_size']} latents.",
        "Curves of training are (seconds, epochs, share of validation molecules reconstructed, nats of one). Stages "
        "were chosen by molecules that are not those of the figures.",
        "Published for another data set, MOSES (valid, unique, novel): VAE 0.977, 0.998, 0.70; JT-VAE 1, 1, 0.91. Its "
        "molecules are larger: the figures are not to be compared.",
        f"Search: {num} evaluations of distinct molecules of at most {_MOST_ATOMS} heavy atoms, the first "
        f"{settings['num_initial']} the same for all ways; {settings['num_seeds']} seeds; latents of {best}, which "
        "reconstructs more of the validation molecules. Gains are those of 'expected improvement', seed by seed. "
        "'near the best' makes candidates as it does, and takes them in any order, without a Gaussian process. The "
        "search was not tuned.",
    ]
    curves |= {f"search for {name}": found for name, found in trajectories.items()}
    figure = _picture(drawing, posteriors[best], tokenizer, tokens["test"], trajectories, settings)
    return rows, remarks, curves, figure


# ---- the autoencoder


def _model(bench: Workbench, tokenizer: mx.data.SelfiesTokenizer, beta: float) -> mx.latent.VAE:
    """Embedded tokens through a network to latents, and through another to logits of all tokens."""
    settings, num, length = bench.settings, tokenizer.num_tokens, tokenizer.length
    size, latent_size = settings["embedding_size"], settings["latent_size"]
    reader = mx.nets.MLP(size * length, settings["hidden"], 2 * latent_size, key=0)
    encoder = eqx.nn.Sequential([mx.nets.Embedding(num, size, key=2), eqx.nn.Lambda(jnp.ravel), reader])
    decoder = mx.nets.MLP(latent_size, settings["hidden"], num * length, key=1)
    parts = {"likelihood": mx.likelihoods.Categorical(), "prior": mx.priors.Normal(1.0)}
    return mx.latent.VAE(encoder, decoder, latent_size, bound=mx.latent.ELBO(beta=beta), **parts)


def _trained(
    bench: Workbench, name: str, tokenizer: mx.data.SelfiesTokenizer, tokens: dict[str, np.ndarray], posterior: Any
) -> tuple[Any, list[list[float]]]:
    """A model after its stages, and what validation molecules said after each."""
    curve, seconds, epochs = [], 0.0, 0.0
    for stage, (num_epochs, learning_rate, beta) in enumerate(bench.settings["stages"][name]):
        adam = mx.infer.Adam(learning_rate, schedule=mx.infer.Constant())
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=bench.settings["batch_size"], optimiser=adam)
        label, model = f"{name} stage {stage}", _model(bench, tokenizer, beta)
        posterior = bench.fit(label, model, tokens["train"], method, key=stage, init=posterior)
        seconds, epochs = seconds + bench.seconds(posterior), epochs + float(num_epochs)
        curve.append([seconds, epochs, *bench.measure(label, lambda p=posterior: _validation(p, tokens["valid"]))])
    return posterior, curve


def _validation(posterior: Any, tokens: np.ndarray) -> list[float]:
    same = np.all(posterior.reconstruct(tokens) == tokens, axis=1).mean()
    return [float(same), -posterior.log_likelihood(tokens, num_importance=100, key=0).mean]


def _autoencoding(
    bench: Workbench,
    name: str,
    posterior: Any,
    tokenizer: mx.data.SelfiesTokenizer,
    tokens: np.ndarray,
    known: set[str | None],
    seconds: float,
) -> list[Row]:
    """How much of molecules is kept, how probable they are, and what molecules come out of the prior."""

    def measure() -> dict[str, Any]:
        same = posterior.reconstruct(tokens) == tokens
        nll = posterior.log_likelihood(tokens, num_importance=bench.settings["num_importance"], key=1)
        made = tokenizer.decode(posterior.generate(bench.settings["num_generated"], key=0).astype(int))
        valid = [text for text in made if text is not None]
        new = [text not in known for text in set(valid)]
        return {
            "molecules reconstructed": _share(same.all(1)),
            "tokens reconstructed": _share(np.sum(same & (tokens > 0), 1) / np.sum(tokens > 0, 1)),  # without padding
            "nats of a molecule": [-nll.mean, float(nll.values.std(ddof=1) / np.sqrt(len(tokens)))],
            "valid": _share(np.array([text is not None for text in made])),
            "unique": [len(set(valid)) / max(len(valid), 1), None],
            "novel": _share(np.array(new or [False])),
        }

    found = bench.measure(f"{name} test", measure)
    return [
        Row(f"{name}: {what}", *value, lower_is_better=what.startswith("nats"), seconds=seconds)
        for what, value in found.items()
    ]


def _share(values: np.ndarray) -> list[float]:
    return [float(values.mean()), float(values.std() / np.sqrt(len(values)))]


# ---- the search


def _searches(bench: Workbench, name: str, posterior: Any, tokenizer: mx.data.SelfiesTokenizer) -> dict[str, Any]:
    """The best value so far after each evaluation, of every way and seed."""
    found: dict[str, Any] = {way: [] for way in _WAYS}
    for seed in range(bench.settings["num_seeds"]):
        for way, suggest in _WAYS.items():
            arguments = posterior, tokenizer, _PROPERTIES[name], suggest, bench.settings, seed
            label = f"search for {name}, {way}, seed {seed}"
            found[way].append(bench.measure(label, lambda given=arguments: _search(*given)))
    return found


def _search(
    posterior: Any,
    tokenizer: mx.data.SelfiesTokenizer,
    score: Callable[[str], float],
    suggest: Callable[..., np.ndarray],
    settings: Any,
    seed: int,
) -> list[float]:
    """Evaluate molecules at drawn latents first, then at suggested ones; no molecule twice."""
    rng = np.random.default_rng(seed)
    z, values, seen = np.zeros((0, settings["latent_size"])), np.zeros(0), set()
    for size in (settings["num_initial"], *[settings["num_per_round"]] * settings["num_rounds"]):
        num = len(values) + size
        while len(values) < num:
            drawn = rng.normal(size=(settings["num_candidates"], settings["latent_size"]))
            candidates = drawn if len(values) < settings["num_initial"] else suggest(z, values, drawn, rng)
            for start in range(0, len(candidates), 50):
                block = candidates[start : start + 50]
                for latents, text in zip(block, tokenizer.decode(posterior.decode(block).astype(int)), strict=True):
                    if len(values) < num and text is not None and text not in seen and _is_small(text):
                        seen.add(text)
                        z, values = np.vstack([z, latents]), np.append(values, score(text))
                if len(values) == num:
                    break
    return np.maximum.accumulate(values).tolist()


def _anywhere(z: np.ndarray, values: np.ndarray, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws from the prior."""
    return drawn


def _near_the_best(z: np.ndarray, values: np.ndarray, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws from the prior, half of them moved to near the ten best so far, in any order."""
    near = z[rng.choice(np.argsort(values)[-10:], size=len(drawn) // 2)]
    return rng.permutation(np.concatenate([drawn[len(near) :], near + 0.5 * drawn[: len(near)]]))


def _where_most_is_expected(
    z: np.ndarray, values: np.ndarray, drawn: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The same, those first where a Gaussian process expects the largest improvement."""
    candidates = _near_the_best(z, values, drawn, rng)
    adam = mx.infer.Adam(0.05, schedule=mx.infer.Constant())
    method = mx.infer.MAP(num_epochs=150, batch_size=None, optimiser=adam)
    process = mx.GaussianProcess(mx.data.standardise((z, values)))
    prediction: Any = mx.fit(process, None, method, key=0, progress=False).predict(candidates)
    gain = mx.decide.expected_improvement(prediction.mean, np.sqrt(prediction.epistemic), float(values.max()))
    return candidates[np.argsort(-gain)]


_WAYS = {
    "expected improvement": _where_most_is_expected,
    "near the best": _near_the_best,
    "random search": _anywhere,
}


def _is_small(text: str) -> bool:
    return mx.data.read_molecule(text).GetNumAtoms() <= _MOST_ATOMS


_PROPERTIES: dict[str, Callable[[str], float]] = {
    "logP": lambda text: float(require("rdkit.Chem.Crippen").MolLogP(mx.data.read_molecule(text))),
    "QED": lambda text: float(require("rdkit.Chem.QED").qed(mx.data.read_molecule(text))),
}


def _comparison(name: str, found: dict[str, Any]) -> list[Row]:
    """The best value at the end, of each way and by how much the process is better, over seeds."""
    ends = {way: np.array(each)[:, -1] for way, each in found.items()}
    first, *others = ends
    ends |= {f"gain over {other}": ends[first] - ends[other] for other in others}
    return [
        Row(
            f"best {name}: {way}",
            float(value.mean()),
            float(value.std(ddof=1) / np.sqrt(len(value))) if len(value) > 1 else None,
            lower_is_better=False,
        )
        for way, value in ends.items()
    ]


# ---- the picture


def _picture(
    drawing: Any,
    posterior: Any,
    tokenizer: mx.data.SelfiesTokenizer,
    tokens: np.ndarray,
    trajectories: dict[str, Any],
    settings: Any,
) -> Any:
    """The neighbourhood of a molecule, molecules out of the prior, and the way of every search."""
    figure = drawing.Figure(figsize=(12, 10), layout="constrained")
    axes = figure.subplots(2, 2)
    rng = np.random.default_rng(0)
    plane = np.linalg.qr(rng.normal(size=(settings["latent_size"], 2)))[0].T  # two directions at right angles
    steps = np.linspace(-3, 3, 5)
    centre = posterior.encode(tokens[:1]).mean
    around = centre + np.stack(np.meshgrid(steps, steps, indexing="ij"), -1).reshape(-1, 2) @ plane
    _show(axes[0, 0], tokenizer.decode(posterior.decode(around).astype(int)), "a test molecule (middle), and around it")
    made = tokenizer.decode(posterior.generate(25, key=1).astype(int))
    _show(axes[0, 1], made, "molecules out of the prior")
    for ax, (name, found) in zip(axes[1], trajectories.items(), strict=False):
        for way, curves in found.items():
            values = np.array(curves)
            steps = np.arange(1, values.shape[1] + 1)
            line = ax.plot(steps, values.mean(0), label=way)[0]
            ax.plot(steps, values.T, color=line.get_color(), alpha=0.3, linewidth=0.8)
        ax.axvline(settings["num_initial"], color="0.7", linewidth=0.8)
        ax.set(xlabel="evaluations", ylabel=f"best {_WORDS[name]}", title=f"search for {name} among latents")
        ax.legend(frameon=False)
    return figure


def _show(ax: Any, smiles: list[str | None], title: str, columns: int = 5) -> None:
    """Molecules in a grid, drawn, or written where RDKit cannot draw on this machine."""
    try:
        draw = require("rdkit.Chem.Draw")
    except ImportError:  # a library of the system that drawing needs
        for i, text in enumerate(smiles):
            place = ((i % columns + 0.5) / columns, 1 - (i // columns + 0.5) * columns / len(smiles))
            ax.text(*place, text or "-", ha="center", va="center", fontsize=6, transform=ax.transAxes)
    else:
        molecules = [mx.data.read_molecule(text or "") for text in smiles]
        ax.imshow(draw.MolsToGridImage(molecules, molsPerRow=columns, subImgSize=(220, 180)))
    ax.set(title=title, xticks=[], yticks=[])


EXPERIMENT = Experiment("molecules", "Models of small molecules", SETTINGS, run)
