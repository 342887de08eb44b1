"""What is chosen by words: settings of a method, a prior, widths of layers."""

import ast
import re
from typing import Any


def with_options(method: str, options: list[str]) -> Any:
    """A method by its name with some of its settings, or the name alone.

    >>> with_options("map", ["num_epochs=20"]).num_epochs
    20
    """
    if not options:
        return method
    if method == "auto":
        raise ValueError("--option needs a method to set something of: choose one by --method")
    import dataclasses

    from marginax.estimators import method_named

    chosen = method_named(method)
    names = [field.name for field in dataclasses.fields(chosen)]
    given = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            raise ValueError(f"--option must be NAME=VALUE with a name out of {', '.join(names)}, got {text!r}")
        try:
            given[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise ValueError(f"--option {name} must be a number, True, False or None, got {value!r}") from None
    return dataclasses.replace(chosen, **given)


def prior_named(text: str | None) -> Any:
    """A prior by its name, with its scale or other settings; None for the default one.

    >>> prior_named("normal(0.5)"), prior_named("student_t(df=3, scale=0.2)")
    (Normal(scale=0.5), StudentT(df=3.0, scale=0.2))
    """
    if text is None:
        return None
    import dataclasses

    from marginax.model import priors

    known = {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): each
        for name, each in vars(priors).items()
        if isinstance(each, type) and issubclass(each, priors.AbstractPrior) and each.__module__ == priors.__name__
        if not name.startswith("Abstract") and each is not priors.ByPath
    }
    found = re.fullmatch(r"\s*([\w -]+?)\s*(?:\((.*)\))?\s*", text)
    wanted = re.sub(r"[\s_-]", "", found[1]).lower() if found else ""
    kinds = [each for name, each in known.items() if name.replace("_", "") == wanted]
    if found is None or not kinds:
        raise ValueError(f"--prior must be one of {', '.join(sorted(known))}, such as 'normal(0.5)', got {text!r}")
    names = [field.name for field in dataclasses.fields(kinds[0])]
    given = {}
    for part in (found[2] or "").split(",") if (found[2] or "").strip() else ():
        name, equals, value = part.rpartition("=")
        name = name.strip() if equals else "scale"
        if name not in names:
            raise ValueError(f"--prior {found[1]} has no setting {name!r}, only {', '.join(names) or 'none'}")
        try:
            given[name] = float(value)
        except ValueError:
            raise ValueError(f"--prior: {name} of {found[1]} must be a number, got {value.strip()!r}") from None
        if not given[name] > 0:
            raise ValueError(f"--prior: {name} of {found[1]} must be > 0, got {given[name]:g}")
    return kinds[0](**given)


def widths(text: str) -> tuple[int, ...]:
    """Widths of layers.

    >>> widths("50, 50"), widths("")
    ((50, 50), ())
    """
    try:
        widths = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        widths = (0,)
    if any(width < 1 for width in widths):
        raise ValueError(f"--hidden must be widths such as 50,50, got {text!r}")
    return widths
