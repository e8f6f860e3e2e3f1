"""Problems with exact answers that are made up from a seed: four kinds, four levels, and one-liners for tiny models."""
