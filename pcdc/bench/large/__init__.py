"""The benchmark of indexes: catalogs of up to a million entries, methods against one another."""
