"""The composition root: the only package that names both the engine and the drivers.

Each process has a module of its own, so that a worker does not load a web server.
"""

from muster.app.direct import direct
from muster.app.parts import agents_of

__all__ = ["agents_of", "direct"]
