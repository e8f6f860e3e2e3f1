"""Multi-turn text environments for Gymnasium; importing this registers all ids and loads no engine."""

import env_connectors.alfworld
import env_connectors.mixture
import env_connectors.search_qa
import env_connectors.sokoban
import env_connectors.tir_math
import env_connectors.toy
import env_connectors.webshop  # noqa: F401
from env_connectors.errors import EnvCheckError, EnvConfigError, EnvConnectorError, PanelError, TaskNotFoundError
from env_connectors.parsing import ParsedReply, parse_reply, render_reply
from env_connectors.prompting import Message, PastTurn, PromptConfig, render_followup, render_prompt
from env_connectors.reply_form import THINK_ACTION, ReplyForm
from env_connectors.reward_parts import RewardParts
from env_connectors.task_panel import Task, TaskPanel, TaskSet, build_panel
from env_connectors.text_env import StopReason, TextEnv, TextStep, list_text_envs, make_text_env, register_text_env

__all__ = [
    "EnvCheckError",
    "EnvConfigError",
    "EnvConnectorError",
    "Message",
    "PanelError",
    "ParsedReply",
    "PastTurn",
    "PromptConfig",
    "ReplyForm",
    "RewardParts",
    "StopReason",
    "THINK_ACTION",
    "Task",
    "TaskNotFoundError",
    "TaskPanel",
    "TaskSet",
    "TextEnv",
    "TextStep",
    "build_panel",
    "list_text_envs",
    "make_text_env",
    "parse_reply",
    "register_text_env",
    "render_followup",
    "render_prompt",
    "render_reply",
]
