"""Muster in a Python program: `import muster` has the names that are meant for it."""
