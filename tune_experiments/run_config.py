"""Reads a run: one YAML file and `section.key=value` overrides, strict, with file and line in every complaint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os.path import isfile
from pathlib import Path
from typing import Any

from arlarena_rllib.config import ALL_SETTINGS, SECTIONS, ARLArenaConfig, section_of
from arlarena_rllib.errors import ConfigError, nearest
from arlarena_rllib.warmstart.cloning import CloningConfig
from tune_experiments.yaml_file import Places, place_of, read_value, read_yaml, with_places

Sections = dict[str, dict[str, Any]]
CONFIGS = Path(__file__).parent / "configs"
STUDIES = CONFIGS / "studies"


@dataclass(frozen=True)
class RunSettings:
    """Section ``run``: what is around the training itself."""

    name: str = "run"
    """Name of the folder below ``storage_path`` and of the MLflow run."""
    storage_path: str = "runs"
    upload_to: str | None = None
    """Where a copy of the folder is kept, a URI that pyarrow or fsspec knows (``s3://bucket/runs``); None: nowhere."""
    iterations: int = 20
    checkpoint_frequency: int = 5
    checkpoints_kept: int = 2
    max_failures: int = 1
    """How often Tune restarts a trial from its last checkpoint."""
    num_cpus: int = 2
    """Logical CPUs of the Ray cluster that is started when none is running."""
    report_split: str = "test"
    report_num_tasks: int = 256
    """Tasks of the final before/after report; 0 = no report."""
    report_draws: int = 4
    experiment: str = "arlarena"
    """MLflow experiment."""


@dataclass(frozen=True)
class ModelSettings:
    """Section ``model``: a directory, or a small model that is built for the environment."""

    path: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    """Hugging Face configuration fields over the built-in small Qwen3."""
    vocab_size: int = 1024
    corpus_tasks: int = 300
    """Training tasks whose gold episodes the tokenizer is made from."""


@dataclass(frozen=True)
class WarmStartSettings:
    """Section ``warm_start``: demonstrations and how they are cloned; see :class:`CloningConfig` for the rest."""

    source: str = "gold"
    """``gold`` play, a ``clumsy`` player's, the policy's own successes (``rft``), or ``none``."""
    num_tasks: int = 100
    slip: float = 0.35
    """Probability that the clumsy player does another action than it thought of."""
    draws: int = 4
    """Episodes per task that ``rft`` samples before filtering."""
    cloning: CloningConfig = field(default_factory=CloningConfig)


@dataclass(frozen=True)
class RunConfig:
    """A resolved run."""

    run: RunSettings
    model: ModelSettings
    warm_start: WarmStartSettings
    sections: dict[str, dict[str, Any]]
    place: str
    places: Places = field(default_factory=dict)
    """Where each key was given: file and line, or the override."""
    given: Sections = field(default_factory=dict)
    """All sections, as they were given."""

    def checked(self) -> ARLArenaConfig:
        """Return the algorithm's configuration without a model, its settings checked.

        Raises:
            ConfigError: with one line per problem, each with the places of the keys that it names.
        """
        config = self.algorithm("")
        try:
            config.check_settings()
        except ConfigError as error:
            raise ConfigError(self.placed(str(error))) from None
        return config

    def placed(self, problems: str) -> str:
        """Return ``problems`` with the places of the algorithm's settings that they name as ``key=value``."""
        return with_places(problems, {path: place for path, place in self.places.items() if path[0] in self.sections})

    def place_of(self, section: str, key: str) -> str:
        """Return where a key was given; the file's name for one that was not."""
        return place_of(self.places, section, key, otherwise=self.place)

    def algorithm(self, model_path: str | Path) -> ARLArenaConfig:
        """Return the algorithm's configuration with the policy at ``model_path``."""
        config = ARLArenaConfig().apply_sections(self.sections, place=self.place)
        return config.policy(model_path=str(Path(model_path).resolve()))

    def unread_warm_start(self) -> list[str]:
        """Return the overrides of section ``warm_start`` that nothing reads, because nothing is cloned."""
        if self.warm_start.source != "none":
            return []
        found = [place for path, place in self.places.items() if path[0] == "warm_start" and path[1:] != ("source",)]
        return [place for place in dict.fromkeys(found) if place.startswith("override ")]

    @property
    def env(self) -> str:
        """Id of the environment; "" when none is given."""
        return str(self.sections.get("environment", {}).get("env", ""))

    @property
    def seed(self) -> int:
        """Seed of everything: tasks, start, sampling, shuffling."""
        return int(self.sections.get("debugging", {}).get("seed", 0))

    def resolved(self, config: ARLArenaConfig) -> dict[str, Any]:
        """Return every setting that decides the run, by section: this file's own, ``config``'s, and all that was given."""
        sections = {**config.resolved(), **{key: dataclasses.asdict(getattr(self, key)) for key in _OWN_SECTIONS}}
        for section, given in self.sections.items():
            sections[section] = {**given, **sections.get(section, {})}
        return sections


_LEAST = {
    ("run", "iterations"): 1,
    ("run", "checkpoint_frequency"): 1,
    ("run", "checkpoints_kept"): 1,
    ("run", "max_failures"): 0,
    ("run", "num_cpus"): 1,
    ("run", "report_num_tasks"): 0,
    ("run", "report_draws"): 1,
    ("model", "vocab_size"): 1,
    ("model", "corpus_tasks"): 1,
    ("warm_start", "num_tasks"): 1,
    ("warm_start", "draws"): 1,
    ("warm_start", "slip"): 0,
}
"""Smallest value of numbers of this file's own sections."""
_OWN_SECTIONS = {"run": RunSettings, "model": ModelSettings, "warm_start": WarmStartSettings}


SPLITS = ("train", "validation", "test")


def load_run_config(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the run that ``path`` describes, with ``section.key=value`` overrides laid over it.

    Raises:
        ConfigError: the file is missing or not YAML; a section or key is unknown, misplaced, given twice or of the
            wrong type. The message names file and line, or the override.
    """
    return build_run_config(*read_sections(path, overrides))


def read_sections(
    path: str | Path, overrides: Sequence[str] = (), *, kind: str = "configuration"
) -> tuple[Sections, Places, str]:
    """Return what :func:`build_run_config` takes: the file's sections under the overrides, where each key is from, a name.

    Args:
        path: YAML file.
        overrides: laid over it.
        kind: "configuration" or "study": what is asked for, should there be no such file.

    Raises:
        ConfigError: the file is missing or not YAML, or an override is not of the form ``section.key=value``.
    """
    file = Path(path)
    if not isfile(file):
        raise ConfigError(_not_a_file(str(path), kind))
    tree, places = read_yaml(file)
    sections = {str(name): dict(_mapping(values, name, file.name)) for name, values in tree.items()}
    laid_over, their_places = read_overrides(overrides)
    for section, values in laid_over.items():
        sections[section] = {**sections.get(section, {}), **values}
    places = {path: place for path, place in places.items() if path[:2] not in their_places} | their_places
    return sections, places, file.name


def read_overrides(overrides: Sequence[str]) -> tuple[Sections, Places]:
    """Return the sections that ``section.key=value`` overrides alone make, and which one each key is from.

    Raises:
        ConfigError: an override is not of this form.
    """
    sections: Sections = {}
    places: Places = {}
    for override in overrides:
        section, key, value = _parse_override(override)
        sections.setdefault(section, {})[key] = value
        places[section, key] = f"override {override!r}"
    return sections, places


def _not_a_file(name: str, kind: str) -> str:
    """Return what to say of the name of a run configuration, or of a study, that is no file."""
    folder, other, other_folder, command = (
        (CONFIGS, "study", STUDIES, "sweep")
        if kind == "configuration"
        else (STUDIES, "run configuration", CONFIGS, "train")
    )
    hint = f" It is a {other}: use `arlarena {command}`." if isfile(other_folder / f"{name}.yaml") else ""
    shipped = sorted(file.stem for file in folder.glob("*.yaml"))
    return f"{kind} {name!r} is not a file.{hint} Shipped: {', '.join(shipped)}."


def shipped_config(name: str) -> Path:
    """Return the path of a configuration that comes with the package, by name or as a path."""
    shipped = CONFIGS / f"{name}.yaml"
    return shipped if isfile(shipped) else Path(name)


def build_run_config(sections: Sections, places: Places, file: str) -> RunConfig:
    """Return the run of these sections; raises as :func:`load_run_config`."""
    own: dict[str, Any] = {}
    all_given, sections = sections, {name: dict(values) for name, values in sections.items()}
    for name, cls in _OWN_SECTIONS.items():
        own[name] = _dataclass_section(name, cls, sections.pop(name, {}), places, file)
    known = {*SECTIONS, *_OWN_SECTIONS}
    if "model_path" in sections.get("policy", {}):
        place = places.get(("policy", "model_path"), file)
        raise ConfigError(f"policy.model_path ({place}) is set by the run itself: write model.path.")
    for section, values in sections.items():
        if section not in known:
            home = _home_of(section)
            if section == "study":
                raise ConfigError(f"'study' ({file}) makes this a study of many runs: use `arlarena sweep`.")
            hint = f" Write {home}.{section}." if home else nearest(section, known)
            place = next((place for path, place in places.items() if len(path) == 2 and path[0] == section), file)
            raise ConfigError(f"{section!r} ({place}) is not a section.{hint} Allowed: {', '.join(sorted(known))}.")
        for key, value in values.items():
            place = places.get((section, key), file)
            ARLArenaConfig().apply_sections({section: {key: value}}, place=place)
            if key in ALL_SETTINGS and ALL_SETTINGS[key].section == section:
                try:
                    ALL_SETTINGS[key].validate(key, value)
                except ConfigError as error:
                    raise ConfigError(f"{error} (in {place})") from None
    return RunConfig(own["run"], own["model"], own["warm_start"], sections, file, dict(places), all_given)


def _dataclass_section(name: str, cls: type, values: Mapping[str, Any], places: Places, file: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(cls)}
    cloning = {f.name: f for f in dataclasses.fields(CloningConfig)} if cls is WarmStartSettings else {}
    allowed = {**fields, **cloning}
    allowed.pop("cloning", None)  # its fields stand in the section itself
    if cls is WarmStartSettings:
        del allowed["seed"]  # the run's seed decides
    for key, value in values.items():
        place = places.get((name, key), file)
        if key not in allowed:
            home = _home_of(key)
            hint = f" It belongs to {home!r}: write {home}.{key}." if home else nearest(key, allowed)
            raise ConfigError(f"{name}.{key} ({place}) is not a setting.{hint} Allowed: {', '.join(allowed)}.")
        wanted = allowed[key].type
        if not _fits(value, str(wanted)):
            raise ConfigError(f"{name}.{key}={value!r} ({place}) must be {wanted}, got {type(value).__name__}")
        if (name, key) in _LEAST and not value >= _LEAST[name, key]:
            raise ConfigError(f"{name}.{key}={value!r} ({place}) must be at least {_LEAST[name, key]}")
        if key == "report_split" and value not in SPLITS:
            raise ConfigError(f"{name}.{key}={value!r} ({place}) must be one of {', '.join(SPLITS)}")
        if key == "slip" and value >= 1:
            raise ConfigError(f"{name}.{key}={value!r} ({place}) must be below 1")
    own = {k: v for k, v in values.items() if k in fields}
    if cls is WarmStartSettings:
        of_section = {key: place for key, place in places.items() if key[0] == name}
        try:
            own["cloning"] = CloningConfig(**{k: v for k, v in values.items() if k in cloning})
        except ConfigError as error:
            raise ConfigError(with_places(str(error), of_section)) from None
        if own.get("source", "gold") not in ("gold", "clumsy", "rft", "none"):
            problem = f"warm_start.source={own['source']!r} must be one of gold, clumsy, rft, none"
            raise ConfigError(with_places(problem, of_section))
    return cls(**own)


def _fits(value: Any, wanted: str) -> bool:
    if value is None:
        return "None" in wanted
    if isinstance(value, bool):
        return "bool" in wanted
    names = {int: ("int", "float"), float: ("float",), str: ("str",), dict: ("dict",), list: ("tuple", "list")}
    return any(name in wanted for name in names.get(type(value), ()))


def _home_of(key: str) -> str | None:
    for name, cls in _OWN_SECTIONS.items():
        if key in {f.name for f in dataclasses.fields(cls)}:
            return name
    return section_of(key)


def _mapping(values: Any, name: Any, file: str) -> Mapping[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        home = _home_of(str(name))
        hint = f" Write it in its section: {home}.{name}." if home else ""
        raise ConfigError(f"{name!r} ({file}) must be a section with keys, got {values!r}.{hint}")
    return values


def _parse_override(text: str) -> tuple[str, str, Any]:
    name, separator, value = text.partition("=")
    section, dot, key = name.partition(".")
    if not separator or not dot or not key:
        home = _home_of(name) if separator else None
        hint = f" Write {home}.{text}." if home else ""
        raise ConfigError(f"{text!r} is not of the form section.key=value.{hint}")
    if "." in key:
        key, _, inner = key.partition(".")
        raise ConfigError(
            f"{text!r}: {section}.{key} is one value. Write '{section}.{key}={{{inner}: {value}}}', with what else the "
            "configuration has in it: an override replaces the whole value."
        )
    return section, key, read_value(value, f"override {text!r}")
