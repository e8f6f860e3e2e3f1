"""Sokoban in text, in four difficulties; importing this registers their ids and loads nothing."""

from env_connectors.text_env import register_text_env

for _level in ("6x6-1", "6x6-2", "7x7-2", "10x10-4"):
    register_text_env(f"arlarena/Sokoban-{_level}-v0", "env_connectors.sokoban.env:SokobanTextEnv", level=_level)
