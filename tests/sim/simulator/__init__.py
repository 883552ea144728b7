"""A crew in one process on a virtual clock: the engine as it is, everything around it simulated from a seed."""
