"""A learner whose policy is a table of log-probs, so that the numbers of a case can go through it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import nn

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.learner.causal_lm_module import ENTROPY, LOGP, VALUE
from arlarena_rllib.learner.logprobs import scored_width
from arlarena_rllib.learner.torch_learner import PolicyTorchLearner
from arlarena_rllib.objectives import ObjectiveSpec


class TableModule(TorchRLModule):
    """In place of `CausalLMModule`: the log-prob of each token is a parameter of its own, found by the column ``row``."""

    def setup(self) -> None:
        """Make the table, [rows, width]."""
        self.table = nn.Parameter(torch.zeros(*self.model_config["shape"]))

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return the trailing columns of the rows' log-probs, as many as the real module scores."""
        logp_B_K = self.table[batch["row"]][:, -scored_width(batch["loss_mask"]) :]
        return {LOGP: logp_B_K, ENTROPY: None, VALUE: None}


class TableLearner(PolicyTorchLearner):
    """The learner itself, with a way to set a case and to see the gradient that its optimiser got."""

    def set_case(self, spec: ObjectiveSpec, table: np.ndarray) -> None:
        """Optimise this objective from this table on."""
        self._spec = spec
        with torch.no_grad():
            self.policy.table.copy_(torch.from_numpy(table))

    def table_gradient(self) -> np.ndarray:
        """Return the gradient of the last step, float32 [rows, width]."""
        return self.policy.table.grad.numpy()


def table_group(shape: tuple[int, int], *, num_learners: int, micro_batch_tokens: int) -> LearnerGroup:
    """Return learners with a table of this shape, (rows, width); gradients are not clipped, and an update is one step."""
    config = (
        ARLArenaConfig()
        .learners(num_learners=num_learners, learner_class=TableLearner)
        .training(method="grpo", kl_coef=0.0, grad_clip=None, micro_batch_tokens=micro_batch_tokens)
    )
    nothing = gymnasium.spaces.Discrete(1)
    module = RLModuleSpec(
        module_class=TableModule, observation_space=nothing, action_space=nothing, model_config={"shape": shape}
    )
    return config.build_learner_group(rl_module_spec=MultiRLModuleSpec(rl_module_specs={DEFAULT_MODULE_ID: module}))
