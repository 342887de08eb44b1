"""The playground: a local page on which posteriors are seen to think, every number computed by the library itself."""
