"""Networks from PyTorch: `torch.export` gives a graph, which is run by JAX; see `convert` for why."""

from marginax.nets.torch.convert import from_torch
from marginax.nets.torch.network import TorchNetwork, load_state_dict, state_dict
from marginax.nets.torch.state import load_safetensors, to_torch

__all__ = ["TorchNetwork", "from_torch", "load_safetensors", "load_state_dict", "state_dict", "to_torch"]
