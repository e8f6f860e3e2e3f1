"""Words of the full world: what names are made of, what people do, and the relations with their phrases."""

from __future__ import annotations

from env_connectors.search_qa.facts import Relation

WOMEN = (
    "Adela", "Brenna", "Celia", "Dorit", "Elvira", "Fenna", "Greta", "Hanne", "Ilse", "Jolanda", "Katrin", "Livia", "Mirea",
    "Nadine", "Odile", "Petra", "Rosalie", "Selma", "Tilda", "Ursula", "Valerie", "Wilma", "Yvette", "Zora",
)  # fmt: skip
MEN = (
    "Anton", "Bastian", "Casper", "Detlev", "Emil", "Ferdinand", "Gregor", "Henrik", "Ivo", "Jasper", "Konrad", "Lorenz",
    "Matthis", "Norbert", "Oskar", "Philipp", "Rainer", "Sander", "Tobias", "Ulrich", "Viktor", "Walter", "Xaver",
    "Yannick",
)  # fmt: skip
NAME_BEGINNINGS = (
    "Al", "Bar", "Cor", "Dal", "El", "Far", "Gal", "Hal", "Ist", "Jar", "Kel", "Lan", "Mar", "Nor", "Or", "Pel", "Quen",
    "Ras", "Sel", "Tor", "Ul", "Var", "Wes", "Yar", "Zel", "Bren", "Dro", "Fen", "Gri", "Hol",
)  # fmt: skip
NAME_MIDDLES = ("a", "an", "e", "en", "i", "in", "o", "or", "u", "ul")
FAMILY_ENDINGS = (
    "bach", "berg", "dahl", "feld", "gaard", "hoff", "ker", "lund", "mann", "quist", "rud", "sen", "son", "stad", "vik",
    "wick",
)  # fmt: skip
TOWN_ENDINGS = (
    "brook", "bridge", "burg", "bury", "dale", "field", "ford", "ham", "haven", "holm", "mouth", "port", "stead", "ton",
    "vale", "wick",
)  # fmt: skip
RIVER_ENDINGS = ("a", "ane", "ela", "era", "ina", "ola", "una", "ysa")
WORK_ADJECTIVES = (
    "Amber", "Silent", "Broken", "Crimson", "Distant", "Empty", "Frozen", "Golden", "Hidden", "Hollow", "Last", "Lonely",
    "Painted", "Quiet", "Restless", "Scarlet", "Second", "Secret", "Shining", "Sleeping", "Stolen", "Twisted", "Unwritten",
    "Velvet", "Wandering", "Winter",
)  # fmt: skip
WORK_NOUNS = (
    "Anchor", "Archive", "Bell", "Candle", "Compass", "Courtyard", "Feather", "Garden", "Harbor", "Island", "Lantern",
    "Letter", "Lighthouse", "Map", "Meadow", "Mirror", "Orchard", "Passage", "Piano", "Promise", "Shadow", "Staircase",
    "Station", "Tide", "Umbrella", "Window",
)  # fmt: skip
WORK_KINDS = ("a novel", "a play", "a collection of poems", "a memoir", "an opera")
ORGANISATION_KINDS = ("Press", "Institute", "Society", "Academy", "Foundation", "Workshop")
OCCUPATIONS = (
    "astronomer", "beekeeper", "botanist", "cartographer", "chemist", "clockmaker", "composer", "engraver", "geologist",
    "glassblower", "historian", "journalist", "librarian", "locksmith", "mathematician", "meteorologist", "physician",
    "photographer", "sculptor", "shipbuilder", "surgeon", "translator", "violinist", "weaver",
)  # fmt: skip

PERSON, WORK, ORGANISATION, TOWN = "person", "work", "organisation", "town"


def _relation(name: str, source: str, target: str, query: str, inner: str, asked: str) -> Relation:
    """Return a relation; phrases are separated by '|'."""
    return Relation(name, source, target, tuple(inner.split("|")), tuple(asked.split("|")), query)


RELATIONS = {
    relation.name: relation
    for relation in (
        _relation(
            "birthplace", PERSON, TOWN, "born", "the birthplace of {x}|the town where {x} was born",
            "Where was {x} born?|In which town was {x} born?|What is the birthplace of {x}?",
        ),
        _relation(
            "birth year", PERSON, "", "born year", "the birth year of {x}",
            "In what year was {x} born?|What is the birth year of {x}?|When was {x} born?",
        ),
        _relation(
            "teacher", PERSON, PERSON, "taught by", "the teacher of {x}|the person who taught {x}",
            "Who taught {x}?|Who was the teacher of {x}?",
        ),
        _relation(
            "spouse", PERSON, PERSON, "married", "the spouse of {x}|the person married to {x}",
            "Who is married to {x}?|Who is the spouse of {x}?",
        ),
        _relation(
            "employer", PERSON, ORGANISATION, "works for", "the employer of {x}|the organisation that employs {x}",
            "Which organisation employs {x}?|Who is the employer of {x}?",
        ),
        _relation(
            "occupation", PERSON, "", "occupation", "the occupation of {x}",
            "What is the occupation of {x}?|What does {x} do for a living?",
        ),
        _relation(
            "author", WORK, PERSON, "written by", "the author of {x}|the person who wrote {x}",
            "Who wrote {x}?|Who is the author of {x}?",
        ),
        _relation(
            "publisher", WORK, ORGANISATION, "published by", "the publisher of {x}|the organisation that published {x}",
            "Who published {x}?|Which organisation is the publisher of {x}?",
        ),
        _relation(
            "setting", WORK, TOWN, "set in", "the town in which {x} is set|the setting of {x}",
            "In which town is {x} set?|Where is {x} set?",
        ),
        _relation(
            "publication year", WORK, "", "published in", "the publication year of {x}",
            "In what year was {x} published?|When was {x} published?",
        ),
        _relation(
            "founder", ORGANISATION, PERSON, "founded by", "the founder of {x}|the person who founded {x}",
            "Who founded {x}?|Who is the founder of {x}?",
        ),
        _relation(
            "headquarters", ORGANISATION, TOWN, "headquarters", "the town where {x} has its headquarters|the home town of {x}",
            "Where are the headquarters of {x}?|In which town does {x} have its headquarters?",
        ),
        _relation(
            "founding year", ORGANISATION, "", "founded in", "the founding year of {x}",
            "In what year was {x} founded?|When was {x} founded?",
        ),
        _relation(
            "mayor", TOWN, PERSON, "mayor", "the mayor of {x}|the person who governs {x}",
            "Who is the mayor of {x}?|Who governs {x}?",
        ),
        _relation(
            "river", TOWN, "", "river", "the river of {x}",
            "Which river flows through {x}?|On which river does {x} lie?",
        ),
    )
}  # fmt: skip
