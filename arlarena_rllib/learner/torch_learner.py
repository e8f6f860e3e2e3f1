"""PolicyTorchLearner: optimises a causal LM with the four-axis objective on rows packed by token budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor

from arlarena_rllib.errors import LearnerError
from arlarena_rllib.learner.causal_lm_module import ENTROPY, LOGP, CausalLMModule
from arlarena_rllib.learner.logprobs import token_scores
from arlarena_rllib.learner.packing import micro_batches
from arlarena_rllib.models.load import load_causal_lm
from arlarena_rllib.objectives import finish_metrics, merge_metrics, mismatch_metrics, policy_objective

_LOSS_KEYS = ("policy_loss", "kl_loss", "entropy_loss", "total_loss")


class PolicyTorchLearner(TorchLearner):
    """One update = old and reference log-probs of all rows, then ``num_epochs`` x ``num_minibatches`` AdamW steps.

    The batch holds the columns of :data:`~arlarena_rllib.trajectory.TokenBatch` and ``advantages`` float32 [B],
    ``loss_weight`` float32 [B] (global denominators), ``minibatch`` int64 [B]. Gradients of micro-batches and of
    learners are summed, so the result does not depend on how the rows were split.
    """

    def build(self) -> None:
        """Load policy and, when the objective has a KL term, the frozen reference."""
        super().build()
        self._spec = self.config.objective_spec()
        self._nonfinite_in_a_row = 0
        self._reference: torch.nn.Module | None = None
        if self._spec.kl_coef:
            path = self.config.reference_path or self.config.model_path
            self._reference = load_causal_lm(path).requires_grad_(False).to(self._device)

    @property
    def policy(self) -> CausalLMModule:
        """The module itself."""
        return self._module[DEFAULT_MODULE_ID]

    def _make_modules_ddp_if_necessary(self) -> None:
        # Gradients are summed once per minibatch in `_step`, so DDP's hooks on every backward pass are not wanted.
        if self._is_distributed:
            for parameter in self.policy.parameters():
                torch.distributed.broadcast(parameter.data, src=0)

    @property
    def _is_distributed(self) -> bool:
        return self.config.num_learners > 1

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
        rows["length"] = rows["attention_mask"].sum(dim=1)
        mismatch = self._score_rows(rows)
        sums: list[dict[str, Tensor]] = []
        steps = int(rows["minibatch"].max()) + 1 if len(rows["minibatch"]) else 0
        steps = self._agree_on_maximum(steps)
        norms: list[float] = []
        skipped = 0
        for _ in range(self.config.num_epochs):
            for index in range(steps):
                result, norm = self._step(rows, torch.nonzero(rows["minibatch"] == index).flatten())
                sums += result
                norms.append(norm)
                skipped += not math.isfinite(norm)
        metrics = finish_metrics(merge_metrics(self._gather(sums)))
        metrics.update(finish_metrics(merge_metrics(self._gather([mismatch]))))
        total = len(norms)
        metrics.update({key: metrics[key] / total for key in _LOSS_KEYS if key in metrics})
        finite = [n for n in norms if math.isfinite(n)]
        metrics["grad_norm"] = sum(finite) / len(finite) if finite else math.nan
        metrics["grad_norm_max"] = max(finite, default=math.nan)
        metrics["nonfinite_steps"] = float(skipped)
        for key, value in metrics.items():
            self._log(key, value)
        return {}, {DEFAULT_MODULE_ID: torch.tensor(metrics.get("total_loss", 0.0))}, {}

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: dict[str, Any]
    ) -> Tensor:
        """Return this micro-batch's share of the objective; shares add up to the loss of the minibatch."""
        width = fwd_out[LOGP].shape[1]
        result = policy_objective(
            fwd_out[LOGP],
            batch["old_logp"][:, -width:],
            batch["advantages"],
            batch["loss_mask"][:, -width:],
            batch["loss_weight"],
            self._spec,
            ref_logp_B_T=batch["ref_logp"][:, -width:] if self._reference is not None else None,
            entropy_B_T=fwd_out[ENTROPY] if self._spec.entropy_coef else batch["old_entropy"][:, -width:],
        )
        self._micro_metrics.append(result.metrics)
        return result.loss

    def _step(self, rows: dict[str, Tensor], minibatch: Tensor) -> tuple[list[dict[str, Tensor]], float]:
        """Accumulate the gradient of one minibatch and step; return metrics and the norm before clipping."""
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        optimizer.zero_grad(set_to_none=True)
        self._micro_metrics: list[dict[str, Tensor]] = []
        for micro in self._micro(rows, minibatch):
            fwd_out = self.policy._forward_train(
                micro, temperature=self.config.temperature, with_entropy=bool(self._spec.entropy_coef)
            )
            self.compute_loss_for_module(
                module_id=DEFAULT_MODULE_ID, config=self.config, batch=micro, fwd_out=fwd_out
            ).backward()
        gradients = {ref: p.grad if p.grad is not None else torch.zeros_like(p) for ref, p in self._params.items()}
        if self._is_distributed:
            _all_reduce_sum(list(gradients.values()))
        norm = float(torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients.values()])))
        if math.isfinite(norm):
            self._nonfinite_in_a_row = 0
            self.apply_gradients(self.postprocess_gradients(gradients))
        else:
            self._skip_step(norm, minibatch)
        return self._micro_metrics, norm

    def _skip_step(self, norm: float, minibatch: Tensor) -> None:
        self._nonfinite_in_a_row += 1
        if self._nonfinite_in_a_row >= self.config.max_nonfinite_steps:
            raise LearnerError(
                f"{self._nonfinite_in_a_row} optimiser steps in a row had a non-finite gradient (norm {norm}); "
                f"training.max_nonfinite_steps={self.config.max_nonfinite_steps}. Last minibatch: "
                f"{len(minibatch)} rows from row {int(minibatch[0]) if len(minibatch) else -1}. Lower training.lr."
            )

    @torch.no_grad()
    def _score_rows(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add ``old_logp``, ``old_entropy`` and ``ref_logp`` [B, T]; return the sampler-learner mismatch as sums."""
        shape = rows["input_ids"].shape
        for name in ("old_logp", "old_entropy", "ref_logp"):
            rows[name] = torch.zeros(shape, dtype=torch.float32, device=self._device)
        everything = torch.arange(shape[0], device=self._device)
        for indices, micro in self._indexed_micro(rows, everything):
            fwd_out = self.policy._forward_train(micro, temperature=self.config.temperature, with_entropy=True)
            width = fwd_out[LOGP].shape[1]
            rows["old_logp"][indices, -width:] = fwd_out[LOGP]
            rows["old_entropy"][indices, -width:] = fwd_out[ENTROPY]
            if self._reference is not None:
                reference = token_scores(
                    self._reference,
                    micro["input_ids"],
                    micro["attention_mask"],
                    last=width,
                    temperature=self.config.temperature,
                )
                rows["ref_logp"][indices, -width:] = reference.logp_B_K
        return mismatch_metrics(rows["old_logp"], rows["rollout_logp"], rows["loss_mask"])

    def _indexed_micro(self, rows: dict[str, Tensor], indices: Tensor) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        lengths = rows["length"][indices].cpu().numpy()
        for part in micro_batches(lengths, self.config.micro_batch_tokens):
            chosen = indices[torch.from_numpy(part).to(indices.device)]
            width = int(lengths[part].max())
            yield (
                chosen,
                {name: v[chosen][:, -width:] if v.dim() == 2 else v[chosen] for name, v in rows.items()},
            )

    def _micro(self, rows: dict[str, Tensor], indices: Tensor) -> Iterator[dict[str, Tensor]]:
        return (micro for _, micro in self._indexed_micro(rows, indices))

    # --- several learners ----------------------------------------------------------------------------------------

    def _agree_on_maximum(self, value: int) -> int:
        if not self._is_distributed:
            return value
        tensor = torch.tensor(value, device=self._device)
        torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX)
        return int(tensor)

    def _gather(self, sums: list[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
        if not self._is_distributed:
            return sums
        parts: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(parts, merge_metrics(sums))
        return parts

    def _log(self, key: str, value: Any) -> None:
        self.metrics.log_value((DEFAULT_MODULE_ID, key), value, reduce="mean", window=1)

    # --- what the algorithm asks for -----------------------------------------------------------------------------

    def export_weights(self) -> dict[str, Tensor]:
        """Return the policy's parameters by Hugging Face name, cloned to the CPU; tied weights appear once."""
        return {name: p.detach().cpu().clone() for name, p in self.policy.lm.named_parameters()}

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


def _all_reduce_sum(gradients: list[Tensor]) -> None:
    """Sum the gradients over all learners, in one flat message."""
    flat = torch.cat([g.reshape(-1) for g in gradients])
    torch.distributed.all_reduce(flat, op=torch.distributed.ReduceOp.SUM)
    offset = 0
    for gradient in gradients:
        gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
        offset += gradient.numel()
