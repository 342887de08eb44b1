"""One file per benchmark: an `ENTRY` for the arena, or a `main` with a table of its own."""
