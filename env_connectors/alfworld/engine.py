"""The TextWorld engine played fast: one planner library per process, games translated once and shared by episodes.

Texts, commands and their order are those of the plain engine (textworld.envs.pddl.PddlEnv under AlfredTWEnv); what is
spared is work that gives the same result again:

* PDDL is translated to a planning task once per game, not four times per episode.
* The planner library is loaded from where it is installed, not from a copy in TMPDIR per episode. It holds one game at a
  time, but any number of its states; the states of another game are found again by repeating its operators.
* Templates are parsed once; commands that no fact can change are written once per game.

Only the worker process imports this module: the translator changes sys.argv and sys.stdout.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from env_connectors.alfworld.goals import Goal, goal_conditions
from env_connectors.alfworld.house import NOTHING_HAPPENS, Fact, House, View, read_house
from env_connectors.task_panel import short_hash

_BOOKKEEPING = frozenset({"checked", "examined", "wasinreceptacle"})  # tells the past, decides nothing
_CLEAR_EVERY = 16  # games
_NO_Z_MACHINE = ("UnsupportedGameWarning", "TruncatedInputActionWarning")


def prepare_imports() -> None:
    """Let textworld and alfworld be imported without what a game of this kind never uses.

    textworld imports jericho, the machine of another kind of game, which may be missing; alfworld makes a folder in the
    user's cache unless $ALFWORLD_DATA is set.
    """
    os.environ.setdefault("ALFWORLD_DATA", os.path.dirname(os.path.abspath(__file__)))
    try:
        import jericho  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("jericho")
        for name in _NO_Z_MACHINE:
            setattr(stand_in, name, type(name, (UserWarning,), {}))
        sys.modules["jericho"] = stand_in


prepare_imports()

import alfworld  # noqa: E402
import fast_downward  # noqa: E402
import mementos.core  # noqa: E402
from alfworld.agents.utils.misc import Demangler  # noqa: E402
from fast_downward.interface import DOWNWARD_LIB_PATH, Atom, Operator  # noqa: E402
from textworld.envs.pddl import logic as pddl_logic  # noqa: E402
from textworld.envs.pddl import textgen  # noqa: E402
from textworld.generator.game import EntityInfo  # noqa: E402
from textworld.logic import Placeholder, Proposition, Rule, Signature, State, Type, TypeHierarchy, Variable  # noqa: E402


class _Library:
    """The planner library of this process, holding the game that was used last."""

    def __init__(self) -> None:
        lib = ctypes.CDLL(DOWNWARD_LIB_PATH)
        lib.load_sas.argtypes, lib.load_sas.restype = [ctypes.c_char_p], None
        lib.get_applicable_operators.argtypes = [ctypes.POINTER(Operator)]
        lib.get_applicable_operators.restype = None
        lib.get_state.argtypes, lib.get_state.restype = [ctypes.POINTER(Atom)], None
        lib.get_state_size.restype = lib.get_state_id.restype = ctypes.c_int
        lib.set_state_id.argtypes, lib.set_state_id.restype = [ctypes.c_int], None
        lib.apply_operator.argtypes, lib.apply_operator.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_int
        lib.check_goal.restype = ctypes.c_bool
        self.lib = lib
        self.game: LoadedGame | None = None
        self.generation = 0

    def hold(self, game: LoadedGame) -> None:
        """Load a game unless it is the one that is held."""
        if self.game is not game:
            self.lib.load_sas(game.sas)
            self.game = game
            self.generation += 1
            game.first_state = self.lib.get_state_id()
            game.moves_of.clear()

    def atoms(self) -> list[str]:
        """Return the atoms of the current state."""
        buffer = (Atom * self.lib.get_state_size())()
        self.lib.get_state(buffer)
        return [atom.name for atom in buffer]


@dataclass(frozen=True)
class _Move:
    """An operator that is applicable in a state."""

    id: int
    name: str
    command: str


@lru_cache(maxsize=1)
def _library() -> _Library:
    return _Library()


class _Grammar:
    """Derives texts as textgen.ContextSensitiveGrammar does, without copying symbols and contexts."""

    def __init__(self, grammar: textgen.ContextSensitiveGrammar, task: str) -> None:
        self._rules = grammar._rules
        self._task = f"Your task is to: {task}"

    def derive(self, start: str, context: dict[str, Any]) -> str:
        return "".join(part for symbol in _symbols(start) for part in self._parts(symbol, context))

    def _parts(self, symbol: textgen.Symbol, context: dict[str, Any]) -> Iterator[str]:
        if isinstance(symbol, textgen.TerminalSymbol):
            yield str(symbol)
        elif isinstance(symbol, textgen.NonterminalSymbol):
            yield from self._nonterminal(str(symbol), context)
        elif isinstance(symbol, textgen.EvalSymbol):
            yield str(eval(_compiled(symbol.expression), {}, context["variables"]))
        elif isinstance(symbol, textgen.ConditionalSymbol):
            for inner in _conditional(symbol, context):
                yield from self._parts(symbol.expression, inner)
        else:
            yield from self._list(symbol.symbol, context)

    def _nonterminal(self, name: str, context: dict[str, Any]) -> Iterator[str]:
        if name == "task":
            yield self._task
            return
        for rule in self._rules.get(name) or ():
            if not rule.condition or next(_matches(rule.condition, context), None) is not None:
                for symbol in rule.rhs:
                    yield from self._parts(symbol, context)
                return
        raise textgen.CSGUnknownSymbolError(name)

    def _list(self, symbol: textgen.Symbol, context: dict[str, Any]) -> Iterator[str]:
        if isinstance(symbol, textgen.ConditionalSymbol):
            items = ["".join(self._parts(symbol.expression, inner)) for inner in _conditional(symbol, context)]
        else:
            items = ["".join(self._parts(symbol, context))]
        for number, item in enumerate(items):
            if number:
                is_last = number == len(items) - 1
                yield from self._nonterminal("list_last_separator" if is_last else "list_separator", context)
            yield item
        if not items:
            yield from self._nonterminal("list_empty", context)


@lru_cache(maxsize=1024)
def _symbols(text: str) -> tuple[textgen.Symbol, ...]:
    return tuple(textgen._parse_and_convert(text, rule_name="symbols"))


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> Any:
    return compile(expression.strip(), "<grammar>", "eval")


@lru_cache(maxsize=1024)
def _query(text: str) -> Rule:
    return Rule.parse_conjunctive_query(text)


def _matches(condition: str, context: dict[str, Any]) -> Iterator[Mapping[Placeholder, Variable]]:
    return context["state"].all_assignments(_query(condition), context["mapping"])


def _conditional(symbol: textgen.ConditionalSymbol, context: dict[str, Any]) -> list[dict[str, Any]]:
    if not symbol.given:
        return [context]
    infos = context["entity_infos"]
    return [
        {
            **context,
            "variables": {**context["variables"], **{ph.name: infos[var.name] for ph, var in mapping.items()}},
            "mapping": {**context["mapping"], **mapping},
        }
        for mapping in _matches(symbol.given, context)
    ]


class _Facts(State):
    """The facts of one episode; sets of facts are shared with the game until they change."""

    def __init__(self, logic: Any, facts: Mapping[Signature, set[Proposition]]) -> None:
        self._logic = logic
        self._facts = dict(facts)
        self._own: set[Signature] = set()

    def _owned(self, signature: Signature) -> set[Proposition]:
        if signature not in self._own:
            self._own.add(signature)
            self._facts[signature] = set(self._facts.get(signature, ()))
        return self._facts[signature]

    def add_fact(self, prop: Proposition) -> None:
        self._owned(prop.signature).add(prop)

    def remove_fact(self, prop: Proposition) -> None:
        self._owned(prop.signature).discard(prop)

    def changed(self) -> list[Signature]:
        """Return the signatures whose facts may differ from the start."""
        return list(self._own)

    def of(self, signature: Signature) -> set[Proposition]:
        return self._facts.get(signature, set())

    def _all_applicable_assignments(self, rule, mapping, used_vars, new_phs_by_depth, depth):  # type: ignore[no-untyped-def]
        """As in State, but facts that cannot match are left out before the rest is sorted."""
        if depth >= len(rule.preconditions):
            yield from self._all_assignments(new_phs_by_depth[depth], mapping, used_vars, False)
            return
        pred = rule.preconditions[depth]
        types = [self._logic.types.get(t) for t in pred.signature.types]
        for subtypes in self._logic.types.multi_subtypes(types):
            facts = self.of(Signature(pred.signature.name, [t.name for t in subtypes]))
            fixed = [(i, mapping[ph]) for i, ph in enumerate(pred.parameters) if mapping.get(ph) is not None]
            for prop in sorted(p for p in facts if all(p.arguments[i] == var for i, var in fixed)):
                for ph, var in zip(pred.parameters, prop.arguments, strict=True):
                    existing = mapping.get(ph)
                    if existing is None:
                        if var in used_vars:
                            break
                        mapping[ph] = var
                        used_vars.add(var)
                    elif existing != var:
                        break
                else:
                    yield from self._all_applicable_assignments(rule, mapping, used_vars, new_phs_by_depth, depth + 1)
                for ph in new_phs_by_depth[depth]:
                    used_vars.discard(mapping.pop(ph, None))


@dataclass
class _Rules:
    """What is the same in all games of the installed alfworld: domain, action templates, grammar."""

    domain: str
    grammar: textgen.ContextSensitiveGrammar
    actions: dict[str, Any]


@lru_cache(maxsize=1)
def _rules() -> _Rules:
    with open(alfworld.ALFRED_PDDL_PATH) as domain, open(alfworld.ALFRED_TWL2_PATH) as grammar:
        logic = pddl_logic.GameLogic(domain=domain.read(), grammar=grammar.read())
    return _Rules(logic.domain, logic.grammar, logic.actions)


@dataclass
class _Types:
    """The part of a game's logic that queries read."""

    types: TypeHierarchy = field(default_factory=TypeHierarchy)


class LoadedGame:
    """One game, translated: shared by all its episodes in this process."""

    def __init__(self, problem: str, task: str, goal: Goal) -> None:
        rules = _rules()
        planning_task, sas = fast_downward.pddl2sas(rules.domain, problem)
        self.goal = goal
        self.sas = sas.encode()
        self.grammar = _Grammar(rules.grammar, task)
        self.templates = rules.actions
        self.parameters = {
            action.name: [(p.name.strip("?"), p.type_name) for p in action.parameters]
            for action in planning_task.actions
        }
        self.type_of = {entity.name: entity.type_name for entity in planning_task.objects}
        self.logic = _Types()
        for kind in planning_task.types:
            with contextlib.suppress(ValueError):  # the hierarchy knows some types already
                self.logic.types.add(Type(kind.name, kind.supertype_names))
        self.moves_of: dict[int, list[_Move]] = {}
        self.first_state = 0
        self._commands: dict[str, str] = {}
        self._effects: dict[int, list[Proposition]] = {}
        library = _library()
        library.hold(self)
        self.facts = self._first_facts(planning_task, library.atoms())
        self.entities = self._entities()

    def _first_facts(self, planning_task: Any, atoms: Sequence[str]) -> dict[Signature, set[Proposition]]:
        facts: dict[Signature, set[Proposition]] = {}
        written = [(atom.predicate, atom.args) for atom in planning_task.init if getattr(atom, "predicate", "=") != "="]
        for name, arguments in written:
            _file(facts, Proposition(name, [Variable(arg, self.type_of[arg]) for arg in arguments]))
        for atom in atoms:
            fact = self._fact(atom)
            if not fact.is_negation:
                _file(facts, fact)
        return facts

    def _fact(self, atom: str) -> Proposition:
        """Return the fact of an atom's name, e.g. 'NegatedAtom opened(fridge_bar_1)'."""
        sign, _, rest = atom.partition(" ")
        name, _, arguments = rest[:-1].partition("(")
        variables = [Variable(arg, self.type_of[arg]) for arg in arguments.split(", ") if arg]
        return Proposition(f"not_{name}" if sign == "NegatedAtom" else name, variables)

    def _entities(self) -> dict[str, EntityInfo]:
        variables = {var.name: var for facts in self.facts.values() for fact in facts for var in fact.arguments}
        entities = {name: EntityInfo(name, var.type) for name, var in variables.items()}
        for entity in entities.values():
            entity.definite, entity.indefinite = "the", "a"
        demangler = Demangler(game_infos=entities)
        for entity in entities.values():
            entity.name = demangler.demangle_alfred_name(entity.id)
        return entities

    def context(self, facts: _Facts, operator: str | None) -> dict[str, Any]:
        """Return the grammar's context for an operator, e.g. 'openobject agent1 loc_1 fridge_bar_1'."""
        mapping: dict[Placeholder, Variable] = {}
        if operator is not None:
            action, *arguments = operator.split()
            for (name, kind), arg in zip(self.parameters[action], arguments, strict=False):
                mapping[Placeholder(name, kind)] = Variable(arg, kind)
        variables = {ph.name: self.entities[var.name] for ph, var in mapping.items()}
        return {"state": facts, "variables": variables, "mapping": mapping, "entity_infos": self.entities}

    def moves(self, state_id: int, facts: _Facts) -> list[_Move]:
        """Return the applicable operators of a state, in the planner's order, one for each name."""
        moves = self.moves_of.get(state_id)
        if moves is None:
            lib = _library().lib
            buffer = (Operator * lib.get_applicable_operators_count())()
            lib.get_applicable_operators(buffer)
            ids: dict[str, int] = {}
            for operator in buffer:
                ids.setdefault(operator.name, operator.id)
            moves = [_Move(number, name, self._command(name, facts)) for name, number in ids.items()]
            self.moves_of[state_id] = moves
        return moves

    def _command(self, operator: str, facts: _Facts) -> str:
        """Return the command of an operator; no template of the grammar asks for a fact that can change."""
        command = self._commands.get(operator)
        if command is None:
            context = self.context(facts, operator)
            template = self.grammar.derive(self.templates[operator.split()[0]].template, context)
            names = {ph.name: self.entities[var.name].name for ph, var in context["mapping"].items()}
            command = self._commands[operator] = template.format(**names)
        return command

    def effects(self, operator_id: int, buffer: ctypes.Array[Atom] | None) -> list[Proposition]:
        """Return the facts that an operator makes true, known from `buffer` the first time."""
        found = self._effects.get(operator_id)
        if found is None:
            found = self._effects[operator_id] = [self._fact(atom.name) for atom in buffer or ()]
        return found

    def knows_effects(self, operator_id: int) -> bool:
        return operator_id in self._effects


def _file(facts: dict[Signature, set[Proposition]], fact: Proposition) -> None:
    facts.setdefault(fact.signature, set()).add(fact)


_MOST_EFFECTS = 64


class Episode:
    """One episode of a loaded game."""

    def __init__(self, game: LoadedGame) -> None:
        self.game = game
        self._facts = _Facts(game.logic, game.facts)
        self._played: list[int] = []
        self._state_id = game.first_state
        self._generation = -1
        self._enter()
        text = game.grammar.derive("#intro#", game.context(self._facts, None))
        self.view = self._look(text)

    def step(self, command: str) -> View:
        """Play one command; whatever is not admissible changes nothing."""
        self._enter()
        moves = self.game.moves(self._state_id, self._facts)
        move = next((move for move in moves if move.command == command.strip()), None)
        if move is None:
            self.view = self._look(NOTHING_HAPPENS)
            return self.view
        self._apply(move.id)
        context = self.game.context(self._facts, move.name)
        text = self.game.grammar.derive(self.game.templates[move.name.split()[0]].feedback_rule, context)
        self.view = self._look(text)
        return self.view

    def house(self) -> House:
        """Return everything that is true now."""
        return read_house(self._all_facts(), {name: entity.name for name, entity in self.game.entities.items()})

    def _all_facts(self) -> Iterator[Fact]:
        for facts in self._facts._facts.values():
            yield from ((fact.name, tuple(var.name for var in fact.arguments)) for fact in facts)

    def _enter(self) -> None:
        """Bring the library to this episode's state."""
        library = _library()
        library.hold(self.game)
        lib = library.lib
        if self._generation != library.generation:
            lib.set_state_id(self.game.first_state)
            for operator in self._played:
                lib.apply_operator(operator, None)
            self._state_id, self._generation = lib.get_state_id(), library.generation
        else:
            lib.set_state_id(self._state_id)

    def _apply(self, operator_id: int) -> None:
        lib = _library().lib
        if self.game.knows_effects(operator_id):
            lib.apply_operator(operator_id, None)
            effects = self.game.effects(operator_id, None)
        else:
            buffer = (Atom * _MOST_EFFECTS)()
            count = lib.apply_operator(operator_id, ctypes.byref(buffer))
            effects = self.game.effects(operator_id, buffer[:count])  # type: ignore[arg-type]
        self._played.append(operator_id)
        self._state_id = lib.get_state_id()
        for fact in effects:
            self._facts.remove_fact(fact.negate())
            self._facts.add_fact(fact)

    def _look(self, text: str) -> View:
        moves = self.game.moves(self._state_id, self._facts)
        commands = sorted({move.command for move in moves})
        met, conditions = goal_conditions(self.game.goal, self.house())
        return View(text, commands, _library().lib.check_goal(), met, conditions, self._state_key())

    def _state_key(self) -> str:
        start = self.game.facts
        differences = [
            str(fact)
            for signature in self._facts.changed()
            if signature.name.removeprefix("not_") not in _BOOKKEEPING
            for fact in self._facts.of(signature) ^ start.get(signature, set())
            if not fact.is_negation
        ]
        return short_hash("\n".join(sorted(differences)))


def _forget_facts() -> None:
    """Drop textworld's table of all facts ever made, which otherwise grows by half a megabyte a game.

    Facts are compared by value, so those that games and episodes still hold keep working.
    """
    table = mementos.core._memento_cache
    for key in [key for key, made in table.items() if isinstance(made, Proposition)]:
        del table[key]


class GameTable:
    """The translated games of this process, the least recently used one dropped first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._since_cleared = 0
        self._games: OrderedDict[str, LoadedGame] = OrderedDict()

    def get(self, key: str) -> LoadedGame | None:
        """Return a game that is held, or None."""
        game = self._games.get(key)
        if game is not None:
            self._games.move_to_end(key)
        return game

    def put(self, key: str, game: LoadedGame) -> None:
        """Hold a game."""
        self._games[key] = game
        while len(self._games) > self._most:
            self._games.popitem(last=False)
        self._since_cleared += 1
        if self._since_cleared >= _CLEAR_EVERY:
            self._since_cleared = 0
            _forget_facts()
