"""More drawings of a character that was never seen: a neural statistician (Edwards & Storkey, 2017).

Characters of training, validation and testing are different ones. Sets of one to five drawings of training characters,
and of those turned by 90, 180 and 270 degrees as characters of their own, are drawn anew for each stage of training;
the stage is taken that gives the highest predictive density to a sixth drawing of validation characters. Of a test
character the first five drawings may be given; twelve others teach a judge, a small convolutional network, all test
characters; three are left to see how good the judge is. It then says of what character generated drawings are.
"""

from typing import Any

import numpy as np

import marginax as mx
from marginax._extras import require
from marginax.reproduce.experiment import Experiment, Row, Workbench

_NUM_GIVEN, _JUDGE, _LEFT = 5, slice(5, 17), slice(17, 20)
_SPLITS = {"train": 664, "valid": 100, "test": 200}

SMALL = {
    "characters": "omniglot",
    "num_characters": _SPLITS,
    "hidden": (300, 300),
    "width": 128,
    "context_size": 32,
    "latent_size": 8,
    "sets_per_character": 2,
    "stages": [(10, 1e-3), (10, 1e-3), (10, 1e-3), (8, 3e-4)],  # epochs, learning rate
    "batch_size": 64,
    "judge_epochs": 40,
    "num_generated": 20,
    "episodes": {5: 200, 20: 50},
    "num_importance": 20,
}
FULL = SMALL | {
    "hidden": (500, 500, 500),
    "width": 256,
    "context_size": 64,
    "latent_size": 16,
    "sets_per_character": 4,
    "stages": [(20, 1e-3)] * 8 + [(20, 3e-4)] * 4 + [(20, 1e-4)] * 2,
    "judge_epochs": 100,
    "num_generated": 50,
    "episodes": {5: 2000, 20: 500},
    "num_importance": 100,
}


def _characters(bench: Workbench) -> dict[str, np.ndarray]:
    """Binary drawings (character, 20, 784) by split."""
    sizes = bench.settings["num_characters"]
    if bench.settings["characters"] == "omniglot":
        found = {split: mx.data.load_omniglot(split)[: sizes[split]] for split in _SPLITS}
    else:
        images = mx.testing.invented_characters(sum(sizes.values()), key=0)
        parts = np.split(images, np.cumsum([sizes[split] for split in _SPLITS])[:-1])
        found = dict(zip(_SPLITS, parts, strict=True))
    turned = [np.rot90(found["train"], times, axes=(2, 3)) for times in range(4)]
    found["train"] = np.concatenate(turned)
    return {split: (images > 0.5).reshape(*images.shape[:2], 784).astype(np.float32) for split, images in found.items()}


def _sets(characters: np.ndarray, num: int, seed: int) -> dict[str, np.ndarray]:
    """One to five drawings, `num` times of each character."""
    rng = np.random.default_rng(seed)
    tiled = np.tile(np.arange(20), (num * len(characters), 1))
    chosen = rng.permuted(tiled, axis=1)[:, :_NUM_GIVEN]
    x = characters[np.tile(np.arange(len(characters)), num)[:, None], chosen]
    return {"x": x.astype(np.int32), "mask": np.arange(_NUM_GIVEN) < rng.integers(1, _NUM_GIVEN + 1, (len(x), 1))}


def _model(bench: Workbench) -> mx.latent.NeuralStatistician:
    settings = bench.settings
    hidden, width = settings["hidden"], settings["width"]
    context, latent = settings["context_size"], settings["latent_size"]
    return mx.latent.NeuralStatistician(
        mx.nets.MLP(784, hidden, width, key=0),
        mx.nets.MLP(width + 1, hidden[:1], 2 * context, key=1),
        mx.nets.MLP(width + context, hidden[:1], 2 * latent, key=2),
        mx.nets.MLP(context, hidden[:1], 2 * latent, key=3),
        mx.nets.MLP(latent + context, hidden, 784, key=4),
        context_size=context,
        latent_size=latent,
        prior=mx.priors.Normal(1.0),
    )


def _trained(bench: Workbench, characters: dict[str, np.ndarray]) -> tuple[Any, list[list[float]]]:
    """The best stage, and seconds, epochs and nats per sixth drawing of validation characters after each."""
    settings, valid, found = bench.settings, characters["valid"], []
    posterior, seconds, epochs = None, 0.0, 0
    for stage, (num_epochs, learning_rate) in enumerate(settings["stages"]):
        adam = mx.infer.Adam(learning_rate, schedule=mx.infer.Constant())
        method = mx.infer.MAP(num_epochs=num_epochs, batch_size=settings["batch_size"], optimiser=adam)
        data = _sets(characters["train"], settings["sets_per_character"], stage)
        posterior = bench.fit(f"stage {stage}", _model(bench), data, method, key=stage, init=posterior)
        seconds, epochs = seconds + bench.seconds(posterior), epochs + num_epochs

        def nats(posterior: Any = posterior) -> float:
            estimate = posterior.log_predictive(valid[:, 5], valid[:, :5], settings["num_importance"], key=0)
            return -estimate.mean

        found.append((posterior, [seconds, float(epochs), bench.measure(f"stage {stage}", nats)]))
    return min(found, key=lambda pair: pair[1][2])[0], [entry for _, entry in found]


def _judge(bench: Workbench, test: np.ndarray) -> Any:
    """A classifier of all test characters, from drawings that are neither given nor left."""
    num = len(test)
    net = mx.nets.LeNet(channels=(16, 32), hidden=128, out_size=num, key=0)
    x, y = test[:, _JUDGE].reshape(-1, 1, 28, 28), np.repeat(np.arange(num), 12)
    adam = mx.infer.Adam(1e-3)
    method = mx.infer.MAP(num_epochs=bench.settings["judge_epochs"], batch_size=64, optimiser=adam)
    model = mx.Model(net, likelihood=mx.likelihoods.Categorical(), prior=mx.priors.Normal(1.0))
    return bench.fit("judge", model, (x, y), method, key=0)


def _shares(judge: Any, test: np.ndarray, drawings: np.ndarray) -> dict[str, list[float]]:
    """Of each character, the share of drawings (character, drawing, 784) that are classified as it, by two judges."""
    num, flat = drawings.shape[:2], (drawings > 0.5).astype(np.float32).reshape(-1, 784)
    known = test[:, _JUDGE].reshape(-1, 784)
    labels = {
        "network": judge.predict(flat.reshape(-1, 1, 28, 28)).labels,
        "nearest": _nearest(flat, known) // 12,
    }
    return {
        name: (np.asarray(of).reshape(num) == np.arange(len(test))[:, None]).mean(1).tolist()
        for name, of in labels.items()
    }


def _nearest(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of the known drawings differs in the fewest pixels."""
    return (np.sum(known**2, 1) - 2 * x @ known.T).argmin(1)


def _most_similar(train: np.ndarray, given: np.ndarray, num: int) -> np.ndarray:
    """Drawings of the known character that has the drawing nearest to one of those given, (character, num, 784)."""
    flat, known = given.reshape(-1, 784), train.reshape(-1, 784)
    nearest = _nearest(flat, known)
    apart = np.sum((flat - known[nearest]) ** 2, 1).reshape(given.shape[:2])
    best = nearest.reshape(given.shape[:2])[np.arange(len(given)), apart.argmin(1)] // 20
    chosen = np.random.default_rng(0).integers(20, size=(len(given), num))
    return train[best[:, None], chosen]


def _one_shot(
    posterior: Any, test: np.ndarray, ways: int, episodes: int, num_importance: int
) -> dict[str, list[float]]:
    """Accuracy of each episode: one drawing of each of some characters is given, another of each is classified."""
    rng, found = np.random.default_rng(ways), {"likelihood": [], "divergence": [], "pixels": []}
    for episode in range(episodes):
        chosen = rng.choice(len(test), ways, replace=False)
        pair = np.stack([rng.choice(20, 2, replace=False) for _ in chosen])
        given, asked = (test[chosen, pair[:, i]] for i in (0, 1))
        probs = posterior.classify(asked, given[:, None], num_importance, key=episode)
        divergences = posterior.context_divergences(asked, given[:, None])
        answers = {"likelihood": probs.argmax(1), "divergence": divergences.argmin(1), "pixels": _nearest(asked, given)}
        for name, answer in answers.items():
            found[name].append(float(np.mean(answer == np.arange(ways))))
    return found


def _row(what: str, values: list[float], *, seconds: float) -> Row:
    """In percent, with the standard error over characters or episodes."""
    error = 100 * float(np.std(values, ddof=1) / np.sqrt(len(values)))
    mean = 100 * float(np.mean(values))
    return Row(what, mean, error, lower_is_better=False, seconds=seconds)


def run(bench: Workbench) -> tuple[list[Row], list[str], dict[str, Any], Any]:
    """Train, draw, judge."""
    settings, drawing = bench.settings, require("matplotlib.figure")
    characters = _characters(bench)
    train, test, num = characters["train"], characters["test"], settings["num_generated"]
    posterior, curve = _trained(bench, characters)
    judge, seconds = _judge(bench, test), curve[-1][0]
    sources = {
        "from 5 given": lambda: posterior.generate_like(test[:, :5], num, key=1),
        "from 1 given": lambda: posterior.generate_like(test[:, :1], num, key=2),
        "copied, 5 given": lambda: _most_similar(train, test[:, :5], num),
        "copied, 1 given": lambda: _most_similar(train, test[:, :1], num),
        "from none given": lambda: posterior.generate(len(test), num, key=3),
        "held out": lambda: test[:, _LEFT],
    }
    rows = []
    for name, make in sources.items():
        shares = bench.measure(f"drawings {name}", lambda make=make: _shares(judge, test, make()))
        for which, word in (("network", "judge"), ("nearest", "nearest neighbour")):
            rows.append(_row(f"{name}: % by {word}", shares[which], seconds=seconds))
    for ways, episodes in settings["episodes"].items():
        more = (ways, episodes, settings["num_importance"])
        found = bench.measure(f"one-shot {ways}", lambda more=more: _one_shot(posterior, test, *more))
        for name, values in found.items():
            rows.append(_row(f"one-shot, {ways} ways: % by {name}", values, seconds=seconds))
    return rows, _remarks(settings, characters), {"training": curve}, _picture(drawing, posterior, test)


def _remarks(settings: Any, characters: dict[str, np.ndarray]) -> list[str]:
    counts = {split: len(images) for split, images in characters.items()}
    kind = "Omniglot" if settings["characters"] == "omniglot" else "Invented characters, not handwriting:"
    return [
        f"{kind} {counts['train'] // 4} training characters in four orientations, {counts['valid']} validation and "
        f"{counts['test']} test characters; all different. Drawings are binary; generated means are cut at 0.5.",
        f"Chance is {100 / counts['test']:.2f} %. Drawings 1-5 of a test character are given, 6-17 teach both judges, "
        "18-20 are held out; copied ones are of the most similar training character. Standard errors are over "
        "characters, those of one-shot over episodes.",
        "The stage with the highest predictive density of validation characters was taken. Sizes and stages were "
        "chosen on validation characters of the invented kind, between two settings, before test characters were seen.",
        "By likelihood is by importance-sampled log p(asked | given); by divergence is the paper's rule, "
        "KL(q(c | given) || q(c | asked)); by pixels is the nearest of the given drawings.",
        "Curves are (seconds, epochs, nats per sixth drawing of validation characters given five).",
    ]


def _picture(drawing: Any, posterior: Any, test: np.ndarray) -> Any:
    """Rows of given drawings, and of those that were made from all and from the first of them."""
    shown, many = min(10, len(test)), 8
    five = posterior.generate_like(test[:shown, :5], many, key=4)
    one = posterior.generate_like(test[:shown, :1], many, key=5)
    figure = drawing.Figure(figsize=(11, 0.52 * shown + 0.6), layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=(5, many, many))
    titles = ("given, of unseen characters", "made from all five", "made from the first alone")
    for ax, images, title in zip(axes, (test[:shown, :5], five, one), titles, strict=True):
        rows, columns = images.shape[:2]
        tiles = images.reshape(rows, columns, 28, 28).transpose(0, 2, 1, 3).reshape(28 * rows, 28 * columns)
        ax.imshow(tiles, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        ax.set(title=title, xticks=[], yticks=[])
    return figure


EXPERIMENT = Experiment(
    "one-shot", "More drawings of characters that were never seen (Omniglot)", {"small": SMALL, "full": FULL}, run
)
