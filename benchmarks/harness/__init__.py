"""What runs the entries: the arena and its workers, peers' environments, records, tables and figures."""
