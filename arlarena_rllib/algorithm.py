"""ARLArena: one iteration is rollout, filtering, advantages, update, weight sync; read `training_step` first."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pyarrow.fs import LocalFileSystem
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME, TIMERS
from ray.rllib.utils.typing import ResultDict, StateDict
from ray.tune.result import DONE
from torch import Tensor

from arlarena_rllib.collapse_watch import CollapseWatch, measure_prompt_dependence
from arlarena_rllib.config import ARLArenaConfig
from arlarena_rllib.diagnostics import group_uniformity, success_by_task_type
from arlarena_rllib.errors import RolloutError, ServingError
from arlarena_rllib.evaluation import PanelResult, panel_episodes, summarise_panel
from arlarena_rllib.inert_watch import InertWatch, row_features
from arlarena_rllib.learner.batching import build_learner_batch, scored_rows
from arlarena_rllib.learner.link import LearnerLink
from arlarena_rllib.learner.turn_advantages import turns_of_rows
from arlarena_rllib.objectives import GroupFilter, GroupOutcome, ObjectiveSpec
from arlarena_rllib.rollout.agent_loop import EpisodeSpec, RolloutSettings
from arlarena_rllib.rollout.codec import TextCodec
from arlarena_rllib.rollout.collector import Collected, EpisodeCollector
from arlarena_rllib.rollout.envs import bare_text_env
from arlarena_rllib.rollout.metrics import trajectory_metrics, version_lag
from arlarena_rllib.serving import GenerationRequest, Policy
from arlarena_rllib.trajectory import APPEND, TokenBatch, Trajectory, TrajectoryGroup, turn_anchors
from arlarena_rllib.trajectory_recorder import FOLDER, TrajectoryRecorder
from arlarena_rllib.whole_checkpoint import MANIFEST, cannot_write, write_manifest
from env_connectors import TaskPanel

GROUPS, SYNC, EVALUATION_BEFORE = "groups", "sync", "evaluation_before"


class ARLArena(Algorithm):
    """Trains a multi-turn text agent with the method that ``config.objective_spec()`` describes."""

    _spec: ObjectiveSpec
    _panel: TaskPanel
    _codec: TextCodec
    _policy: Policy
    _collector: EpisodeCollector
    _learners: LearnerLink
    _watch: CollapseWatch
    _settings: RolloutSettings
    _version: int
    _held: deque[tuple[int, dict[str, Tensor]]]
    _cursor: int
    _inert: InertWatch
    _notices: list[str]
    _recorder: TrajectoryRecorder
    _probe_prompts: list[list[int]]

    @classmethod
    def get_default_config(cls) -> ARLArenaConfig:
        """Return a fresh :class:`ARLArenaConfig`."""
        return ARLArenaConfig()

    # --- one iteration -------------------------------------------------------------------------------------------

    def training_step(self) -> None:
        """Collect groups until the filter is content, weigh them, update the policy, publish the new weights."""
        if self.iteration == 0 and self.config.evaluate_before_training and self.config.evaluation_interval:
            self._log((EVALUATION_BEFORE, ENV_RUNNER_RESULTS), self.evaluate()[ENV_RUNNER_RESULTS])
        with self._timed("rollout_s"):
            groups = self._collect_groups()
        if groups:
            with self._timed("scoring_s"):
                rows = scored_rows(groups, self._spec, self._learners.scores, pad_id=self._codec.pad_id)
            with self._timed("batching_s"):
                batch, metrics = build_learner_batch(
                    rows,
                    self._spec,
                    num_minibatches=self.config.num_minibatches,
                    seed=self.config.seed,
                    iteration=self.iteration,
                    anchor_texts=turn_anchors(groups) if "anchor_texts" in self._spec.needs() else None,
                    turns=turns_of_rows(groups, rows) if self._weighs_turns_of_rows else None,
                )
                self._log(("batch",), metrics | {"skipped_updates": float(not len(batch["minibatch"]))})
                self._notices += self._inert.note(row_features(self._spec, metrics))
            if len(batch["minibatch"]):
                with self._timed("update_s"):
                    self._update(self._recorder.marked(batch))
            self._measure_prompt_dependence(groups)
            self._probe_prompts = _short_prompts(groups, self.config.sync_check_sequences) or self._probe_prompts
            with self._timed("weight_sync_s"):
                self._publish()
        self._notices += self._recorder.write(
            self.iteration + 1, lambda: self._learners.ask_each("recorded_log_ratios")
        )
        self._log((), {"weight_version": float(self._version), "task_cursor": float(self._cursor)})

    def _collect_groups(self) -> list[TrajectoryGroup]:
        """Sample groups, offer them to the filter, sample what is missing, as often as the filter allows."""
        target = self.config.groups_per_iteration
        chosen = GroupFilter(self._spec, target_groups=target, iteration=self.iteration)
        kept: list[TrajectoryGroup] = []
        everything: list[Trajectory] = []
        outcomes: list[GroupOutcome] = []
        failed_groups = 0
        while chosen.needs_more:
            groups, collected = self._sample_groups(chosen.next_size)
            everything += collected.trajectories
            usable = [g for g in groups if len(g.trained) >= self._least_group_size]
            failed_groups += len(groups) - len(usable)
            offered = [
                GroupOutcome(
                    returns=tuple(t.episode_return for t in g.trained),
                    successes=tuple(t.success for t in g.trained),
                )
                for g in usable
            ]
            outcomes += offered
            taken = chosen.offer(offered)
            kept += [usable[i] for i in taken]
            self._log_serving(collected)
        if not any(not t.stop_reason.is_failed_episode for t in everything):
            raise RolloutError(
                f"all {len(everything)} episodes of iteration {self.iteration} failed; the first: "
                f"{everything[0].stop_reason.value}: {everything[0].error}"
            )
        if not any(t.turns for t in everything):
            nothing_fits = (
                f"none of the {len(everything)} episodes of iteration {self.iteration} has a turn: even their first prompts do "
                f"not fit into serving.max_model_len={self.config.max_model_len} beside a reply of "
                f"env_runners.max_response_tokens={self.config.max_response_tokens}. Remedy: a larger max_model_len."
            )
            if self.iteration == 0:  # A run that begins so would never train; later ones may have other tasks.
                raise RolloutError(nothing_fits)
            self._notices.append(nothing_fits)
        self._log((GROUPS,), group_uniformity(outcomes))
        self._log_rollouts(everything, kept, chosen, failed_groups)
        self._recorder.begin(everything, kept)
        return kept

    def _sample_groups(self, count: int) -> tuple[list[TrajectoryGroup], Collected]:
        """Run ``count`` new groups on the next training tasks."""
        first = self._cursor
        tasks, self._cursor = self._panel.draw("train", self._cursor, count, self.config.seed)
        episodes = [
            EpisodeSpec(first + offset, member, task, self._episode_seed(first + offset, member))
            for offset, task in enumerate(tasks)
            for member in range(self.config.group_size)
        ]
        collected = self._collector.collect(episodes, self._settings)
        groups = [TrajectoryGroup(first + offset, task, []) for offset, task in enumerate(tasks)]
        for trajectory in collected.trajectories:
            groups[trajectory.group_id - first].trajectories.append(trajectory)
        return groups, collected

    def _episode_seed(self, group: int, member: int) -> int:
        # The cursor counts groups over the whole run, so no two episodes share a seed and a resumed run repeats none.
        state = np.random.SeedSequence([self.config.seed, 0x726F, group, member]).generate_state(1)
        return int(state[0] % 2**31)

    def _update(self, batch: TokenBatch) -> None:
        steps = self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0)
        results = self._learners.update(batch, {NUM_ENV_STEPS_SAMPLED_LIFETIME: steps})
        self.metrics.aggregate(results, key="learners")

    def step(self) -> ResultDict:
        """Run one iteration as RLlib does; then the alarm looks at its result, and may end the trial.

        ``notices`` in the result holds what a person should read: texts, also given as warnings.
        """
        result = super().step()
        self._notices += self._watch.judge(self.iteration + 1, result)
        if self._watch.has_fired and self.config.stop_on_collapse:
            result[DONE] = True
        for notice in self._notices:
            warnings.warn(notice, stacklevel=2)
        result["notices"], self._notices = self._notices, []
        return result

    def _measure_prompt_dependence(self, groups: Sequence[TrajectoryGroup]) -> None:
        every = self.config.prompt_dependence_interval
        if every and (self.iteration + 1) % every == 0:
            seed = int(np.random.SeedSequence([self.config.seed, 0x7064, self.iteration]).generate_state(1)[0])
            self._log(("prompts",), measure_prompt_dependence(groups, self._score_sequences, seed=seed))

    def _score_sequences(self, sequences: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        return self._learners.ask("score_sequences", sequences, self.config.temperature)

    # --- weights and the sampler = learner check -----------------------------------------------------------------

    def _publish(self, version: int | None = None) -> None:
        """Publish the learner's weights and compare sampler and learner on a few sequences.

        With ``weight_lag`` the sampler gets the weights of so many versions before, and cannot be compared.
        """
        self._version = self._version + 1 if version is None else version
        weights = self._learners.ask("export_weights")
        if self.config.weight_lag:
            self._held.append((self._version, weights))
            self._policy.publish(*self._held[0])
            return
        self._policy.publish(self._version, weights)
        if self.config.sync_check_sequences:
            self._check_sync()

    def _check_sync(self) -> None:
        requests = [
            GenerationRequest(
                prompt_ids=prompt,
                max_tokens=min(16, self.config.max_response_tokens),
                temperature=self.config.temperature,
                seed=number,
                stop_token_ids=self._codec.stop_ids,
            )
            for number, prompt in enumerate(self._probe_prompts)
        ]
        worst = 0.0
        for results in self._policy.probe(requests):
            for result in results:
                if result.is_error:
                    raise ServingError(f"the sampler = learner check failed to generate: {result.error}")
            sequences = [(q.prompt_ids, r.token_ids) for q, r in zip(requests, results, strict=True)]
            scores = self._score_sequences(sequences)
            for score, result in zip(scores, results, strict=True):
                worst = max(worst, float(np.abs(np.subtract(score, result.logprobs)).max()))
        self._log((SYNC,), {"logp_abs_diff_max": worst})
        if worst > self.config.sync_check_bound:
            raise ServingError(
                f"after publishing weight version {self._version} sampler and learner differ by {worst:.3g} in log-prob, "
                f"above serving.sync_check_bound={self.config.sync_check_bound:g}. The engine does not run these weights."
            )

    # --- evaluation ----------------------------------------------------------------------------------------------

    def evaluate(self, parallel_train_future: Any = None) -> ResultDict:
        """Evaluate the served policy on the configured panel; RLlib calls this every ``evaluation_interval``."""
        result = self.evaluate_panel(self.config.evaluation_split, self.config.evaluation_num_tasks)
        metrics = {key: float(value) for key, value in result.summary().items()}
        metrics["episode_return_mean"] = metrics["score"]
        return {ENV_RUNNER_RESULTS: metrics}

    def evaluate_panel(self, split: str, num_tasks: int, *, draws: int | None = None) -> PanelResult:
        """Return greedy and sampled success on the first ``num_tasks`` tasks of ``split``; never re-drawn."""
        tasks = getattr(self._panel, split)[:num_tasks]
        draws = self.config.evaluation_samples if draws is None else draws
        settings = self.config.rollout_settings(self.config.evaluation_temperature)
        began = time.perf_counter()
        with self._newest_weights():
            collected = self._collector.collect(panel_episodes(tasks, draws=draws, seed=self.config.seed), settings)
        self._log((TIMERS,), {"evaluation_s": time.perf_counter() - began})
        return summarise_panel(collected.trajectories, n=len(tasks))

    @contextmanager
    def _newest_weights(self) -> Iterator[None]:
        """Inside the block a sampler that is held back has the learner's weights."""
        if self._held:
            self._policy.publish(*self._held[-1])
        yield
        if self._held:
            self._policy.publish(*self._held[0])

    # --- life cycle ----------------------------------------------------------------------------------------------

    def setup(self, config: ARLArenaConfig) -> None:
        """Start the engine, then RLlib's runners and learners, then publish the first weights."""
        self._version, self._cursor, self._inert = 0, 0, InertWatch()
        self._notices = []
        self._held = deque(maxlen=self.config.weight_lag + 1)
        self._spec = self.config.objective_spec()
        self._least_group_size = self.config.least_group_size()
        self._weighs_turns_of_rows = self.config.trajectory_mode == APPEND and "turns" in self._spec.needs()
        self._panel = bare_text_env(self.config.env, self.config.env_config).tasks()
        self._codec = TextCodec(self.config.model_path)
        self._settings = self.config.rollout_settings()
        self._recorder = TrajectoryRecorder(
            self.config.record_trajectories,
            (self._local_trial_folder() or Path(self.logdir)) / FOLDER,
            self._spec,
            self._codec.tokenizer.decode,
            {"env": str(self.config.env), "method": self.config.method},
        )
        self._policy = self.config.start_policy(
            f"policy-{self._trial_label()}-{time.time_ns():x}", self._codec.stop_ids
        )
        try:
            super().setup(config)
            self._learners = LearnerLink(self.learner_group, self.config.num_learners)
            self._watch = CollapseWatch(self.config.alarm_thresholds)
            self._collector = EpisodeCollector(
                self.env_runner_group, self._policy.client_spec, wait_budget_s=self.config.retry_budget_s
            )
            self._probe_prompts = [[i % 7 + 5 for i in range(8 + n)] for n in range(self.config.sync_check_sequences)]
            self._publish(version=0)
        except BaseException:
            self._policy.stop()
            raise

    @property
    def panel(self) -> TaskPanel:
        """The fixed task lists of the environment."""
        return self._panel

    def __repr__(self) -> str:
        """Say which trial this is: Ray's dashboard and logs show it beside the actor."""
        return f"{self._trial_label()}: {self.config.method} on {self.config.env}, seed {self.config.seed}"

    def _trial_label(self) -> str:
        """Return the name of the trial's folder; RLlib does not hand a trial's own name and id on to its algorithm."""
        return self._storage.trial_dir_name if self._storage is not None else type(self).__name__

    def _local_trial_folder(self) -> Path | None:
        """Return the trial's folder, if it has one that is no bucket."""
        is_local = self._storage is not None and isinstance(self._storage.storage_filesystem, LocalFileSystem)
        return Path(self._storage.trial_fs_path) if is_local else None

    def cleanup(self) -> None:
        """Stop runners and learners, then the engine."""
        super().cleanup()
        if hasattr(self, "_policy"):
            self._policy.stop()

    def save(self, checkpoint_dir: str | None = None) -> Any:
        """Write a checkpoint; of one that does not find room nothing stays.

        Raises:
            CheckpointError: it cannot be written. The message names the disk and the checkpoint that is still usable.
        """
        storage, trial_folder = self._storage, self._local_trial_folder()
        with tempfile.TemporaryDirectory() if storage and not checkpoint_dir else nullcontext(checkpoint_dir) as local:
            try:
                return super().save(local)
            except OSError as error:
                target = Path(local or tempfile.gettempdir())
                if trial_folder and (target / MANIFEST).is_file():  # whole here, so the copy of it was cut off
                    target = Path(storage.checkpoint_fs_path)
                    shutil.rmtree(target, ignore_errors=True)
                raise cannot_write(error, target, self.iteration, trial_folder) from error

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write RLlib's checkpoint and the list of its files."""
        super().save_checkpoint(checkpoint_dir)
        write_manifest(Path(checkpoint_dir))

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> StateDict:
        """Return RLlib's state and the task cursor, the weight version and the filter's memory."""
        state = super().get_state(components, not_components=not_components, **kwargs)
        state["arena"] = {
            "cursor": self._cursor,
            "version": self._version,
            "inert": self._inert.get_state(),
            "probe_prompts": self._probe_prompts,
            "panel_hash": self._panel.panel_hash,
            "alarm": self._watch.get_state(),
            "held_weights": [(v, {n: t.numpy() for n, t in weights.items()}) for v, weights in self._held],
        }
        return state

    def set_state(self, state: StateDict) -> None:
        """Restore what :meth:`get_state` returned."""
        super().set_state(state)
        if "arena" in state:
            arena = state["arena"]
            self._cursor, self._version = arena["cursor"], arena["version"]
            self._inert.set_state(arena["inert"])
            self._probe_prompts = arena["probe_prompts"]
            self._watch.set_state(arena["alarm"])
            self._held.extend(
                (version, {name: torch.from_numpy(value) for name, value in weights.items()})
                for version, weights in arena.get("held_weights", ())
            )
            if arena["panel_hash"] != self._panel.panel_hash:
                warnings.warn(
                    f"the checkpoint was trained on panel {arena['panel_hash']}, this environment has "
                    f"{self._panel.panel_hash}: results are not comparable.",
                    stacklevel=2,
                )

    def restore_from_path(self, path: Any, *args: Any, **kwargs: Any) -> None:
        """Restore a checkpoint and publish its weights under its version."""
        super().restore_from_path(path, *args, **kwargs)
        if not hasattr(self, "_collector"):
            return
        if self._held:
            self._policy.publish(*self._held[0])
        else:
            self._publish(version=self._version)

    @classmethod
    def _should_create_evaluation_env_runners(cls, eval_config: Any) -> bool:
        return False  # the training EnvRunners evaluate too

    # --- metrics -------------------------------------------------------------------------------------------------

    def _log_rollouts(
        self,
        everything: Sequence[Trajectory],
        kept: Sequence[TrajectoryGroup],
        chosen: GroupFilter,
        failed_groups: int,
    ) -> None:
        metrics = trajectory_metrics(everything) | version_lag(everything, self._version)
        good = [t for t in everything if not t.stop_reason.is_failed_episode]
        metrics |= success_by_task_type([t.task_type for t in good], [t.success for t in good])
        steps = metrics.pop("num_env_steps_sampled", 0.0)
        self._log((ENV_RUNNER_RESULTS,), metrics)
        self.metrics.log_value((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), steps, reduce="lifetime_sum")
        self.metrics.log_value((ENV_RUNNER_RESULTS, "num_episodes_lifetime"), len(everything), reduce="lifetime_sum")
        report = chosen.report()
        started = report.started + failed_groups
        self._log(
            (GROUPS,),
            {
                **{key: float(value) for key, value in report.as_metrics().items()},
                "started": float(started),
                "trained": float(len(kept)),
                "failed": float(failed_groups),
                "filtered": float(started - len(kept) - failed_groups),
            },
        )
        if report.active:
            self._notices += self._inert.note({f"filtering={self._spec.filtering!r}": not report.changed_nothing})

    def _log_serving(self, collected: Collected) -> None:
        self.metrics.log_dict(
            {key: float(value) for key, value in collected.serving.items()}, key="serving", reduce="sum", window=1
        )
        self.metrics.log_value(("fault_tolerance", "num_resubmitted_episodes"), collected.resubmitted, reduce="sum")

    def _log(self, key: tuple[str, ...], values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.metrics.log_value((*key, name), value, reduce="mean", window=1)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._log((TIMERS,), {name: time.perf_counter() - began})


def _short_prompts(groups: Sequence[TrajectoryGroup], count: int) -> list[list[int]]:
    """Return the first prompts of a few trajectories, for the next sampler = learner check."""
    return [g.trained[0].turns[0].context_ids for g in groups if g.trained][:count]
