"""ALFWorld, household tasks in text, on the TextWorld engine; importing this registers the id and loads nothing."""

import gymnasium

# Not among list_text_envs(): those can be made everywhere, and this one needs the extra [alfworld].
ALFWORLD = "arlarena/ALFWorld-v0"
gymnasium.register(ALFWORLD, entry_point="env_connectors.alfworld.env:AlfworldTextEnv")
