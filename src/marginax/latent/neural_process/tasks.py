"""Tasks: functions that are seen at some points each, padded to one length, with a mask that says which are real."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from jaxtyping import Key as KeyOf

from marginax.data import Rows
from marginax.data.arrays import as_numeric


class Points(eqx.Module):
    """Points of b functions. The mask is 1 where there is a point; what x and y hold elsewhere must not matter."""

    x: Float[Array, "b n dx"]
    y: Float[Array, "b n dy"]
    mask: Float[Array, "b n"]

    def only(self, chosen: Float[Array, "b n"]) -> "Points":
        """Those that are chosen."""
        return Points(self.x, self.y, self.mask * chosen)


def split_tasks(
    points: Points, sizes: tuple[int, int | None], keys: KeyOf[Array, " b"]
) -> tuple[Float[Array, "b n"], Float[Array, "b n"]]:
    """Which points of each task are its context, drawn anew, and which are targets: all the others.

    The number of context points is uniform between the two sizes, and leaves at least one target.
    """
    count = jnp.sum(points.mask, 1).astype(int)
    high = count - 1 if sizes[1] is None else jnp.minimum(sizes[1], count - 1)
    low = jnp.minimum(sizes[0], high)

    def draw(
        key: PRNGKeyArray, mask: Float[Array, " n"], low: Int[Array, ""], high: Int[Array, ""]
    ) -> Float[Array, " n"]:
        for_size, for_points = jax.random.split(key)
        size = jax.random.randint(for_size, (), low, high + 1)
        place = jnp.where(mask > 0, jax.random.uniform(for_points, mask.shape), 2.0)
        last = jnp.sort(place)[jnp.maximum(size - 1, 0)]
        return mask * (place <= last) * (size > 0)

    context = jax.vmap(draw)(keys, points.mask, low, high)
    return context, points.mask * (1.0 - context)


def as_tasks(data: Any) -> dict[str, np.ndarray]:
    """A dict with "x", "y" and perhaps "mask", a list of pairs (x, y), or one pair of arrays, as a dict of arrays.

    Axes are (task, point, input), (task, point, output) and (task, point); the last axis of x and y may be left out.

    >>> tasks = as_tasks([(np.zeros(3), np.zeros(3)), (np.zeros((5, 1)), np.ones(5))])
    >>> tasks["x"].shape, tasks["y"].shape, tasks["mask"].sum(1).tolist()
    ((2, 5, 1), (2, 5, 1), [3, 5])
    """
    if isinstance(data, Rows):
        data = data.tree
    if isinstance(data, dict):
        return _with_mask(data)
    if isinstance(data, tuple) and len(data) == 2:
        return _with_mask({"x": data[0], "y": data[1]})
    if not isinstance(data, list):
        raise TypeError(f'tasks must be a dict with "x", "y" and "mask", or a list of pairs (x, y), got {data!r:.60}')
    if not data:
        raise ValueError("tasks must hold at least one task, got none")
    pairs = [as_pair(pair, name=f"task {i}") for i, pair in enumerate(data)]
    for name, parts in (("x", [x for x, _ in pairs]), ("y", [y for _, y in pairs])):
        if len({part.shape[1] for part in parts}) > 1:
            sizes = sorted({part.shape[1] for part in parts})
            raise ValueError(f"tasks must have points of one size, got {name} with {sizes} columns")
    longest = max(len(x) for x, _ in pairs)
    found = {
        "x": np.zeros((len(pairs), longest, pairs[0][0].shape[1])),
        "y": np.zeros((len(pairs), longest, pairs[0][1].shape[1])),
        "mask": np.zeros((len(pairs), longest), bool),
    }
    for i, (x, y) in enumerate(pairs):
        found["x"][i, : len(x)], found["y"][i, : len(y)], found["mask"][i, : len(x)] = x, y, True
    return _checked(found)


def check_sizes(num_context: Any) -> tuple[int, int | None]:
    """Fewest and most points of a context: one number, or a pair whose second may be None."""
    pair = (num_context, num_context) if isinstance(num_context, int) else num_context
    good = isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], int) and pair[0] >= 0
    good = good and not isinstance(pair[0], bool)
    if not good or not (pair[1] is None or (isinstance(pair[1], int) and pair[1] >= pair[0])):
        raise ValueError(
            f"num_context must be a pair (fewest, most) of ints >= 0, the last perhaps None, got {num_context!r}"
        )
    return pair[0], pair[1]


def as_pair(pair: Any, *, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (n, dx) and outputs (n, dy) of one function; there may be no points."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"{name} must be a pair (x, y), got {type(pair).__name__}")
    x, y = (as_columns(part, name=f"{which} of {name}") for which, part in zip("xy", pair, strict=True))
    if len(x) != len(y):
        raise ValueError(f"{name} must have as many x as y, got {len(x)} and {len(y)}")
    return x, y


def as_columns(values: Any, *, name: str) -> np.ndarray:
    """Points (n, d) from an array (n, d) or (n,)."""
    empty = hasattr(values, "__len__") and not len(values)
    array = np.zeros((0, *np.shape(values)[1:])) if empty else as_numeric(values, name=name)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (points,) or (points, columns), got {array.shape}")
    return np.asarray(array if array.ndim == 2 else array[:, None], np.float64)


def _with_mask(data: dict[str, Any]) -> dict[str, np.ndarray]:
    if not {"x", "y"} <= set(data) <= {"x", "y", "mask"}:
        raise ValueError(f'tasks must have "x" and "y", and may have "mask", got {sorted(data)}')
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
        raise TypeError(f"x and y of tasks must be numeric, got dtypes {x.dtype} and {y.dtype}")
    for name, values in (("x", x), ("y", y)):
        if values.ndim not in (2, 3):
            raise ValueError(f"{name} of tasks must have shape (task, point) or (task, point, d), got {values.shape}")
    if not x.size or not y.size:
        raise ValueError(f"tasks must hold at least one task with points, got x of shape {x.shape}")
    if x.shape[:2] != y.shape[:2]:
        raise ValueError(f"x and y of tasks must have the same tasks and points, got {x.shape[:2]} and {y.shape[:2]}")
    mask = np.asarray(data.get("mask", np.ones(x.shape[:2])), bool)
    if mask.shape != x.shape[:2]:
        raise ValueError(f"mask must have shape {x.shape[:2]} (task, point), got {mask.shape}")
    parts = {"x": x, "y": y}
    found = {name: np.asarray(a if a.ndim == 3 else a[..., None], np.float64) for name, a in parts.items()}
    return _checked(found | {"mask": mask})


def _checked(tasks: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    mask = tasks["mask"]
    num = mask.sum(1)
    if num.min() < 2:
        raise ValueError(f"tasks must have at least 2 points each, got {num.min()} in task {int(num.argmin())}")
    for name in ("x", "y"):
        tasks[name] = np.where(mask[..., None], tasks[name], 0.0)
        bad = ~np.isfinite(tasks[name]).all((1, 2))
        if bad.any():
            raise ValueError(f"{name} of task {int(bad.argmax())} has NaN: leave the point out, or mask it")
    return tasks
