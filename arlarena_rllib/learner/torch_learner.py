"""PolicyTorchLearner: optimises a causal LM with the four-axis objective on rows packed by token budget."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor

from arlarena_rllib.diagnostics import entropy_threshold, finish_update_tables, row_mean_entropy, update_tables
from arlarena_rllib.errors import LearnerError
from arlarena_rllib.learner import collectives
from arlarena_rllib.learner.causal_lm_module import ENTROPY, LOGP, VALUE, CausalLMModule
from arlarena_rllib.learner.logprobs import token_scores
from arlarena_rllib.learner.minibatch_context import minibatch_context
from arlarena_rllib.learner.scoring import OLD_ENTROPY, OLD_LOGP, OLD_VALUE, REF_LOGP, RowScorer, indexed_micro_batches
from arlarena_rllib.models.load import load_causal_lm
from arlarena_rllib.objectives import (
    finish_metrics,
    merge_metrics,
    mismatch_metrics,
    needs_context,
    policy_objective,
    value_loss,
)

_CONTEXT, _ENTROPY_ROW = "context/", "entropy_row"
_LOSS_KEYS = ("policy_loss", "kl_loss", "entropy_loss", "value_loss", "total_loss")


class PolicyTorchLearner(TorchLearner):
    """One update = scores of all rows under the old policy, then ``num_epochs`` x ``num_minibatches`` AdamW steps.

    The batch holds the columns of :data:`~arlarena_rllib.trajectory.TokenBatch` and ``advantages`` float32 [B] or [B, T],
    ``loss_weight`` float32 [B] (global denominators), ``minibatch`` int64 [B]; with a critic ``returns``, ``value_mask``
    float32 [B, T] and ``value_weight`` [B]; and, when the advantages needed them, the columns of :meth:`score_rows`.
    Gradients of micro-batches and of learners are summed, so the result does not depend on how the rows were split.
    """

    def build(self) -> None:
        """Load policy and, when the objective has a KL term, the frozen reference."""
        super().build()
        self._spec = self.config.objective_spec()
        self._nonfinite_in_a_row = 0
        reference: torch.nn.Module | None = None
        if self._spec.kl_coef:
            path = self.config.reference_path or self.config.model_path
            reference = load_causal_lm(path).requires_grad_(False).to(self._device)
        self._scorer = RowScorer(self.policy, reference, self.config.temperature, self.config.micro_batch_tokens)

    @property
    def policy(self) -> CausalLMModule:
        """The module itself."""
        return self._module[DEFAULT_MODULE_ID]

    def _make_modules_ddp_if_necessary(self) -> None:
        # Gradients are summed once per minibatch in `_step`, so DDP's hooks on every backward pass are not wanted.
        if self.config.num_learners > 1:
            for parameter in self.policy.parameters():
                torch.distributed.broadcast(parameter.data, src=0)

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Register AdamW over the trainable parameters."""
        parameters = [p for p in self._module[module_id].parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(
            parameters, lr=1e-6, betas=tuple(config.adam_betas), weight_decay=config.weight_decay
        )
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=config.lr
        )

    # --- learning rate -------------------------------------------------------------------------------------------

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Set the learning rate of this iteration: linear warm-up, then linear decay to a share of ``lr``."""
        super().before_gradient_based_update(timesteps=timesteps)
        if isinstance(self.config.lr, (int, float)):
            optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
            self._set_optimizer_lr(optimizer, self._lr_at(self._weights_seq_no))

    def _lr_at(self, iteration: int) -> float:
        config = self.config
        warm, end = config.lr_warmup_iterations, config.lr_decay_iterations
        factor = min(1.0, (iteration + 1) / warm) if warm else 1.0
        if end is not None and iteration >= warm:
            progress = min(1.0, (iteration - warm) / max(1, end - warm))
            factor = 1.0 - progress * (1.0 - config.lr_final_fraction)
        return float(config.lr) * factor

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Log the learning rate that this update used; apply RLlib's schedule if ``lr`` is one."""
        if isinstance(self.config.lr, (int, float)):
            self._log("default_optimizer_learning_rate", self._get_optimizer_lr(self.get_optimizer(DEFAULT_MODULE_ID)))
        else:
            super().after_gradient_based_update(timesteps=timesteps)

    # --- update --------------------------------------------------------------------------------------------------

    def _update(self, batch: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        rows: dict[str, Tensor] = dict(batch[DEFAULT_MODULE_ID])
        if OLD_LOGP not in rows:
            rows |= self._scores(rows)
        mismatch = mismatch_metrics(rows[OLD_LOGP], rows["rollout_logp"], rows["loss_mask"])
        rows[_ENTROPY_ROW] = row_mean_entropy(rows[OLD_ENTROPY], rows["loss_mask"])
        self._entropy_threshold = entropy_threshold(collectives.gathered(rows[_ENTROPY_ROW].cpu()))
        self._tables: list[dict[str, Tensor]] = []
        steps = int(rows["minibatch"].max()) + 1 if len(rows["minibatch"]) else 0
        steps = collectives.maximum(steps, self._device)
        sums: list[dict[str, Tensor]] = []
        norms: list[float] = []
        for _ in range(self.config.num_epochs):
            for index in range(steps):
                chosen = torch.nonzero(rows["minibatch"] == index).flatten()
                result, norm = self._step(rows, chosen, number=len(norms))
                sums += result
                norms.append(norm)
        metrics = finish_metrics(merge_metrics(collectives.gathered(merge_metrics(sums))))
        metrics.update(finish_metrics(merge_metrics(collectives.gathered(mismatch))))
        tables = merge_metrics(collectives.gathered(merge_metrics(self._tables)))
        metrics.update(finish_update_tables(tables), entropy_threshold=self._entropy_threshold)
        metrics.update({key: metrics[key] / len(norms) for key in _LOSS_KEYS if key in metrics})
        finite = [n for n in norms if math.isfinite(n)]
        metrics["grad_norm"] = sum(finite) / len(finite) if finite else math.nan
        metrics["grad_norm_max"] = max(finite, default=math.nan)
        metrics["nonfinite_steps"] = float(len(norms) - len(finite))
        for key, value in metrics.items():
            self._log(key, value)
        return {}, {DEFAULT_MODULE_ID: torch.tensor(metrics.get("total_loss", 0.0))}, {}

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """Return this micro-batch's share of the objective; shares add up to the loss of the minibatch."""
        width = fwd_out[LOGP].shape[1]

        def tail(name: str) -> Tensor:
            return batch[name][:, -width:]

        advantages = batch["advantages"] if batch["advantages"].dim() == 1 else tail("advantages")
        result = policy_objective(
            fwd_out[LOGP],
            tail(OLD_LOGP),
            advantages,
            tail("loss_mask"),
            batch["loss_weight"],
            self._spec,
            ref_logp_B_T=tail(REF_LOGP) if REF_LOGP in batch else None,
            entropy_B_T=fwd_out[ENTROPY] if self._spec.entropy_coef else tail(OLD_ENTROPY),
            rollout_logp_B_T=tail("rollout_logp"),
            context={
                name.removeprefix(_CONTEXT): v if v.dim() == 1 else v[:, -width:]
                for name, v in batch.items()
                if name.startswith(_CONTEXT)
            },
        )
        self._micro_metrics.append(result.metrics)
        self._tables.append(
            update_tables(
                fwd_out[LOGP].detach(),
                tail(OLD_LOGP),
                advantages,
                tail("loss_mask"),
                batch[_ENTROPY_ROW],
                entropy_threshold=self._entropy_threshold,
                ref_logp_B_T=tail(REF_LOGP) if REF_LOGP in batch else None,
            )
        )
        if fwd_out[VALUE] is None:
            return result.loss
        critic = value_loss(
            fwd_out[VALUE],
            tail(OLD_VALUE),
            tail("returns"),
            tail("value_mask"),
            batch["value_weight"],
            clip=self._spec.value_clip,
        )
        total = result.loss + self._spec.value_coef * critic
        self._micro_metrics[-1] |= {"sum/value_loss": critic.detach(), "sum/total_loss": total.detach()}
        return total

    def _step(
        self, rows: dict[str, Tensor], minibatch: Tensor, *, number: int
    ) -> tuple[list[dict[str, Tensor]], float]:
        """Accumulate the gradient of one minibatch and step; return metrics and the norm before clipping."""
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        optimizer.zero_grad(set_to_none=True)
        self._micro_metrics: list[dict[str, Tensor]] = []
        if needs_context(self._spec):
            rows = rows | self._context(rows, minibatch, number)
        for _, micro in indexed_micro_batches(rows, minibatch, self.config.micro_batch_tokens):
            fwd_out = self.policy._forward_train(
                micro, temperature=self.config.temperature, with_entropy=bool(self._spec.entropy_coef)
            )
            self.compute_loss_for_module(
                module_id=DEFAULT_MODULE_ID, config=self.config, batch=micro, fwd_out=fwd_out
            ).backward()
        gradients = {ref: p.grad if p.grad is not None else torch.zeros_like(p) for ref, p in self._params.items()}
        collectives.all_reduce_sum(list(gradients.values()))
        norm = float(torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients.values()])))
        if math.isfinite(norm):
            self._nonfinite_in_a_row = 0
            self.apply_gradients(self.postprocess_gradients(gradients))
        else:
            self._skip_step(norm, minibatch)
        return self._micro_metrics, norm

    def _context(self, rows: dict[str, Tensor], minibatch: Tensor, number: int) -> dict[str, Tensor]:
        """Return what this minibatch's rows must know of each other under the current policy, as columns of ``rows``."""
        seed = int(np.random.SeedSequence([self.config.seed or 0, self._weights_seq_no, number]).generate_state(1)[0])
        context = minibatch_context(self._scorer, rows, minibatch, self._spec, seed=seed)
        columns = {}
        for name, value in context.items():
            columns[_CONTEXT + name] = torch.zeros(len(rows["minibatch"]), *value.shape[1:], dtype=value.dtype)
            columns[_CONTEXT + name][minibatch] = value
        return columns

    def _skip_step(self, norm: float, minibatch: Tensor) -> None:
        self._nonfinite_in_a_row += 1
        if self._nonfinite_in_a_row >= self.config.max_nonfinite_steps:
            raise LearnerError(
                f"{self._nonfinite_in_a_row} optimiser steps in a row had a non-finite gradient (norm {norm}); "
                f"training.max_nonfinite_steps={self.config.max_nonfinite_steps}. Last minibatch: "
                f"{len(minibatch)} rows from row {int(minibatch[0]) if len(minibatch) else -1}. Lower training.lr."
            )

    def _scores(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._scorer.scores(rows)

    def _log(self, key: str, value: Any) -> None:
        self.metrics.log_value((DEFAULT_MODULE_ID, key), value, reduce="mean", window=1)

    # --- what the algorithm asks for -----------------------------------------------------------------------------

    def export_weights(self) -> dict[str, Tensor]:
        """Return the policy's parameters by Hugging Face name, cloned to the CPU; tied weights appear once."""
        return {name: p.detach().cpu().clone() for name, p in self.policy.lm.named_parameters()}

    def score_rows(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the scores of rows as :meth:`RowScorer.scores` has them, for advantages that need them.

        Args:
            columns: ``input_ids``, ``attention_mask``, ``loss_mask`` [B, T].
        """
        rows = {name: torch.from_numpy(value).to(self._device) for name, value in columns.items()}
        return {name: value.cpu().numpy() for name, value in self._scores(rows).items()}

    @torch.no_grad()
    def score_sequences(self, sequences: list[tuple[list[int], list[int]]], temperature: float) -> list[list[float]]:
        """Return the log-probs of each response under the current policy.

        Args:
            sequences: Pairs of prompt ids and response ids.
            temperature: Divides the logits, as in the sampler.
        """
        scores = []
        for prompt, response in sequences:
            ids = torch.tensor([prompt + response], device=self._device)
            found = token_scores(self.policy.lm, ids, torch.ones_like(ids), last=len(response), temperature=temperature)
            scores.append(found.logp_B_K[0].tolist())
        return scores
