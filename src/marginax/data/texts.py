"""Many texts as arrays, for files."""

import equinox as eqx
import numpy as np

from marginax.files import register


@register("table/texts")
class Texts(eqx.Module):
    """Texts, of which some are missing, as arrays: a list of many would be too much for a document of JSON."""

    utf8: np.ndarray
    sizes: np.ndarray  # in bytes; -1 where a text is missing

    @classmethod
    def of(cls, texts: list[str | None]) -> "Texts":
        """Texts as arrays.

        >>> Texts.of(["Rome", None, ""]).list()
        ['Rome', None, '']
        """
        data = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
        whole = b"".join(each for each in data if each is not None)
        return cls(np.frombuffer(whole, np.uint8), np.array([-1 if d is None else len(d) for d in data], np.int64))

    def list(self) -> list[str | None]:
        """The texts again."""
        whole, ends = self.utf8.tobytes(), np.cumsum(np.maximum(self.sizes, 0)).tolist()
        return [
            None if size < 0 else whole[end - size : end].decode("utf-8", "surrogatepass")
            for size, end in zip(self.sizes.tolist(), ends, strict=True)
        ]
