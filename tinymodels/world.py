"""The small world the tiny models read about: its people, its things and what is true in it.

Two kinds of facts live here, and the course needs both:

* **fixed** facts are the same in every text (where Ada lives). A model can keep them in its
  weights, and answer when nobody has told it in the text at hand.
* **given** facts are true in one text only (what Ada has today). No weight can know them: the
  model must look back, and the cache is what it looks at.
"""

from dataclasses import dataclass

from tinymodels.dice import Dice

WOMEN = (
    "Ada", "Cora", "Elif", "Gina", "Iris", "Kaya", "Mira", "Nora", "Rosa", "Tess", "Vera", "Yuki",
)  # fmt: skip
MEN = (
    "Ben", "Dan", "Emil", "Finn", "Hugo", "Jiro", "Leo", "Omar", "Paul", "Ravi", "Sam", "Tom",
)  # fmt: skip
PEOPLE = WOMEN + MEN
TOWNS = (
    "Aldby", "Brookham", "Coldwell", "Dunmere", "Eastholm", "Fernhill", "Greyford", "Larkby",
    "Millbrook", "Norwick",
)  # fmt: skip
JOBS = ("baker", "cook", "doctor", "farmer", "painter", "sailor", "singer", "teacher")
COLOURS = ("black", "blue", "brown", "green", "red", "white", "yellow")
ANIMALS = ("bird", "cat", "dog", "goat", "horse", "rabbit")
THINGS = (
    "bell", "book", "coin", "cup", "drum", "key", "kite", "lamp", "map", "ring", "rope", "shell",
)  # fmt: skip
BOXES = ("bag", "basket", "box", "chest", "drawer", "jar", "tent", "well")
PLACES = ("forest", "garden", "harbour", "kitchen", "library", "market", "park", "school")
MOODS = ("happy", "hungry", "proud", "quiet", "tired", "warm")
DEEDS = ("dances", "laughs", "listens", "reads", "rests", "sings", "sleeps", "smiles", "waits")
WEATHER = (
    "It rains.", "It snows.", "It is cold.", "The sun shines.", "The wind blows.", "Night comes.",
    "The night is quiet.", "A bird sings.", "A dog waits.", "The market is quiet.",
)  # fmt: skip

_OTHER_WORDS = (
    "the The a A in is has have puts lives live likes like keeps keep meets does "
    "Who What Where It She He rains snows sun shines wind blows cold Night night comes"
).split()

WORDS: tuple[str, ...] = tuple(
    dict.fromkeys(
        (*PEOPLE, *TOWNS, *JOBS, *COLOURS, *ANIMALS, *THINGS, *BOXES, *PLACES, *MOODS, *DEEDS,
         *_OTHER_WORDS)
    )
)  # fmt: skip
"""The frequent words: the tokenizer gives each of them one token."""


def pronoun(who: str) -> str:
    """`She` or `He`, as a sentence begins."""
    return "She" if who in WOMEN else "He"


@dataclass(frozen=True)
class Relation:
    """How one kind of fact is said and asked.

    `says` ends right before the value: `"{subject} lives in"`, then the value, then a full stop.
    `asks_subject` is the question whose answer is the subject; None if that is never asked.
    """

    name: str
    says: str
    asks_value: str
    values: tuple[str, ...]
    asks_subject: str | None = None
    fixed: bool = False


LIVES = Relation("lives", "{subject} lives in", "Where does {subject} live?", TOWNS, fixed=True)
WORKS = Relation("works", "{subject} is a", "What is {subject}?", JOBS, fixed=True)
LIKES = Relation("likes", "{subject} likes", "What does {subject} like?", COLOURS, fixed=True)
KEEPS = Relation("keeps", "{subject} keeps a", "What does {subject} keep?", ANIMALS, fixed=True)
HAS = Relation(
    "has", "{subject} has the", "What does {subject} have?", THINGS, "Who has the {value}?"
)
VISITS = Relation("visits", "{subject} is in the", "Where is {subject}?", PLACES)
LIES = Relation("lies", "The {subject} is in the", "Where is the {subject}?", BOXES)

FIXED = (LIVES, WORKS, LIKES, KEEPS)
GIVEN = (HAS, VISITS, LIES)


@dataclass(frozen=True)
class Fact:
    """One thing that is true: `Fact(LIVES, "Ada", "Fernhill")`."""

    relation: Relation
    subject: str
    value: str

    def begin(self, subject: str | None = None) -> str:
        """The sentence up to its last word: `Ada lives in`. `subject` may be a pronoun."""
        return self.relation.says.format(subject=subject or self.subject)

    def say(self, subject: str | None = None) -> str:
        """The whole sentence: `Ada lives in Fernhill.`"""
        return f"{self.begin(subject)} {self.value}."


@dataclass(frozen=True)
class Question:
    """A question about one fact, its answer a sentence.

    `ask + " " + begin` is what a model is given; `answer` is the one word it should say next.
    """

    fact: Fact
    ask: str
    begin: str
    answer: str

    @property
    def line(self) -> str:
        """Question and answer as they stand in a text."""
        return f"{self.ask} {self.fact.say()}"


def question(fact: Fact, about_subject: bool = False) -> Question:
    """The question whose answer is the fact's value, or (`about_subject`) its subject."""
    relation = fact.relation
    if not about_subject:
        ask = relation.asks_value.format(subject=fact.subject)
        return Question(fact, ask, fact.begin(), fact.value)
    if relation.asks_subject is None:
        raise ValueError(f"nobody in this world asks for the subject of {relation.name!r}")
    return Question(fact, relation.asks_subject.format(value=fact.value), "", fact.subject)


def _settle() -> dict[tuple[str, str], Fact]:
    """The fixed facts. Every value is used about equally often, so no guess is a good guess."""
    facts = {}
    for relation in FIXED:
        dice = Dice("world", relation.name)
        repeats = -(-len(PEOPLE) // len(relation.values))
        values = dice.shuffled((relation.values * repeats)[: len(PEOPLE)])
        for who, value in zip(PEOPLE, values):
            facts[relation.name, who] = Fact(relation, who, value)
    return facts


_FIXED_FACTS = _settle()


def fixed_fact(relation: Relation, who: str) -> Fact:
    """What is true of a person in every text: `fixed_fact(LIVES, "Ada")`.

    Errors: ValueError when the relation is not a fixed one or nobody has that name.
    """
    try:
        return _FIXED_FACTS[relation.name, who]
    except KeyError:
        raise ValueError(
            f"no fixed fact {relation.name!r} about {who!r}: relations are "
            f"{', '.join(r.name for r in FIXED)}; people are {', '.join(PEOPLE)}"
        ) from None


def fixed_facts() -> list[Fact]:
    """All of them: 24 people, four facts each."""
    return list(_FIXED_FACTS.values())
