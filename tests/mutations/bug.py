"""A bug that somebody could make, and that it is caught."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import pytest


@dataclass(frozen=True)
class Bug:
    """A piece of marginax and what it is replaced by, the check that catches it, and what that check says."""

    name: str
    owner: Any
    attribute: str
    replacement: Any
    check: Any
    says: str | None = None


@contextmanager
def planted(owner: Any, attribute: str, replacement: Any) -> Iterator[None]:
    """Replace a piece of marginax, and forget what was compiled before and after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, attribute, replacement)
        _forget()
        yield
    _forget()


def assert_caught(bug: Bug, check: Callable[[], Any], errors: Any = AssertionError) -> None:
    """The check fails while the bug is there, with the words that name it."""
    with planted(bug.owner, bug.attribute, bug.replacement), pytest.raises(errors, match=bug.says):
        check()


def _forget() -> None:
    eqx.clear_caches()
    jax.clear_caches()
