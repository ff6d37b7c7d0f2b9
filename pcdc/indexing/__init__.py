"""From a catalog of any size to an index: the definition, its entries as columns, their rows of tokens."""
