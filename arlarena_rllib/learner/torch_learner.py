"""PolicyTorchLearner: optimises a causal LM with the four-axis objective on rows packed by token budget."""

from __future__ import annotations

import math
import warnings
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
from arlarena_rllib.learner.recorded_rows import RECORDED, RowLogRatios, recorded_log_ratios
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
_SHOWN_ROWS = 8
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
        if self.config.old_policy == "sampler":
            rows[OLD_LOGP] = rows["rollout_logp"]
        rows[_ENTROPY_ROW] = row_mean_entropy(rows[OLD_ENTROPY], rows["loss_mask"])
        self._entropy_threshold = entropy_threshold(collectives.gathered(rows[_ENTROPY_ROW].cpu()))
        self._tables: list[dict[str, Tensor]] = []
        self._recorded_log_ratios: RowLogRatios = {}
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
        batch = _cut_to(fwd_out, batch)
        loss, metrics = self._objective(batch, fwd_out)
        self._micro_metrics.append(metrics)
        if RECORDED in batch:
            self._recorded_log_ratios |= recorded_log_ratios(fwd_out[LOGP].detach(), batch)
        self._tables.append(
            update_tables(
                fwd_out[LOGP].detach(),
                batch[OLD_LOGP],
                batch["advantages"],
                batch["loss_mask"],
                batch[_ENTROPY_ROW],
                entropy_threshold=self._entropy_threshold,
                ref_logp_B_T=batch.get(REF_LOGP),
            )
        )
        return loss

    def _objective(self, batch: dict[str, Tensor], fwd_out: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of some rows, whose columns are as wide as their scores, and its raw metrics."""
        result = policy_objective(
            fwd_out[LOGP],
            batch[OLD_LOGP],
            batch["advantages"],
            batch["loss_mask"],
            batch["loss_weight"],
            self._spec,
            ref_logp_B_T=batch.get(REF_LOGP),
            entropy_B_T=fwd_out[ENTROPY] if self._spec.entropy_coef else batch[OLD_ENTROPY],
            rollout_logp_B_T=batch["rollout_logp"],
            context={n.removeprefix(_CONTEXT): v for n, v in batch.items() if n.startswith(_CONTEXT)},
        )
        if fwd_out[VALUE] is None:
            return result.loss, result.metrics
        critic = value_loss(
            fwd_out[VALUE],
            batch[OLD_VALUE],
            batch["returns"],
            batch["value_mask"],
            batch["value_weight"],
            clip=self._spec.value_clip,
        )
        total = result.loss + self._spec.value_coef * critic
        return total, result.metrics | {"sum/value_loss": critic.detach(), "sum/total_loss": total.detach()}

    def _step(
        self, rows: dict[str, Tensor], minibatch: Tensor, *, number: int
    ) -> tuple[list[dict[str, Tensor]], float]:
        """Accumulate the gradient of one minibatch and step; return metrics and the norm before clipping.

        A step whose loss or gradient is not finite is skipped, by all learners alike, and its norm is not finite.
        """
        optimizer = self.get_optimizer(DEFAULT_MODULE_ID)
        optimizer.zero_grad(set_to_none=True)
        self._micro_metrics: list[dict[str, Tensor]] = []
        if needs_context(self._spec):
            rows = rows | self._context(rows, minibatch, number)
        total = torch.zeros((), device=self._device)
        for _, micro in indexed_micro_batches(rows, minibatch, self.config.micro_batch_tokens):
            loss = self.compute_loss_for_module(
                module_id=DEFAULT_MODULE_ID, config=self.config, batch=micro, fwd_out=self._forward(micro)
            )
            loss.backward()
            total += loss.detach()
        gradients = {ref: p.grad if p.grad is not None else torch.zeros_like(p) for ref, p in self._params.items()}
        collectives.all_reduce_sum([*gradients.values(), total])
        norm = float(torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients.values()])))
        if math.isfinite(norm) and math.isfinite(total):
            self._nonfinite_in_a_row = 0
            self.apply_gradients(self.postprocess_gradients(gradients))
            return self._micro_metrics, norm
        self._skip_step(float(total), norm, rows, minibatch)
        return self._micro_metrics, math.nan

    def _forward(self, micro: dict[str, Tensor]) -> dict[str, Any]:
        return self.policy._forward_train(
            micro, temperature=self.config.temperature, with_entropy=bool(self._spec.entropy_coef)
        )

    def _context(self, rows: dict[str, Tensor], minibatch: Tensor, number: int) -> dict[str, Tensor]:
        """Return what this minibatch's rows must know of each other under the current policy, as columns of ``rows``."""
        seed = int(np.random.SeedSequence([self.config.seed or 0, self._weights_seq_no, number]).generate_state(1)[0])
        context = minibatch_context(self._scorer, rows, minibatch, self._spec, seed=seed)
        columns = {}
        for name, value in context.items():
            columns[_CONTEXT + name] = value.new_zeros(len(rows["minibatch"]), *value.shape[1:])
            columns[_CONTEXT + name][minibatch] = value
        return columns

    def _skip_step(self, loss: float, norm: float, rows: dict[str, Tensor], minibatch: Tensor) -> None:
        """Warn about a step that is not taken and name the rows to blame; raise after too many in a row."""
        self._nonfinite_in_a_row += 1
        bad = [row for part in collectives.gathered(self._nonfinite_rows(rows, minibatch)) for row in part]
        shown = "; ".join(bad[:_SHOWN_ROWS]) or "none by itself, so the sum or the backward pass overflowed"
        more = f"; and {len(bad) - _SHOWN_ROWS} more" if len(bad) > _SHOWN_ROWS else ""
        what = f"loss {loss:g}, gradient norm {norm:g}; non-finite rows: {shown}{more}."
        if self._nonfinite_in_a_row >= self.config.max_nonfinite_steps:
            raise LearnerError(
                f"{self._nonfinite_in_a_row} optimiser steps in a row had a non-finite loss or gradient "
                f"(training.max_nonfinite_steps={self.config.max_nonfinite_steps}). Last minibatch: {what} "
                "Lower training.lr."
            )
        if collectives.rank() == 0:
            warnings.warn(f"optimiser step skipped: {what}", stacklevel=2)

    @torch.no_grad()
    def _nonfinite_rows(self, rows: dict[str, Tensor], minibatch: Tensor) -> list[str]:
        """Return descriptions of this learner's rows with a non-finite log-prob or loss; one forward pass a row."""
        found = []
        for _, micro in indexed_micro_batches(rows, minibatch, token_budget=1):
            fwd_out = self._forward(micro)
            row = _cut_to(fwd_out, micro)
            is_finite = torch.isfinite(fwd_out[LOGP][row["loss_mask"].bool()]).all()
            what = "loss" if is_finite else "log-prob"
            if not (is_finite and torch.isfinite(self._objective(row, fwd_out)[0])):
                found.append(f"trajectory_id={int(row['trajectory_id'])} turn_index={int(row['turn_index'])} ({what})")
        return found

    def _scores(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._scorer.scores(rows)

    def _log(self, key: str, value: Any) -> None:
        self.metrics.log_value((DEFAULT_MODULE_ID, key), value, reduce="mean", window=1)

    # --- what the algorithm asks for -----------------------------------------------------------------------------

    def export_weights(self) -> dict[str, Tensor]:
        """Return the policy's parameters by Hugging Face name, cloned to the CPU; tied weights appear once."""
        return {name: p.detach().cpu().clone() for name, p in self.policy.lm.named_parameters()}

    def recorded_log_ratios(self) -> RowLogRatios:
        """Return, for this learner's recorded rows, log(π / π_old) of each policy token as the last step saw it."""
        return self._recorded_log_ratios

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


def _cut_to(fwd_out: dict[str, Any], batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the columns of ``batch``, those of tokens only as far back as tokens were scored."""
    width = fwd_out[LOGP].shape[1]
    return {name: v[:, -width:] if v.dim() == 2 else v for name, v in batch.items()}
