r"""What page and server say to each other: plain JSON over one websocket, and the settings of labs.

HTTP, on loopback; `Host` must be the address that the server listens on, or the answer is 403:

- `GET /?token=T`: the page (`page/index.html`). `GET /page/<file>`: its other files, which need no token.
- `GET /labs.json?token=T`: `{"version": "0.1.0", "labs": [lab, ...]}`, the labs in the order of the page's tabs. A lab
  is `{"name", "title", "about", "settings": [setting, ...]}`. A setting is `{"name", "label", "kind", "default",
  "help"}` and

  | kind | further | value |
  |---|---|---|
  | `choice` | `choices`: `[{"value", "label"}]` | one of the values, a string |
  | `number` | `least`, `most`, `log` (slider on a log scale) | a number |
  | `integer` | `least`, `most`, `log` | a whole number |
  | `flag` | | true or false |
  | `points` | `least`, `most` (coordinates), `columns`, `max_length` | `[[x, y], ...]`, or `[[x, y, class], ...]` |
  | `numbers` | `least`, `most`, `max_length` | `[number, ...]` |

  and `when`: `{name: [values]}`, all of which must hold for the setting to matter (hide it otherwise); `{}` is always.
- `WS /ws?token=T`: the messages below. `Origin` must be the server's own, or the answer is 403.

From the page. `id` is a whole number that the page counts up; `slot` is `"a"` or `"b"` (two runs side by side).
Settings that are left out have their defaults; unknown names are an error. The newest run of a slot ends the one before
it.

    {"type": "run", "id": 7, "slot": "a", "lab": "functions", "settings": {"method": "HMC", "seed": 0}}
    {"type": "cancel", "slot": "a"}
    {"type": "python", "id": 8, "lab": "functions", "settings": {...}}

From the server:

    {"type": "ready", "version": "0.1.0"}                        once, after the websocket has opened
    {"type": "started", "id": 7, "slot": "a", "settings": {...}}  settings in full, defaults filled in
    {"type": "state", "id": 7, "slot": "a", "step": 120, "of": 1000, "phase": "sample", "data": {...}}
    {"type": "done", "id": 7, "slot": "a", "seconds": 2.4, "numbers": {...}}
    {"type": "cancelled", "id": 7, "slot": "a"}        of a run that was cancelled, or ended by a newer one
    {"type": "error", "id": 7, "slot": "a", "message": "settings: seed must be in 0..9999, got -1"}
    {"type": "python", "id": 8, "code": "import marginax as mx\n..."}

`id` and `slot` of an error are null where it belongs to no run. After `done`, `cancelled` or `error` nothing more comes
of that id. The last `state` before `done` shows the result of the finished fit. `numbers` is what "copy as Python"
gives: the text defines a dict `numbers` with the same keys and the same values (numbers, or lists of them), and prints
it.

`data` by lab. Every state has all of the keys of its lab and example, except those marked `?`; numbers in states are
rounded to six digits; what is not finite is null. Maps are lists of rows: `map[j][i]` is at `(x[i], y[j])`.

functions: in the units of the data; `curves` are the mean functions of single draws (at most 40), bands are standard
deviations, `lower` and `upper` the central 90% of new measurements. With `phase` "prior", before there is data, it is
all from draws of the prior. `answer` is about x = `ask`, the setting of the draggable line: while it is dragged,
interpolate on the grid; a run with the new `ask` gives the numbers.

    {"grid": [-3.0, ...], "points": [[1.1, 3.4], ...],
     "curves": [[-8.1, ...], ...], "mean": [...], "epistemic": [...], "aleatoric": [...], "total": [...],
     "lower": [...], "upper": [...], "log_density": [-31.2, ...] (of each chain),
     "answer": {"x": 7.0, "mean": 20.9, "epistemic": 0.6, "aleatoric": 1.1, "total": 1.25, "lower": 18.9,
                "upper": 23.0}}

samplers: the first state has `map`, later ones have not. `draws[c]` are the positions of chain c that are new since the
last state. `moves` are the last moves of chain 0, at most 8, with `path` from start to end: leapfrog steps for HMC, the
leaves of the tree for NUTS in the order of the orbit with `depth` (the doubling that added each; the start has -1), the
proposal alone for MH and MALA, empty for others; `energy` at each point of the path (null for MH, MALA).
`histogram` is over the draws of all chains; `truth` the exact marginal density on the same bins (a density: integrates
to one). `rhat` and `ess` are null until there are enough draws.

    {"map"?: {"x": [...], "y": [...], "log_density": [[...], ...]},
     "draws": [[[0.1, 1.2], ...], ...],
     "moves": [{"path": [[0.1, 1.2], ...], "energy": [2.1, ...], "depth"?: [-1, 0, 1, 1], "accepted": true,
                "acceptance": 0.93, "end": [0.4, 1.0], "divergent": false}, ...],
     "histogram": [{"edges": [41 numbers], "density": [40], "truth": [40]}, {...}]   (first and second coordinate)
     "diagnostics": {"num_draws": 800, "num_gradients": 6400, "acceptance": 0.91, "step_size": 0.2,
                     "mean": [0.0, 1.0], "std": [1.0, 1.4], "true_mean": [0.0, 1.0], "true_std": [1.0, 1.41],
                     "rhat": [1.01, 1.02], "ess": [310.0, 95.0], "ess_per_gradient": 0.0148}}

boundaries: inputs in [-3, 3] x [-3, 3]; classes 0, 1 or 0, 1, 2. Entropies in nats. `point` is what the single network
that MAP finds says, where the method averages over many (the setting `beside`); null without.

    {"x": [...], "y": [...], "points": [[0.3, -1.2, 1], ...], "num_classes": 2,
     "probability": [map of class 0, map of class 1], "entropy": map, "expected_entropy": map,
     "mutual_information": map, "point": null or {"probability": [map, ...], "entropy": map}, "log_density": [...]}

variational: `example` says which one.

    {"example": "correlated", "target": {"mean": [0, 0], "cov": [[1, 0.9], [0.9, 1]]}, "log_evidence": 0.0,
     "mean_field": {"mean": [..2], "cov": [[..], [..]]}, "full_rank": {"mean": [..2], "cov": [[..], [..]]},
     "steps": [1, 2, ...], "bound": {"mean_field": [...], "full_rank": [...]}}      (bounds in nats, by step)
    {"example": "mixture", "points": [[x, y], ...], "responsibilities": [[..K], ...] (of each point),
     "components": [{"weight": 0.3, "mean": [x, y], "cov": [[..], [..]]}, ...],
     "bound": [...], "reconstruction": [...], "complexity": [...]}     (by step; bound = reconstruction - complexity)
    {"example": "coin", "flips": [1, 0, ...] (seen so far), "grid": [101 numbers in 0..1], "prior": [...],
     "posterior": [...] (densities on the grid), "a": 3.0, "b": 2.0, "mean": 0.6, "lower": 0.25, "upper": 0.9,
     "log_evidence": -2.1}       (one state per flip, beginning with none; `lower` to `upper` holds 90%)

active: as boundaries, without `point`, and the pool. The setting `chosen` is the list of indices into `pool` whose
labels were asked for, in order; a run fits on these and says what BALD would ask next. "You": the person picks an
index, the page appends it and runs again. "BALD": the page appends `suggested` and runs again.

    {..., "pool": [[x, y], ...], "chosen": [3, 17], "labels": [0, 1] (of the chosen), "scores": [...] (of the pool,
     nats), "suggested": 41, "accuracy": 0.87}

latent: digits are lists of 784 numbers in 0..1, by rows. The setting `task` is `decode` (at `z`), `encode` (the setting
`digit`) or `complete` (`digit`, of which the pixels whose `erased` is 1 are not seen).

    {"task": "decode", "z": [0.3, -1.0], "mean": [..784], "std": [..784],
     "codes": [[z1, z2, label], ...] (where digits of the data set lie)}
    {"task": "encode", "z": [..2], "z_std": [..2], "digit": [..784], "mean": [..784], "std": [..784], "codes": [...]}
    {"task": "complete", "z": [..2], "z_std": [..2], "digit": [..784], "erased": [..784],
     "completions": [[..784], ...] (8), "mean", "std", "codes"}

A recording, for the page without a server (`python -m marginax.playground.record FILE`): `{"version", "labs", "runs":
[{"lab", "settings", "messages": [started, state, ..., done], "code": "..."}]}`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

MAX_MESSAGE_BYTES = 256 * 1024
SLOTS = ("a", "b")


class ProtocolError(ValueError):
    """A message that cannot be meant: what is wrong with it, for the person at the page."""


@dataclass(frozen=True)
class Choice:
    """One of the values of a choice, and how the page calls it."""

    value: str
    label: str


@dataclass(frozen=True)
class Setting:
    """Something that can be set in a lab, with all that a control of it needs.

    Args:
        name: in messages, links and `to_python`.
        label: what the page writes beside it.
        kind: of value, as in the table above.
        default: its value where none is given.
        help: a sentence for the curious.
        least: bound of numbers, of coordinates for points.
        most: the other one.
        log: whether a slider is best on a log scale.
        choices: of a choice.
        columns: of a point.
        max_length: of points and lists.
        when: the values of other settings for which this one matters.
    """

    name: str
    label: str
    kind: Literal["choice", "number", "integer", "flag", "points", "numbers"]
    default: Any
    help: str = ""
    least: float | int = 0.0
    most: float | int = 1.0
    log: bool = False
    choices: tuple[Choice, ...] = ()
    columns: int = 2
    max_length: int = 0
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def checked(self, value: Any) -> Any:
        """The value, if it can be meant.

        >>> Setting("seed", "Seed", "integer", 0, most=99).checked(7)
        7
        """
        check = {"choice": self._choice, "flag": self._flag, "points": self._points, "numbers": self._numbers}
        return check.get(self.kind, self._number)(value)

    def _choice(self, value: Any) -> str:
        values = [choice.value for choice in self.choices]
        if not isinstance(value, str) or value not in values:
            raise self._error(f"one of {', '.join(values)}", value)
        return value

    def _flag(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._error("true or false", value)
        return value

    def _number(self, value: Any) -> float | int:
        whole = self.kind == "integer"
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            raise self._error("a number", value)
        if whole and value != int(value):
            raise self._error("a whole number", value)
        if not self.least <= value <= self.most:
            raise self._error(f"in {self.least:g}..{self.most:g}", value)
        return int(value) if whole else float(value)

    def _numbers(self, value: Any) -> list[float]:
        if not isinstance(value, list) or len(value) > self.max_length:
            raise self._error(f"a list of at most {self.max_length} numbers", value)
        return [float(self._number(item)) for item in value]

    def _points(self, value: Any) -> list[list[float]]:
        rule = f"a list of at most {self.max_length} points of {self.columns} numbers"
        if not isinstance(value, list) or len(value) > self.max_length:
            raise self._error(rule, value)
        if not all(isinstance(point, list) and len(point) == self.columns for point in value):
            raise self._error(rule, value)
        return [[float(self._number(item)) for item in point] for point in value]

    def _error(self, rule: str, value: Any) -> ProtocolError:
        given = json.dumps(value, default=str)
        return ProtocolError(f"settings: {self.name} must be {rule}, got {given[:60]}")


@dataclass(frozen=True)
class Lab:
    """A lab as the page sees it: what it is about, and what can be set."""

    name: str
    title: str
    about: str
    settings: tuple[Setting, ...]

    def complete(self, given: Any) -> dict[str, Any]:
        """Checked settings, with defaults for what is left out."""
        if not isinstance(given, dict):
            raise ProtocolError("settings must be an object of names and values")
        names = {setting.name for setting in self.settings}
        if unknown := sorted(set(given) - names):
            raise ProtocolError(f"settings: the lab {self.name} has no {unknown[0][:60]!r}, only {', '.join(names)}")
        return {s.name: s.checked(given[s.name]) if s.name in given else s.default for s in self.settings}

    def described(self) -> dict[str, Any]:
        """For labs.json."""
        return asdict(self)
