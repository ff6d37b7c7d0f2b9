"""Catalogs of any size for one tokenizer: their labels' surface forms as sorted rows of token ids."""
