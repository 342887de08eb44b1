"""The one error of this package."""

__all__ = ["FileError"]


class FileError(ValueError):
    """A file that cannot be read or written, or a value that cannot be stored.

    The message names the path (or the place inside the stored value) and what is wrong with it. When the
    operating system refused (disk full, no permission), the `OSError` is the `__cause__`.

    Example:
        >>> import marginax.files as files
        >>> try:
        ...     files.read_bundle("no/such/run", "posterior")
        ... except files.FileError as error:
        ...     print(error)
        no/such/run: no such file or directory
    """
