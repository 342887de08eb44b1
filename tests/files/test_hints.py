"""What a forger writes with valid hashes is refused in a sentence, where files become objects."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Float
from tests.faults.calls import copy_states
from tests.faults.work import works

import marginax as mx
from marginax.files import FileError, decode, encode, store
from marginax.files.hints import LEFT_OUT, check_document, fits
from marginax.infer import MALA

FITTING = [
    (3, int),
    (3, float),
    (True, bool),
    (None, int | None),
    (jnp.ones(3), float),
    (np.float32(2.0), float),
    ((1, 2), tuple[int, ...]),
    ({"a": 1.5}, dict[str, float]),
    ([1, 2], list[int]),
    (LEFT_OUT, mx.Model),
    (np.ones(2), Float[np.ndarray, " k"]),
    (jnp.ones((4, 2)), Float[jnp.ndarray, " k"]),
    (jnp.tanh, Callable[..., int]),
]
WRONG = [
    ("3", int),
    (1.5, int),
    (2, bool),
    (None, int),
    ([1, 2], tuple[int, ...]),
    ((1, "2"), tuple[int, ...]),
    ({"a": None}, dict[str, float]),
    ({1: 1.5}, dict[str, float]),
    ("text", mx.Model),
    ("text", jnp.ndarray),
    (3, np.ndarray),
    (np.ones((2, 2)), Float[np.ndarray, " k"]),
    (np.ones(2, int), Float[np.ndarray, " k"]),
    (jnp.ones(3), int),
    (2**70, str),
]


@pytest.mark.parametrize(("value", "hint"), FITTING)
def test_what_the_code_writes_fits(value, hint):
    assert fits(value, hint)


@pytest.mark.parametrize(("value", "hint"), WRONG)
def test_what_it_never_writes_does_not(value, hint):
    assert not fits(value, hint)


def test_a_missing_entry_is_named_with_its_value():
    with pytest.raises(FileError, match="'step' of the checkpoint cannot be None"):
        check_document({"phase": 1}, {"phase": int, "step": int, "stopped": bool | None}, "the checkpoint")


@pytest.mark.parametrize(("field", "value"), [("num_samples", "many"), ("thin", None), ("num_warmup", 1.5)])
def test_an_object_with_a_field_of_a_wrong_type_is_not_built(field, value):
    document, arrays = encode(MALA(num_warmup=8, num_samples=4))
    document["fields"][field] = value
    with pytest.raises(FileError, match=f"field '{field}' of MALA cannot be"):
        decode(document, arrays)


def test_an_object_that_its_constructor_would_refuse_is_not_built():
    document, arrays = encode(MALA(num_warmup=8, num_samples=4))
    document["fields"]["thin"] = 0
    with pytest.raises(FileError, match="not a MALA: thin must be an int >= 1, got 0"):
        decode(document, arrays)


def forge(manifest: Path, change) -> None:
    """Another document, with a valid hash."""
    whole = json.loads(manifest.read_bytes())
    change(whole["document"])
    files = {name: (entry["sha256"], entry["size"]) for name, entry in whole["files"].items()}
    manifest.write_bytes(store._manifest(whole["kind"], json.dumps(whole["document"]), files))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run as a kill in the middle leaves it, with a setup and two checkpoints."""
    states = copy_states(works()["mala"], tmp_path_factory.mktemp("states"))
    return states[4 * len(states) // 5]


CURSORS = [{"phase": 99}, {"phase": "1"}, {"step": -1}, {"step": None}, {"num_steps": {"warmup": 3}}, {"notes": 3}]


@pytest.mark.parametrize("cursor", CURSORS, ids=str)
def test_a_forged_checkpoint_is_refused_in_a_sentence(interrupted, tmp_path, cursor):
    """Phase 99 ended in KeyboardInterrupt, the others in errors of Python."""
    run = shutil.copytree(interrupted, tmp_path / "run")
    for manifest in run.glob("checkpoint-*/manifest.json"):
        forge(manifest, lambda document: document["cursor"].update(cursor))
    with pytest.raises(FileError, match="not what marginax writes") as caught:
        mx.resume(run, progress=False)
    assert str(run) in str(caught.value)
    assert "\n" not in str(caught.value)


PARTS = [("num_chains", "two"), ("num_chains", 0), ("hooks", None), ("key", 3), ("start", [None]), ("source", {})]


@pytest.mark.parametrize(("part", "value"), PARTS)
def test_a_forged_setup_is_refused_in_a_sentence(interrupted, tmp_path, part, value):
    run = shutil.copytree(interrupted, tmp_path / "run")
    forge(run / "setup" / "manifest.json", lambda document: document[part].update(stored=value))
    with pytest.raises(FileError) as caught:
        mx.resume(run, progress=False)
    assert str(run) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_forged_weights_that_cannot_be_computed_with_end_in_a_sentence(interrupted, tmp_path):
    """The name of another array, of another shape, where the type is right: what fails then is the first step."""
    run = shutil.copytree(interrupted, tmp_path / "run")

    def swap(document):
        first, second = (leaf for leaf in document["start"]["stored"][:2])
        first["name"], second["name"] = second["name"], first["name"]

    forge(run / "setup" / "manifest.json", swap)
    with pytest.raises(FileError) as caught:
        mx.resume(run, progress=False)
    assert str(run) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "place", [lambda p: p.params.likelihood["log_scale"], lambda p: p.params], ids=["noise", "all"]
)
def test_forged_draws_are_refused_in_a_sentence(tmp_path, place):
    """A number where an array of draws was: predictions ended in "int has no attribute reshape"."""
    data = mx.data.Arrays(np.zeros((4, 1), np.float32), np.arange(4, dtype=np.float32))
    model = mx.Model(mx.nets.MLP(1, [2], 1, key=0), mx.likelihoods.Gaussian())
    posterior = mx.fit(model, data, mx.infer.MAP(num_epochs=1), key=0, progress=False)
    forged = eqx.tree_at(place, posterior, 3)
    forged.save(tmp_path / "forged")
    with pytest.raises(FileError, match="its weights are not arrays"):
        mx.load(tmp_path / "forged")
