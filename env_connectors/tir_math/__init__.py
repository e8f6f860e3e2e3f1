"""Tool-integrated mathematics: so far the sandbox in which model-written Python runs."""
