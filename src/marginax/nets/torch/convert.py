r"""From a PyTorch module to a network of JAX, by way of `torch.export`.

PyTorch traces the module itself (`torch.export`) and reduces it to Core ATen, the operations that it gives to backends;
each that occurs is a short function of ours. That is more code than a dependency, and more durable. `torchax` and
`torch2jax` run the module's own Python on tensors that stand for arrays: they have to follow PyTorch from release to
release (`torchax` 0.0.13 does not import beside PyTorch 2.13), PyTorch is needed wherever the network runs, and what
they give cannot be written to a file as data. Here PyTorch is needed for the conversion alone.

The graph is that of a batch of one example, in which all shapes are numbers; JAX maps it over batches of any size.
Layers are found in it by what is done with their weights, so it does not matter what class they had.
"""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from marginax._extras import require
from marginax._kernels.examples_last import call_batched
from marginax.nets.adapters import FixedState
from marginax.nets.torch.graph import values_in
from marginax.nets.torch.layers import find_layers
from marginax.nets.torch.network import Entry, Named, TorchNetwork
from marginax.nets.torch.reading import Reading

# Operations that are not reduced further: layers, and those of which there is a good implementation here.
_KEPT = (
    "linear.default",
    "bilinear.default",
    "lstm.input",
    "gru.input",
    "rnn_tanh.input",
    "rnn_relu.input",
    "scaled_dot_product_attention.default",
    "instance_norm.default",
    "matmul.default",
    "rms_norm.default",
    "pixel_shuffle.default",
    "upsample_bilinear2d.vec",
    "upsample_nearest2d.vec",
    "upsample_nearest1d.vec",
    "upsample_linear1d.vec",
    "softplus.default",
    "hardswish.default",
    "hardsigmoid.default",
    "mish.default",
    "logsumexp.default",
    "adaptive_avg_pool1d.default",
    "adaptive_avg_pool2d.default",
    "adaptive_avg_pool3d.default",
    "_adaptive_avg_pool2d.default",
    "_adaptive_avg_pool3d.default",
)
_TOLERANCE = 1e-3


def from_torch(module: Any, example: Any, *, dropout: bool = True) -> TorchNetwork:
    """A trained PyTorch module as a network, for every method.

    Its weights are leaves with the names that they have in the module ("module/layer1/0/conv1/weight"). Linear layers
    and convolutions are layers for methods that ask for them. Batch normalisation uses its running statistics, which
    are no weights and stay as they are, as do other buffers and parameters without `requires_grad`. The outputs are
    compared with the module's own, which is an error where they differ.

    Args:
        module: a `torch.nn.Module` that takes one tensor and gives one, both with an axis of examples first.
        example: inputs of it, a tensor or an array; better two or more.
        dropout: whether the module's dropout comes along: it is on where a key is given (`mx.infer.MCDropout`), off
            otherwise. If not, the module is taken as it is in evaluation mode.
    """
    torch = require("torch")
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    x = _inputs(torch, module, example)
    _refuse_batch_statistics(torch, module)
    with _mode(torch, module, train=dropout), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = _export(torch, module, x[:1])
    network = _network(torch, module, program, x)
    with _mode(torch, module, train=False), torch.no_grad():
        _compare(torch, module, network, x, dropout)
    return network


# ---- the module, as PyTorch exports it


def _inputs(torch: Any, module: Any, example: Any) -> Any:
    x = example if isinstance(example, torch.Tensor) else torch.from_numpy(np.array(example))
    if x.ndim < 1 or not len(x):
        raise ValueError(f"example must be inputs with an axis of examples, got shape {tuple(x.shape)}")
    first = next(module.parameters(), None)
    if first is None:
        raise ValueError(f"module {type(module).__name__} has no parameters, so there is nothing to infer")
    if not isinstance(example, torch.Tensor) and x.is_floating_point():
        x = x.to(first.dtype)
    return x.detach().to(first.device)


def _refuse_batch_statistics(torch: Any, module: Any) -> None:
    for path, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
            raise ValueError(
                f"module has batch normalisation without running statistics at {path}, which mixes the examples of a "
                "batch: use track_running_stats=True, or torch.nn.GroupNorm"
            )


@contextlib.contextmanager
def _mode(torch: Any, module: Any, *, train: bool) -> Iterator[None]:
    """Training mode for all but normalisation, or evaluation mode; afterwards what was before."""
    before = [(part, part.training) for part in module.modules()]
    in_place = [part for part, _ in before if isinstance(part, torch.nn.modules.dropout._DropoutNd) and part.inplace]
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        for part, _ in before:
            part.training = train and not hasattr(part, "track_running_stats")
        for part in in_place:  # whose operation would be reduced to one that no key can switch off
            part.inplace = False
        torch.backends.mha.set_fastpath_enabled(False)  # its operations are in no core set
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for part, was in before:
            part.training = was
        for part in in_place:
            part.inplace = True


def _export(torch: Any, module: Any, x: Any) -> Any:
    try:
        program = torch.export.export(module, (x,), strict=False)
        _drop_channels(torch, program)
        table = torch.export.default_decompositions()
        for name in _KEPT:
            packet, _, overload = name.partition(".")
            table.pop(getattr(getattr(torch.ops.aten, packet), overload), None)
        program = program.run_decompositions(table)
    except Exception as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"module {type(module).__name__} cannot be exported by torch.export for inputs of shape {tuple(x.shape)}: "
            f"{said[0]}"
        ) from error
    program.graph_module.graph.eliminate_dead_code()
    return program


def _compare(torch: Any, module: Any, network: TorchNetwork, x: Any, dropout: bool) -> None:
    """An error unless the network gives what the module gives."""
    if len(x) == 1 and x.ndim > 1:
        x = torch.cat([x, x.roll(1, -1)])  # whether examples are mixed shows in two
    output = module(x)
    if not isinstance(output, torch.Tensor):
        raise ValueError(
            f"module must give one tensor, but it gives a {type(output).__name__}: wrap it in one that does"
        )
    theirs = output.detach().cpu().float().numpy()
    ours = np.asarray(eqx.filter_jit(call_batched)(network, jnp.asarray(_numpy(torch, x))), np.float32)
    if ours.shape != theirs.shape:
        raise ValueError(
            f"module must give an output for each example, but of inputs {tuple(x.shape)} outputs are {theirs.shape}"
        )
    largest = float(np.nanmax(np.abs(ours - theirs), initial=0.0))
    if largest <= 1e-6 + _TOLERANCE * float(np.nanmax(np.abs(theirs), initial=0.0)):
        return
    also = " or changes between training and evaluation in more than dropout: try dropout=False" if dropout else ""
    raise ValueError(
        f"module and network differ by {largest:.2g} in their outputs for the example: it mixes the examples of a "
        f"batch{also}"
    )


def _drop_channels(torch: Any, program: Any) -> None:
    """Dropout of whole channels as a product with dropout of ones, since its own reduction no key can switch off."""
    ops, graph = torch.ops.aten, program.graph_module.graph
    for step in list(graph.nodes):
        if step.target is not ops.feature_dropout.default or not step.args[2]:
            continue
        x, rate, train = step.args
        shape = x.meta["val"].shape
        with graph.inserting_before(step):
            ones = graph.call_function(ops.ones.default, ([*shape[:2], *(1 for _ in shape[2:])],))
            dropped = graph.call_function(ops.dropout.default, (ones, rate, train))
            product = graph.call_function(ops.mul.Tensor, (x, dropped))
        for new in (ones, dropped, product):
            new.meta = dict(step.meta)
        step.replace_all_uses_with(product)
        graph.erase_node(step)
    program.graph_module.recompile()


# ---- its graph, as ours


def _network(torch: Any, module: Any, program: Any, x: Any) -> TorchNetwork:
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    first: dict[int, str] = {}
    canonical = {key: first.setdefault(id(value), key) for key, value in tensors.items()}
    reading = Reading(program, canonical)
    used = {reading.inputs[value.index] for value in reading.values_used() if value.index < len(reading.inputs)}
    wanted = {key for key, value in module.named_parameters() if value.requires_grad and value.is_floating_point()}
    trainable = {canonical[key] for key in wanted} & used
    layers = find_layers(reading.nodes, reading.inputs, reading.shapes, trainable)
    names = {key: key.replace(".", "/") for key in [*canonical.values(), *reading.inputs]}
    names |= {key: f"{layer.name}/{field}" for layer in layers.values() for field, key in layer.keys.items()}

    arrays = {key: _array(torch, value) for key, value in (program.constants | tensors).items()}
    parts: dict[str, Any] = {}
    for key in _by_last_use(reading, trainable):
        layer = next((layer for layer in layers.values() if key in layer.keys.values()), None)
        if layer is None:
            parts[names[key]] = arrays[key]
        elif layer.name not in parts:
            parts[layer.name] = layer.build({field: arrays[own] for field, own in layer.keys.items()})
    state = module.state_dict()
    kept = dict.fromkeys([*(canonical[key] for key in state), *(key for key in reading.inputs[1:] if key in used)])
    fixed = {names[key]: arrays[key] for key in kept if key not in trainable}
    entries = tuple(
        Entry(key, names[canonical[key]], tuple(value.shape), _name_of(value.dtype)) for key, value in state.items()
    )
    graph = reading.graph(layers, names, tuple(x.shape[1:]), _name_of(x.dtype))
    return TorchNetwork(_named(parts), FixedState(_named(fixed)), graph, entries)


def _named(values: dict[str, Any]) -> Named:
    return Named(tuple(values), tuple(values.values()))


def _by_last_use(reading: Reading, keys: set[str]) -> list[str]:
    """Weights in the order in which their modules are used for the last time: those of the last layer come last."""
    last: dict[str, int] = {}
    for i, node in enumerate(reading.nodes):
        for value in values_in(node.arguments):
            if value.index < len(reading.inputs):
                last[reading.inputs[value.index].rpartition(".")[0]] = i
    in_module = [key for key in reading.inputs if key in keys]
    return sorted(dict.fromkeys(in_module), key=lambda key: last[key.rpartition(".")[0]])


def _array(torch: Any, tensor: Any) -> jax.Array:
    return jnp.asarray(_numpy(torch, tensor))


def _numpy(torch: Any, tensor: Any) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.float().numpy(), jnp.bfloat16)
    array = tensor.numpy()
    return np.array(array, jax.dtypes.canonicalize_dtype(array.dtype))


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
