"""The composition root: the only package that names both the engine and the drivers.

Each process has a module of its own, so that a worker does not load a web server.
"""
