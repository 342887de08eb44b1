"""The error of this package, and the one of its kinds that a caller may want to wait for."""

__all__ = ["FileError", "InUseError"]


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


class InUseError(FileError):
    """A directory that another process, or thread, writes in; the message names it."""
