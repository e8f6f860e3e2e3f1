"""What an agent does in an episode: shares of its actions by kind, as behaviour before and after RL is compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from env_connectors.alfworld.house import NOTHING_HAPPENS

_INTERACTIONS = frozenset({"take", "move", "put", "heat", "cool", "clean", "slice", "use"})
_LOOKS = frozenset({"look", "inventory", "examine", "help"})
_DOORS = frozenset({"open", "close"})


@dataclass
class Behaviour:
    """Counts the actions of one episode.

    An action that changes and shows nothing ('Nothing happens.') counts as that alone, whatever it asked for.
    """

    actions: int = 0
    interactions: int = 0
    looks: int = 0
    doors: int = 0
    walks: int = 0
    revisits: int = 0
    nothing: int = 0
    visited: list[str] = field(default_factory=list)

    def note(self, command: str, text: str) -> None:
        """Count one command and the engine's answer to it."""
        self.actions += 1
        verb = command.split(" ", 1)[0]
        if text == NOTHING_HAPPENS:
            self.nothing += 1
        elif verb in _INTERACTIONS:
            self.interactions += 1
        elif verb in _LOOKS:
            self.looks += 1
        elif verb in _DOORS:
            self.doors += 1
        elif command.startswith("go to "):
            self.walks += 1
            place = command.removeprefix("go to ")
            self.revisits += place in self.visited
            if place not in self.visited:
                self.visited.append(place)

    def shares(self) -> dict[str, float]:
        """Return each kind's share of all actions; `revisit_frac` is part of `walk_frac`; all 0 before the first."""
        counts = {
            "interaction": self.interactions,
            "look": self.looks,
            "door": self.doors,
            "walk": self.walks,
            "revisit": self.revisits,
            "nothing_happens": self.nothing,
        }
        return {f"{name}_frac": count / max(1, self.actions) for name, count in counts.items()}
