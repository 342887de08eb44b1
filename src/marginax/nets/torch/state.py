"""Weights between PyTorch and networks that came from it: state dicts of posteriors, safetensors files."""

import os
from typing import Any

import jax

from marginax._extras import require
from marginax._keys import Key, as_key
from marginax.files import read_arrays
from marginax.nets.torch.network import TorchNetwork, load_state_dict, state_dict


def to_torch(source: Any, *, key: Key | None = None) -> dict[str, Any]:
    """A state dict for `module.load_state_dict`: of a network, of a posterior's means, or of a draw from it.

    Args:
        source: a network of `mx.nets.from_torch`, or a posterior of a model of one.
        key: of a draw from a posterior; without one, its means. Draws that stand for several modes (ensembles) have
            none, and need a key.
    """
    torch = require("torch")
    arrays = state_dict(network_of(source, key=key))
    found = {}
    for name, value in arrays.items():
        is_bfloat16 = value.dtype.name == "bfloat16"
        tensor = torch.from_numpy(value.astype("float32") if is_bfloat16 else value.copy())
        found[name] = tensor.to(torch.bfloat16) if is_bfloat16 else tensor
    return found


def network_of(source: Any, *, key: Key | None = None) -> TorchNetwork:
    """The network itself, or that with the means of a posterior, or with a draw from it.

    Args:
        source: a network, or a posterior.
        key: of a draw.
    """
    if isinstance(source, TorchNetwork):
        return source
    model = getattr(source, "model", None)
    if not isinstance(getattr(model, "network", None), TorchNetwork) or model is None:
        raise TypeError(
            "source must be a network of mx.nets.from_torch, or a posterior of a model of one, got "
            f"{type(source).__name__}"
        )
    if key is None:
        return model.network_of(source.mean_params())
    params = source.sample_params(1, key=as_key(key))
    return model.network_of(jax.tree.map(lambda leaf: leaf[0], params))


def load_safetensors(network: Any, path: str | os.PathLike[str]) -> TorchNetwork:
    """The network with the weights and buffers of a safetensors file, by the names of the module's state dict.

    Args:
        network: from `mx.nets.from_torch`.
        path: the file.
    """
    if not isinstance(network, TorchNetwork):
        raise TypeError(f"network must be one of mx.nets.from_torch, got {type(network).__name__}")
    return load_state_dict(network, read_arrays(path))
