"""As the engine has it."""

from muster.engine.detached_call import detached_call

__all__ = ["detached_call"]
