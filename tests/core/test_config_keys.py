"""A key that does not exist, or that nothing reads, is an error on every route."""

from __future__ import annotations

from pathlib import Path

import pytest

from arlarena_rllib import ARLArenaConfig
from arlarena_rllib.errors import ConfigError
from arlarena_rllib.settings import INSTEAD_OF_RLLIB_SETTINGS, SETTINGS

ENV = "arlarena/Sokoban-6x6-1-v0"


def test_builder_keyword_misspelt_names_section_and_nearest_key() -> None:
    with pytest.raises(ConfigError, match=r"'lrr' \(section 'training'\).*Nearest: 'lr'"):
        ARLArenaConfig().training(lrr=1e-3)


def test_builder_keyword_of_another_section_says_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r"write env_runners\.group_size"):
        ARLArenaConfig().training(group_size=4)


def test_attribute_misspelt_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'gruop_size'.*Nearest: 'group_size'"):
        ARLArenaConfig().gruop_size = 4


def test_dict_route_of_tune_refuses_unknown_key_and_takes_known_one() -> None:
    with pytest.raises(ConfigError, match=r"'clip_lo' \(the config dict\).*Nearest: 'clip_low'"):
        ARLArenaConfig().update_from_dict({"clip_lo": 0.1})
    config = ARLArenaConfig().update_from_dict({"clip_low": 0.1, "lr": 1e-4, "__trial_info__": None})
    assert (config.clip_low, config.lr) == (0.1, 1e-4)


def test_whole_dict_form_is_accepted_back() -> None:
    """Tune turns a config object into a dict and back."""
    config = ARLArenaConfig().environment(ENV).training(method="sampo", clip_high=0.01)
    again = ARLArenaConfig().update_from_dict(config.to_dict())
    assert again.objective_spec() == config.objective_spec()


def test_parameter_that_the_method_never_reads_is_refused() -> None:
    config = ARLArenaConfig().environment(ENV).training(method="grpo", omega=0.5)
    with pytest.raises(ConfigError, match=r"omega=0\.5 is set, but nothing reads it.*gigpo"):
        config.check_settings()


@pytest.mark.parametrize("key", sorted(INSTEAD_OF_RLLIB_SETTINGS))
def test_unread_rllib_settings_exist_and_are_refused_when_set(key: str) -> None:
    config = ARLArenaConfig().environment(ENV)
    assert hasattr(config, key)
    setattr(config, key, 4321)
    with pytest.raises(ConfigError, match=f"{key}=4321 is set but never read"):
        config.check_settings()


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("environment", "clip_rewards", True),
        ("environment", "render_env", True),
        ("env_runners", "episode_lookback_horizon", 3),
        ("env_runners", "exploration_config", {"type": "StochasticSampling"}),
        ("reporting", "metrics_num_episodes_for_smoothing", 7),
        ("debugging", "fake_sampler", True),
        ("reporting", "log_gradients", True),
    ],
)
def test_rllib_setting_that_nothing_reads_here_is_refused(section: str, key: str, value: object) -> None:
    config = ARLArenaConfig().environment(ENV).apply_sections({section: {key: value}})
    with pytest.raises(ConfigError, match=f"{key}=.* is set but never read here"):
        config.check_settings()


def test_framework_other_than_torch_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"framework_str='tf2' is not allowed: must be one of 'torch'"):
        ARLArenaConfig().environment(ENV).framework("tf2").check_settings()


def test_sections_of_rllib_alone_are_strict_too_and_take_positional_values() -> None:
    with pytest.raises(ConfigError, match=r"'num_gpu' \(section 'resources'\) is not a setting\. Nearest: 'num_gpus'"):
        ARLArenaConfig().resources(num_gpu=1)
    assert ARLArenaConfig().framework("torch").debugging(seed=3).seed == 3


def test_item_assignment_is_as_strict_as_the_dict() -> None:
    config = ARLArenaConfig()
    config["clip_low"] = 0.1
    assert config.clip_low == 0.1
    with pytest.raises(ConfigError, match=r"'clip_lo' \(the config dict\).*Nearest: 'clip_low'"):
        config["clip_lo"] = 0.1
    with pytest.raises(ConfigError, match="keys are texts"):
        config.update_from_dict({1: 1})


@pytest.mark.parametrize("value", [3, None, ["a"], {3: 4}])
def test_env_config_that_is_no_mapping_of_names_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"environment\.env_config=.* must be a mapping with text keys"):
        ARLArenaConfig().environment(ENV, env_config=value)


@pytest.mark.parametrize("value", [3, ["a"], dict])
def test_env_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"environment\.env=.* must be a text: the Gymnasium id"):
        ARLArenaConfig().environment(value).check_settings()


@pytest.mark.parametrize("seed", [-1, 2**31, 10**30])
def test_seed_out_of_range_is_refused_with_the_range(seed: int) -> None:
    with pytest.raises(ConfigError, match=rf"debugging\.seed={seed} .* an integer >= 0 and <= 2147483647"):
        ARLArenaConfig().environment(ENV).debugging(seed=seed).check_settings()
    ARLArenaConfig().environment(ENV).debugging(seed=2**31 - 1).check_settings()


def test_section_cannot_be_overwritten_by_a_value() -> None:
    with pytest.raises(ConfigError, match=r"'training' is a section: call config\.training"):
        ARLArenaConfig().training = 3


def test_all_problems_are_reported_at_once() -> None:
    config = ARLArenaConfig().environment(ENV).env_runners(groups_per_iteration=0, group_size="8")
    config.train_batch_size = 3
    with pytest.raises(ConfigError) as caught:
        config.check_settings()
    text = str(caught.value)
    assert "groups_per_iteration=0" in text and "group_size='8'" in text and "train_batch_size=3" in text


def test_zero_groups_message_names_key_value_and_what_is_allowed() -> None:
    config = ARLArenaConfig().environment(ENV).env_runners(groups_per_iteration=0)
    with pytest.raises(
        ConfigError, match=r"env_runners\.groups_per_iteration=0 is not allowed: must be an integer >= 1"
    ):
        config.check_settings()


@pytest.mark.parametrize("method", ["grpo", "rloo", "gigpo", "empg", "reinforce_pp_baseline", "dapo"])
def test_singleton_groups_are_refused_where_episodes_are_compared(method: str) -> None:
    config = ARLArenaConfig().environment(ENV).env_runners(group_size=1).training(method=method)
    with pytest.raises(ConfigError, match=rf"group_size=1: method='{method}' .*at least 2"):
        config.check_settings()


@pytest.mark.parametrize("method", ["ppo", "turn_ppo", "reinforce_pp"])
def test_methods_without_groups_take_single_episodes(method: str) -> None:
    ARLArenaConfig().environment(ENV).env_runners(group_size=1).training(method=method).check_settings()


def test_unknown_environment_names_the_nearest_and_the_shipped_ones() -> None:
    with pytest.raises(ConfigError, match=r"arlarena/Sokban-6x6-1-v0.*arlarena/Sokoban-6x6-1-v0"):
        ARLArenaConfig().environment("arlarena/Sokban-6x6-1-v0").check_settings()


def test_missing_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    config = ARLArenaConfig().environment(ENV).policy(model_path=str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"policy\.model_path: model path .*nothing' is not a directory"):
        config.validate()


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("training", "lr", -1),
        ("training", "lr", "abc"),
        ("training", "lr", None),
        ("training", "grad_clip", -1),
        ("training", "num_epochs", 0),
        ("training", "num_epochs", 1.5),
        ("training", "adam_betas", [2, 3]),
        ("env_runners", "num_env_runners", "abc"),
        ("learners", "num_learners", -1),
        ("evaluation", "evaluation_interval", 0),
        ("debugging", "seed", -1),
    ],
)
def test_value_that_rllib_would_accept_and_fail_on_later_is_refused(section: str, key: str, value: object) -> None:
    config = ARLArenaConfig().environment(ENV).apply_sections({section: {key: value}})
    with pytest.raises(ConfigError, match=rf"{section}\.{key}=.* is not allowed: must be"):
        config.check_settings()


def test_unknown_method_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"method='sampoo' is not known\. Nearest: 'sampo'\. Allowed: grpo, grpo_st"):
        ARLArenaConfig().environment(ENV).training(method="sampoo").check_settings()


def test_engine_in_process_with_remote_runners_is_refused() -> None:
    config = ARLArenaConfig().environment(ENV).serving(num_replicas=0).env_runners(num_env_runners=1)
    with pytest.raises(ConfigError, match="num_replicas=0"):
        config.check_settings()


def test_every_setting_accepts_its_own_default() -> None:
    assert len(SETTINGS) >= 30
    for key, setting in SETTINGS.items():
        setting.validate(key, setting.default)


def test_resolved_config_names_every_method_parameter() -> None:
    resolved = ARLArenaConfig().environment(ENV).training(method="sampo").resolved()
    assert resolved["training"]["clipping"] == "gspo"
    assert resolved["training"]["omega"] == 1.0
    assert resolved["environment"]["env"] == ENV


def test_token_advantages_under_a_sequence_ratio_are_refused_in_a_configuration() -> None:
    config = ARLArenaConfig().training(method="sampo", advantage="gae_token")
    with pytest.raises(ConfigError, match=r"training \(method='sampo'\): clipping='gspo' needs row_advantages"):
        config.objective_spec()
