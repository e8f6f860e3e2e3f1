"""Toy environments for tests and first steps; importing this registers their ids."""

from env_connectors.text_env import register_text_env

register_text_env("arlarena/Guess-v0", "env_connectors.toy.env:GuessEnv")
