"""What people look at in a browser: drawn here, and patched live by a few modules of JavaScript.

Pages show what `engine/queries` answered and do what the API does: they have no rules of their own.
"""
