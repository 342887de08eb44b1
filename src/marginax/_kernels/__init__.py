"""What makes it fast and is nobody's business: noise by counters, permutations, examples last, convolutions."""
