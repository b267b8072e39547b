"""Reading rows from wherever a dataset is."""
