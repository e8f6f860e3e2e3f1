"""Words of the synthetic catalogue: kinds of products by category, their attributes, options and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of product.

    Attributes:
        name: one such product in a title.
        query: what it is searched by, in the plural.
        path: its categories below the main one.
        options: names of the options that it comes in.
        price: of a cheap one, in dollars.
    """

    name: str
    query: str
    path: tuple[str, str]
    options: tuple[str, ...]
    price: float


@dataclass(frozen=True)
class Department:
    """A main category.

    Attributes:
        title: first part of the category path.
        kinds: what it sells.
        attributes: what its products can be.
        fillers: words for titles that say nothing about a goal.
    """

    title: str
    kinds: tuple[Kind, ...]
    attributes: tuple[str, ...]
    fillers: tuple[str, ...]


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "color": (
        "black", "white", "navy", "burgundy", "olive", "teal", "coral", "ivory", "charcoal", "lavender", "mustard", "peach",
        "turquoise", "chocolate", "silver", "magenta",
    ),
    "shoe size": ("6", "7", "8", "9", "10", "11", "12"),
    "size": ("small", "medium", "large", "one size", "petite"),
    "storage": ("32 gb", "64 gb", "128 gb", "256 gb", "512 gb"),
    "length": ("3 feet", "6 feet", "10 feet", "15 feet"),
    "flavor": (
        "vanilla", "cinnamon", "hazelnut", "mango", "raspberry", "pumpkin spice", "sea salt", "maple", "ginger", "blueberry",
    ),
    "scent": ("jasmine", "sandalwood", "eucalyptus", "bergamot", "unscented", "cedar", "honey", "lilac"),
    "count": ("1 pack", "2 pack", "4 pack", "6 pack", "12 pack"),
    "style": ("modern", "rustic", "classic", "minimalist"),
    "bed size": ("twin", "full", "queen", "king"),
}  # fmt: skip

DEPARTMENTS: Mapping[str, Department] = {
    "beauty": Department(
        "Beauty & Personal Care",
        (
            Kind("Lip Balm", "lip balms", ("Makeup", "Lips"), ("flavor", "count"), 6),
            Kind("Face Cream", "face creams", ("Skin Care", "Face"), ("scent", "count"), 14),
            Kind("Shampoo Bar", "shampoo bars", ("Hair Care", "Shampoo"), ("scent", "count"), 9),
            Kind("Makeup Brush Set", "makeup brushes", ("Tools", "Brushes"), ("color",), 16),
            Kind("Body Lotion", "body lotions", ("Skin Care", "Body"), ("scent",), 11),
            Kind("Nail Polish", "nail polishes", ("Nails", "Polish"), ("color",), 7),
            Kind("Hair Clip", "hair clips", ("Hair Care", "Accessories"), ("color", "count"), 8),
            Kind("Travel Toiletry Bag", "toiletry bags", ("Tools", "Bags"), ("color", "size"), 19),
        ),
        (
            "cruelty free", "fragrance free", "long lasting", "paraben free", "dermatologist tested", "sulfate free",
            "oil free", "travel size", "easy to apply", "hydrating", "water resistant", "fast drying", "non greasy",
            "plant based",
        ),
        ("Daily", "Essential", "Gentle", "Studio", "Bloom", "Glow"),
    ),
    "electronics": Department(
        "Electronics",
        (
            Kind("Bluetooth Speaker", "bluetooth speakers", ("Audio", "Speakers"), ("color",), 29),
            Kind("Charging Cable", "charging cables", ("Accessories", "Cables"), ("length", "color"), 9),
            Kind("Wireless Earbuds", "wireless earbuds", ("Audio", "Headphones"), ("color",), 35),
            Kind("Tablet Computer", "tablets", ("Computers", "Tablets"), ("storage", "color"), 120),
            Kind("Security Camera", "security cameras", ("Cameras", "Surveillance"), ("count",), 45),
            Kind("Laptop Sleeve", "laptop sleeves", ("Accessories", "Bags"), ("color", "size"), 18),
            Kind("Tripod Stand", "tripods", ("Cameras", "Tripods"), ("color",), 27),
            Kind("Memory Card", "memory cards", ("Accessories", "Memory"), ("storage",), 15),
        ),
        (
            "fast charging", "noise cancelling", "water proof", "high definition", "hands free", "plug and play",
            "stereo sound", "easy to install", "ultra thin", "motion detection", "heavy duty", "low power",
            "wall mounted", "shock absorbing",
        ),
        ("Pro", "Max", "Compact", "Series", "Edge", "Core"),
    ),
    "fashion": Department(
        "Clothing, Shoes & Jewelry",
        (
            Kind("Running Shoes", "running shoes", ("Women", "Shoes"), ("shoe size", "color"), 39),
            Kind("Rain Jacket", "rain jackets", ("Men", "Jackets"), ("size", "color"), 49),
            Kind("Wool Sweater", "sweaters", ("Women", "Sweaters"), ("size", "color"), 34),
            Kind("Hiking Boots", "hiking boots", ("Men", "Shoes"), ("shoe size", "color"), 62),
            Kind("Lounge Pants", "lounge pants", ("Men", "Sleep"), ("size", "color"), 22),
            Kind("Summer Dress", "summer dresses", ("Women", "Dresses"), ("size", "color"), 31),
            Kind("Leather Belt", "belts", ("Men", "Accessories"), ("color", "size"), 17),
            Kind("Ankle Socks", "socks", ("Women", "Socks"), ("color", "count"), 10),
        ),
        (
            "machine washable", "moisture wicking", "slim fit", "arch support", "rubber sole", "quick drying",
            "elastic waistband", "hand knitted", "wind resistant", "memory foam", "zipper closure", "breathable mesh",
            "fleece lined", "reflective trim",
        ),
        ("Urban", "Trail", "Coastal", "Heritage", "Active", "Weekend"),
    ),
    "garden": Department(
        "Home & Kitchen",
        (
            Kind("Throw Pillow", "throw pillows", ("Bedding", "Pillows"), ("color", "count"), 18),
            Kind("Bed Frame", "bed frames", ("Furniture", "Bedroom"), ("bed size", "color"), 140),
            Kind("Bar Stool", "bar stools", ("Furniture", "Kitchen"), ("color", "style"), 85),
            Kind("Window Curtains", "curtains", ("Decor", "Windows"), ("color", "style"), 28),
            Kind("Table Lamp", "table lamps", ("Lighting", "Lamps"), ("style", "color"), 37),
            Kind("Soy Candle", "candles", ("Decor", "Candles"), ("scent", "count"), 13),
            Kind("Storage Ottoman", "ottomans", ("Furniture", "Living Room"), ("color",), 64),
            Kind("Wall Mirror", "mirrors", ("Decor", "Mirrors"), ("style",), 55),
        ),
        (
            "easy to assemble", "solid wood", "space saving", "hand crafted", "lead free", "stainless steel", "non slip",
            "double sided", "dimmable light", "hypoallergenic", "rust proof", "height adjustable", "stain repellent",
            "eco friendly",
        ),
        ("Home", "Cottage", "Loft", "Haven", "Nest", "Valley"),
    ),
    "grocery": Department(
        "Grocery & Gourmet Food",
        (
            Kind("Granola Bars", "granola bars", ("Snacks", "Bars"), ("flavor", "count"), 8),
            Kind("Ground Coffee", "coffees", ("Beverages", "Coffee"), ("flavor", "count"), 12),
            Kind("Herbal Tea", "teas", ("Beverages", "Tea"), ("flavor",), 7),
            Kind("Trail Mix", "trail mixes", ("Snacks", "Nuts"), ("flavor", "count"), 10),
            Kind("Baking Mix", "baking mixes", ("Baking", "Mixes"), ("flavor",), 9),
            Kind("Popcorn Snack", "popcorn", ("Snacks", "Popcorn"), ("flavor", "count"), 6),
            Kind("Protein Powder", "protein powders", ("Nutrition", "Powders"), ("flavor",), 26),
            Kind("Hot Sauce", "hot sauces", ("Sauces", "Hot Sauce"), ("flavor", "count"), 9),
        ),
        (
            "gluten free", "non gmo", "sugar free", "keto friendly", "dairy free", "high protein", "low sodium",
            "freeze dried", "usda organic", "individually wrapped", "kosher certified", "rich in fiber", "shelf stable",
            "stone ground",
        ),
        ("Farm", "Kitchen", "Harvest", "Pantry", "Orchard", "Table"),
    ),
}  # fmt: skip

BRAND_BEGINNINGS = (
    "Ar",
    "Bel",
    "Cor",
    "Dun",
    "El",
    "Fen",
    "Gal",
    "Hol",
    "Jun",
    "Kel",
    "Lor",
    "Mar",
    "Nor",
    "Pel",
    "Quin",
)
BRAND_ENDINGS = ("ana", "ora", "wick", "dale", "mont", "vex", "lyn", "berg", "isto", "tara", "ford", "quay")

REQUESTS = (
    "i am looking for {query} that are {first} and {second}{options}",
    "find me {first}, {second} {query}{options}",
    "i need a {name} which is {first}. it should also be {second}{options}",
    "please get me some {first} {query}{options}. {second} ones would be best",
    "i want to buy a {second} {name}{options}, and it has to be {first}",
    "do you have a {name}{options}? i would like it to be {first} and {second}",
    "shopping for {query}{options}; {first} and {second} please",
)
DESCRIPTIONS = (
    "The {brand} {name} for every day. Made with care and packed well.",
    "A {name} by {brand} that people like to give as a present.",
    "Our {name} comes in a simple box. Read the features before you buy.",
    "",
)
FEATURES = (
    "{attribute}: tested in our own rooms.",
    "This {name} is {attribute}.",
    "{attribute}, as our customers have asked for.",
)
