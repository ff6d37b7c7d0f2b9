"""Finding the labels of an index that a model believes in, without scoring all of them."""
