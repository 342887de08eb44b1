"""A latent space of digits: two numbers to a digit and back, by a variational autoencoder that is trained here."""

import functools
from typing import Any

import numpy as np

from marginax import infer
from marginax.data import load_mnist
from marginax.infer import AbstractMethod, Event, fit
from marginax.latent import VAE
from marginax.nets import MLP
from marginax.playground.labs.streaming import hooks_for
from marginax.playground.labs.text import array, expression, program
from marginax.playground.playable import Frame, Numbers, Playable, Settings, Stage
from marginax.playground.protocol import Choice, Lab, ProtocolError, Setting

_NUM_TRAINING, _NUM_CODES, _NUM_ANSWERS, _NUM_HIDDEN, _PIXELS = 6000, 400, 8, 200, 784
_DIGIT = {"task": ("encode", "complete")}
LAB = Lab(
    "latent",
    "Latent space",
    "Digits in the plane: move in it, draw a digit and see where it lies, erase a part and see what it may have been.",
    (
        Setting(
            "task",
            "Task",
            "choice",
            "decode",
            choices=(
                Choice("decode", "a place to a digit"),
                Choice("encode", "a digit to its place"),
                Choice("complete", "several completions"),
            ),
        ),
        Setting("z", "Place", "numbers", [0.0, 0.0], least=-5, most=5, max_length=2, when={"task": ("decode",)}),
        Setting(
            "digit",
            "Digit",
            "numbers",
            [],
            "784 pixels by rows; none: one of the data",
            most=1,
            max_length=_PIXELS,
            when=_DIGIT,
        ),
        Setting(
            "erased",
            "Erased",
            "numbers",
            [],
            "784 by rows, 1 where nothing is seen; none: the lower half",
            most=1,
            max_length=_PIXELS,
            when={"task": ("complete",)},
        ),
        Setting("budget", "Budget", "number", 1.0, "a factor of all steps", least=0.02, most=8.0, log=True),
        Setting("seed", "Seed", "integer", 0, least=0, most=9999),
    ),
)


def check(settings: Settings) -> None:
    """Whole digits."""
    if len(settings["z"]) != 2:
        raise ProtocolError(f"settings: z must be 2 numbers, got {len(settings['z'])}")
    for name in ("digit", "erased"):
        if len(settings[name]) not in (0, _PIXELS):
            raise ProtocolError(f"settings: {name} must be {_PIXELS} numbers or none, got {len(settings[name])}")
    if settings["erased"] and all(settings["erased"]):
        raise ProtocolError("settings: erased must leave something to be seen")


@functools.cache
def digits(split: str, num: int) -> tuple[np.ndarray, np.ndarray]:
    """The first digits of a split as rows of pixels, and their labels."""
    try:
        images, labels = load_mnist(split)
    except Exception as error:  # there may be no network, or a file may be damaged
        text = "the digits are not on this machine and cannot be fetched: set MARGINAX_DATA to a folder with mnist/"
        raise FileNotFoundError(f"{text} ({error})") from error
    return np.asarray(images[:num]).reshape(-1, _PIXELS).round(3).astype(np.float32), np.asarray(labels[:num])


def model_of(seed: int) -> VAE:
    """Encoder and decoder with one hidden layer."""
    encoder = MLP(_PIXELS, (_NUM_HIDDEN,), 4, key=seed)
    return VAE(encoder, MLP(2, (_NUM_HIDDEN,), _PIXELS, key=seed + 1), latent_size=2)


def method_of(settings: Settings) -> AbstractMethod:
    """A point estimate: the uncertainty that is shown is that of latents and pixels."""
    return infer.MAP(num_epochs=max(1, round(20 * settings["budget"])), batch_size=100)


_trained: dict[tuple[int, float], Any] = {}
_MOST_TRAINED = 4


def run(settings: Settings, stage: Stage) -> Numbers:
    """Train, unless that was done already, and answer."""
    x, _ = digits("train", _NUM_TRAINING)
    shown, labels = digits("test", _NUM_CODES)
    method, at = method_of(settings), (settings["seed"], settings["budget"])

    def show(phase: str, step: int, of: int, posterior: Any, *, last: bool) -> Numbers:
        task = settings["task"] if last or settings["task"] == "decode" else "encode"
        found = answer(posterior, {**settings, "task": task})
        codes = np.column_stack([posterior.encode(shown).mean, labels])
        stage.show(Frame(step, of, phase, {"task": task, **found, "codes": codes}))
        return found

    def look(event: Event) -> None:
        posterior = method.posterior(event.model, event.states, None, {})
        show(event.phase, event.step, event.num_steps, posterior, last=False)

    if at not in _trained:
        hooks = hooks_for(method, len(x), look, stage.alive)
        posterior = fit(model_of(settings["seed"]), x, method, key=settings["seed"], hooks=hooks, progress=False)
        while len(_trained) >= _MOST_TRAINED:
            _trained.pop(next(iter(_trained)))
        _trained[at] = posterior
    found = show("posterior", 1, 1, _trained[at], last=True)
    names = ("mean", "std") if settings["task"] == "decode" else ("mean", "std", "z", "z_std")
    return {name: np.asarray(found[name], float).tolist() for name in names}


def answer(posterior: Any, settings: Settings) -> dict[str, Any]:
    """Of the task."""
    if settings["task"] == "decode":
        mean = posterior.decode(np.array([settings["z"]]))[0]
        return {"z": settings["z"], "mean": mean, "std": np.sqrt(mean * (1 - mean))}
    digit = digit_of(settings)
    code = posterior.encode(digit)
    place = {"z": code.mean[0], "z_std": code.scale[0], "digit": digit[0]}
    if settings["task"] == "encode":
        mean = posterior.reconstruct(digit)[0]
        return {**place, "mean": mean, "std": np.sqrt(mean * (1 - mean))}
    seen = mask_of(settings)
    found = posterior.complete(digit, seen, _NUM_ANSWERS, key=settings["seed"])
    return {
        **place,
        "erased": 1 - seen[0].astype(int),
        "completions": found.values[:, 0],
        "mean": found.mean[0],
        "std": found.std[0],
    }


def digit_of(settings: Settings) -> np.ndarray:
    """The person's, or the first of the test set; with one row."""
    if settings["digit"]:
        return np.array([settings["digit"]], np.float32)
    return digits("test", _NUM_CODES)[0][:1]


def mask_of(settings: Settings) -> np.ndarray:
    """What is seen: what was not erased, or the upper half."""
    if settings["erased"]:
        return np.array([settings["erased"]]) < 0.5
    return (np.arange(_PIXELS) < _PIXELS // 2)[None]


def to_python(settings: Settings) -> str:
    """The text that gives the same digits."""
    seed = settings["seed"]
    lines = [
        "import numpy as np",
        "",
        "import marginax as mx",
        "",
        f"images = mx.data.load_mnist()[0][:{_NUM_TRAINING}]",
        f"x = np.asarray(images).reshape(-1, {_PIXELS}).round(3).astype(np.float32)",
        f"encoder = mx.nets.MLP({_PIXELS}, ({_NUM_HIDDEN},), 4, key={seed})",
        f"decoder = mx.nets.MLP(2, ({_NUM_HIDDEN},), {_PIXELS}, key={seed + 1})",
        "model = mx.latent.VAE(encoder, decoder, latent_size=2)",
        f"vae = mx.fit(model, x, {expression(method_of(settings))}, key={seed})",
    ]
    if settings["task"] == "decode":
        lines += [f"mean = vae.decode({array([settings['z']])})[0]", "std = np.sqrt(mean * (1 - mean))"]
        return program([*lines, 'numbers = {"mean": mean.tolist(), "std": std.tolist()}', "print(numbers)"])
    if settings["digit"]:
        lines += [f"digit = {array([settings['digit']])}.astype(np.float32)"]
    else:
        lines += [
            'first = np.asarray(mx.data.load_mnist("test")[0][:1])',
            f"digit = first.reshape(-1, {_PIXELS}).round(3).astype(np.float32)",
        ]
    lines += ["code = vae.encode(digit)"]
    if settings["task"] == "encode":
        lines += ["mean = vae.reconstruct(digit)[0]", "std = np.sqrt(mean * (1 - mean))"]
    else:
        seen = f"{array(mask_of(settings).astype(int))} == 1" if settings["erased"] else ""
        lines += [
            f"seen = {seen or f'(np.arange({_PIXELS}) < {_PIXELS // 2})[None]'}",
            f"found = vae.complete(digit, seen, {_NUM_ANSWERS}, key={seed})",
            "mean, std = found.mean[0], found.std[0]",
        ]
    lines += [
        "numbers = {",
        '    "mean": np.asarray(mean, float).tolist(),',
        '    "std": np.asarray(std, float).tolist(),',
        '    "z": np.asarray(code.mean[0], float).tolist(),',
        '    "z_std": np.asarray(code.scale[0], float).tolist(),',
        "}",
        "print(numbers)",
    ]
    return program(lines)


PLAYABLE = Playable(LAB, run, to_python, check)
