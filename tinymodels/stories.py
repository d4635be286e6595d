"""Texts of the small world: short scenes, portraits, and stories of a hundred sentences.

A text is one paragraph of simple sentences, then questions, one a line, each answered by a
sentence. What was given early may be asked late: that is what the memory is for.
"""

from dataclasses import dataclass

from tinymodels.dice import Dice
from tinymodels.world import (
    BOXES,
    DEEDS,
    FIXED,
    HAS,
    LIES,
    MEN,
    MOODS,
    PEOPLE,
    PLACES,
    THINGS,
    VISITS,
    WEATHER,
    WOMEN,
    Fact,
    Question,
    fixed_fact,
    pronoun,
    question,
)


@dataclass(frozen=True)
class Story:
    """Sentences, the facts given in them (and where), and the questions that follow.

    known: sentences whose last word a reader can know before it comes, because it was given
    earlier in the text or is always true.
    """

    sentences: tuple[str, ...]
    given: tuple[tuple[int, Fact], ...]  # (index of the sentence, fact)
    questions: tuple[Question, ...]
    known: frozenset[int] = frozenset()

    @property
    def paragraph(self) -> str:
        return " ".join(self.sentences)

    @property
    def text(self) -> str:
        """The whole text, ending with a line break."""
        return "\n".join([self.paragraph, *(q.line for q in self.questions)]) + "\n"

    def parts(self) -> list[str]:
        """The text, cut before every word that can be known; joined, the parts are the text."""
        marked = [
            "|".join(_split_last(s)) if i in self.known else s for i, s in enumerate(self.sentences)
        ]
        lines = [" ".join(marked)]
        for q in self.questions:
            before = f"{q.ask} {q.begin}".rstrip()
            lines.append(f"{before}|{q.line[len(before) :]}")
        return ("\n".join(lines) + "\n").split("|")

    def prompt(self, asked: Question) -> str:
        """Paragraph and one question, cut right before the answer's word."""
        return f"{self.paragraph}\n{asked.ask}" + (f" {asked.begin}" if asked.begin else "")


def _split_last(sentence: str) -> tuple[str, str]:
    """`Ada lives in`, ` Fernhill.`"""
    cut = sentence.rindex(" ")
    return sentence[:cut], sentence[cut:]


def _given_facts(dice: Dice, cast: list[str], count: int, alike: bool) -> list[Fact]:
    """Up to `count` facts that hold in one text only; no person or thing is used twice.

    alike: all of one kind, so that the kind of word alone is never the answer.
    """
    things = dice.shuffled(THINGS)
    kinds = [[Fact(HAS, who, things.pop()) for who in cast[: len(THINGS) - len(BOXES)]]]
    kinds.append([Fact(VISITS, who, place) for who, place in zip(cast, dice.shuffled(PLACES))])
    kinds.append([Fact(LIES, thing, box) for thing, box in zip(things, dice.shuffled(BOXES))])
    one_kind = dice.choice([kind for kind in kinds if len(kind) >= count] or kinds)
    facts = one_kind if alike else [fact for kind in kinds for fact in kind]
    return dice.sample(facts, min(count, len(facts)))


def _stranger(dice: Dice) -> str:
    """A name nobody in this world has, so it is spelled: `Bo`, `Lumi`, `Tarik`."""
    name = "".join(dice.choice("bdfghjklmnprstvz") + dice.choice("aeiou") for _ in "ab")
    return (name + dice.choice(("", "", "k", "n", "r", "s")))[dice.below(2) :].capitalize()


def _cast(dice: Dice, size: int) -> list[str]:
    """`size` people, about as many women as men; now and then a stranger is one of them."""
    women, men = dice.shuffled(WOMEN), dice.shuffled(MEN)
    cast = [who for pair in zip(women, men) for who in pair][:size]
    if size > 2 and dice.chance(0.15):
        cast[-1] = _stranger(dice)
    return dice.shuffled(cast)


class _Teller:
    """Makes the sentences of one text and remembers what has been said.

    A fixed fact is said at most once in a text, so it can never be copied from the text itself.
    """

    def __init__(self, dice: Dice, cast: list[str]):
        self.dice = dice
        self.cast = cast
        self.residents = [who for who in cast if who in PEOPLE]
        self.told_fixed: set[str] = set()
        self.untold = dice.shuffled([fixed_fact(r, who) for who in self.residents for r in FIXED])

    def remark(self, who: str, subject: str) -> str:
        """Something nobody will ask about; `subject` is the name or a pronoun in its place."""
        kind = self.dice.below(10)
        own = [fact for fact in self.untold if fact.subject == who]
        if kind >= 8 and own:
            self.untold.remove(own[0])
            self.told_fixed.add(own[0].say(subject))
            return own[0].say(subject)
        if kind >= 5:
            return f"{subject} is {self.dice.choice(MOODS)}."
        return f"{subject} {self.dice.choice(DEEDS)}."

    def meeting(self, who: str, other: str) -> str:
        first, second = self.dice.shuffled((who, other))
        return f"{first} meets {second}."

    def partner(self, who: str) -> str | None:
        """Someone in the cast with the other pronoun, so that `She` and `He` are clear."""
        if who not in self.residents:
            return None
        others = [p for p in self.residents if pronoun(p) != pronoun(who)]
        return self.dice.choice(others) if others else None

    def tell(self, fact: Fact) -> list[str]:
        """The sentence that gives a fact; sometimes a meeting first, and then a pronoun."""
        if fact.relation is LIES and self.dice.chance(0.5):
            who = self.dice.choice(self.cast)
            return [f"{who} puts the {fact.subject} in the {fact.value}."]
        other = self.partner(fact.subject)
        if other and self.dice.chance(0.25):
            return [self.meeting(fact.subject, other), fact.say(pronoun(fact.subject))]
        return [fact.say()]

    def pass_time(self) -> list[str]:
        """One to three sentences in which nothing is given that will be asked."""
        kind = self.dice.below(10)
        who = self.dice.choice(self.cast)
        other = self.partner(who)
        if kind < 2:
            return [self.dice.choice(WEATHER)]
        if kind < 7 or other is None:
            return [self.remark(who, who)]
        if kind < 8:
            return [self.remark(who, who), self.remark(who, pronoun(who))]
        pair = self.dice.shuffled((who, other))[: self.dice.between(1, 2)]
        return [self.meeting(who, other), *(self.remark(p, pronoun(p)) for p in pair)]


def story(dice: Dice, sentences: int, facts: int, early: bool = False) -> Story:
    """A story of exactly `sentences` sentences that gives up to `facts` facts.

    `early`: the facts come first and are not repeated, so the questions reach far back.
    """
    if sentences < 1 or facts < 0:
        raise ValueError(f"story of {sentences} sentences and {facts} facts: at least 1 and 0")
    cast = _cast(dice, max(2, min(8, facts)))
    teller = _Teller(dice, cast)
    told: list[str] = []
    given: list[tuple[int, Fact]] = []
    again: set[int] = set()
    coming = _given_facts(dice, cast, facts, alike=facts <= 6 and dice.chance(0.5))
    while len(told) < sentences:
        left = sentences - len(told)
        if coming and (early or dice.chance(2.5 * len(coming) / left)):
            fact = coming.pop()
            said = teller.tell(fact)
            told += said if len(said) <= left else [fact.say()]
            given.append((len(told) - 1, fact))
        elif given and not early and dice.chance(0.35):
            again.add(len(told))
            told.append(dice.choice(given)[1].say())
        else:
            told += teller.pass_time()[:left]
    questions = _questions(dice, [fact for _, fact in given], teller.untold)
    again |= {i for i, sentence in enumerate(told) if sentence in teller.told_fixed}
    return Story(tuple(told), tuple(given), tuple(questions), frozenset(again))


def _questions(dice: Dice, given: list[Fact], untold: list[Fact]) -> list[Question]:
    """About up to six given facts and, one person in two, a fixed fact the text did not say."""
    asked = [
        question(fact, about_subject=fact.relation is HAS and dice.chance(0.5))
        for fact in dice.sample(given, min(6, len(given)))
    ]
    for who in dict.fromkeys(fact.subject for fact in untold):
        if dice.chance(0.5):
            asked.append(question(next(fact for fact in untold if fact.subject == who)))
    return dice.shuffled(asked)


def portrait(dice: Dice) -> Story:
    """What is always true of one person, said with a name first and pronouns after."""
    who = dice.choice(PEOPLE)
    facts = [fixed_fact(relation, who) for relation in dice.shuffled(FIXED)]
    first, *rest = facts[: dice.between(1, 3)]
    others = [question(fact) for fact in facts if fact not in (first, *rest)]
    said = (first.say(), *(fact.say(pronoun(who)) for fact in rest))
    return Story(said, (), tuple(others), frozenset(range(len(said))))


def refrain(dice: Dice, facts: int) -> Story:
    """A few facts of one kind, each said three times, in any order, and then asked.

    Every second sentence has a last word that only the text can tell: nothing teaches looking
    back as fast.
    """
    cast = _cast(dice, max(2, facts))
    given = _given_facts(dice, cast, facts, alike=True)
    order = given + dice.shuffled(given * 2)
    again = frozenset(range(len(given), len(order)))
    asked = [question(f, about_subject=f.relation is HAS and dice.chance(0.5)) for f in given]
    said = tuple(fact.say() for fact in order)
    return Story(said, tuple(enumerate(given)), tuple(dice.shuffled(asked)), again)


def long_story(dice: Dice, sentences: int = 100) -> Story:
    """Facts in the first sentences, then a long time of small things, then the questions."""
    return story(dice, sentences, facts=dice.between(2, 6), early=True)


def any_text(dice: Dice, room: int = 512) -> Story:
    """A text as training sees it, of a kind that suits rows of `room` tokens: scenes that are
    asked about at once where rows are short, more and longer stories where they are long."""
    kind = dice.below(20)
    if kind < 2:
        return portrait(dice)
    facts = dice.between(2, max(3, min(6, room // 25)))
    if kind < (8 if room < 100 else 4):
        return refrain(dice, facts)
    if kind < 8 or room < 100:
        return story(dice, facts + dice.below(3), facts)
    if kind < 12:
        return story(dice, dice.between(facts, facts + 8), facts)
    if kind < 15 or room < 300:
        return story(dice, dice.between(12, min(40, room // 8)), dice.between(3, 9))
    return long_story(dice, dice.between(40, 100))
