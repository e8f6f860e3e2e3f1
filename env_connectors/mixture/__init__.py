"""Several text environments as one; importing this registers the id and loads nothing."""

import gymnasium

# Not among list_text_envs(): those can be made without arguments, and a mixture of nothing cannot.
MIXTURE = "arlarena/Mixture-v0"
gymnasium.register(MIXTURE, entry_point="env_connectors.mixture.env:MixtureEnv")
