"""Search QA: answer multi-hop questions with a search tool; importing this registers the id and loads nothing."""

from env_connectors.text_env import register_text_env

register_text_env("arlarena/SearchQA-v0", "env_connectors.search_qa.env:SearchQAEnv")
