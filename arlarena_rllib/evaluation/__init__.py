"""Evaluation on fixed held-out panels: the same tasks every time, greedy and sampled, with intervals."""

from arlarena_rllib.evaluation.panel import PanelResult, paired_difference, panel_episodes, summarise_panel

__all__ = ["PanelResult", "paired_difference", "panel_episodes", "summarise_panel"]
