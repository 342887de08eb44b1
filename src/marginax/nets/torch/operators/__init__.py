"""The operations of PyTorch that are known, by their names in ATen: `add.Tensor`, `relu`, `native_layer_norm`.

Each is a short function of the arguments of ATen's schema, all of them and in its order (`native_functions.yaml` of
PyTorch), without the devices and memory layouts, which mean nothing here. What is not in the table is refused by name.
Most are of Core ATen, the set to which `torch.export` reduces modules and which PyTorch keeps stable.
"""

from collections.abc import Callable
from typing import Any

from marginax.nets.torch.operators.elementwise import ELEMENTWISE
from marginax.nets.torch.operators.normalisation import NORMALISATION
from marginax.nets.torch.operators.products import PRODUCTS
from marginax.nets.torch.operators.random import RANDOM, RANDOM_OPERATORS
from marginax.nets.torch.operators.reductions import REDUCTIONS
from marginax.nets.torch.operators.shapes import SHAPES
from marginax.nets.torch.operators.windows import WINDOWS

__all__ = ["OPERATORS", "RANDOM"]

OPERATORS: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE,
    **NORMALISATION,
    **PRODUCTS,
    **RANDOM_OPERATORS,
    **REDUCTIONS,
    **SHAPES,
    **WINDOWS,
}
