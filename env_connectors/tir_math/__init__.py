"""Tool-integrated mathematics: problems solved with programs in a sandbox; importing this registers the id and loads nothing."""

from env_connectors.text_env import register_text_env

register_text_env("arlarena/TIRMath-v0", "env_connectors.tir_math.env:TIRMathEnv")
