"""`python -m marginax.cli`."""

from marginax.cli import main

main()
