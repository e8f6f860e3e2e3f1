"""WebShop: find and buy a product in a shop of web pages; importing this registers the id and loads nothing."""

from env_connectors.text_env import register_text_env

register_text_env("arlarena/WebShop-v0", "env_connectors.webshop.env:WebShopEnv")
