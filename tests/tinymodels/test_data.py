"""The small world, its texts, the tokenizer and the batches: the same on every machine."""

import random
import string
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tinymodels import data, stories, tokenizer
from tinymodels.dice import Dice
from tinymodels.world import (
    FIXED,
    GIVEN,
    HAS,
    LIVES,
    MEN,
    PEOPLE,
    TOWNS,
    WOMEN,
    WORDS,
    Fact,
    fixed_fact,
    fixed_facts,
    pronoun,
    question,
)

PRINTABLE = "\n" + "".join(map(chr, range(32, 127)))
TEXTS = st.lists(
    st.one_of(st.sampled_from(WORDS), st.text(PRINTABLE, max_size=5), st.sampled_from(" \n.")),
    max_size=20,
).map("".join)

# Of nine batches of seed 5, three games and four rows of 477 tokens (text) or 99 (recall).
TEXT_SHA256 = "2c667c9fb33929713d7ca64c53a4f751695f95d07dda0d31ede9985fb961f155"
RECALL_SHA256 = "c35d919884a3f8fa4f08716772c3f1402b0d8fea4bf01142a6cb318fa1283ca7"


# ---------------------------------------------------------------- dice


def test_dice_are_the_same_stream_for_the_same_seed():
    draws = [[Dice("a", 3).below(97)] + [d.below(97) for _ in range(9)] for d in [Dice("a", 3)] * 1]
    assert draws[0][0] == draws[0][1]
    assert [Dice("a", s).below(1000) for s in (1, 2, 3)] != [
        Dice("b", s).below(1000) for s in (1, 2, 3)
    ]


def test_dice_choose_every_item_and_sample_without_repeats():
    dice = Dice("coverage")
    assert {dice.below(7) for _ in range(300)} == set(range(7))
    assert {dice.between(3, 5) for _ in range(100)} == {3, 4, 5}
    for count in range(6):
        chosen = dice.sample("abcde", count)
        assert len(set(chosen)) == len(chosen) == count
    assert sorted(dice.shuffled(range(11))) == list(range(11))
    firsts = Counter(dice.shuffled("abc")[0] for _ in range(900))
    assert min(firsts.values()) > 230


@pytest.mark.parametrize("ask", [lambda d: d.below(0), lambda d: d.sample("ab", 3)])
def test_dice_refuse_what_cannot_be_drawn(ask):
    with pytest.raises(ValueError, match="Dice"):
        ask(Dice(1))


# ---------------------------------------------------------------- tokenizer


@given(TEXTS)
def test_any_printable_text_survives_the_round_trip(text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert ids[0] == tokenizer.BOS and tokenizer.BOS not in ids[1:]
    assert "".join(tokenizer.pieces(ids)[1:]) == text
    assert all(0 <= i < tokenizer.VOCABULARY for i in ids)


@given(TEXTS, st.integers(0, 30))
def test_what_was_read_in_two_parts_shows_as_one(text, cut):
    ids = tokenizer.encode(text, bos=False)
    at_start = cut == 0 or not ids[:cut] or tokenizer.decode(ids[:cut])[-1] == "\n"
    rest = tokenizer.decode(ids[cut:], line_start=at_start)
    again = tokenizer.encode(rest, bos=False, line_start=at_start)
    assert tokenizer.decode(again, line_start=at_start) == rest
    assert tokenizer.decode(ids[:cut]) + rest == text


def test_vocabulary_fits_one_byte_and_has_no_doubles():
    assert tokenizer.VOCABULARY == 1 + 96 + len(WORDS) <= 256
    assert len(set(WORDS)) == len(WORDS)
    assert len({tokenizer.word_id(word) for word in WORDS}) == len(WORDS)


def test_frequent_words_are_one_token_and_the_same_one_everywhere():
    for word in WORDS:
        alone, inside = tokenizer.encode(word, bos=False), tokenizer.encode(f". {word}", bos=False)
        assert alone == inside[1:] == [tokenizer.word_id(word)]
    assert tokenizer.pieces(tokenizer.encode("Ada meets Bo.")) == [
        "<bos>", "Ada", " meets", " ", "B", "o", ".",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["Adam", "Ada's", " Ada", "  Ada", "AdaBen", "lamp7", "\n Ada"])
def test_words_are_matched_whole_and_spaces_kept(text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("Adam", bos=False)) == 4


def test_other_characters_become_a_visible_question_mark():
    assert tokenizer.decode(tokenizer.encode("Zoë läuft\t→")) == "Zo? l?uft??"


def test_tokenizer_refuses_what_is_no_text_and_no_token():
    with pytest.raises(ValueError, match="bytes"):
        tokenizer.encode(b"Ada")
    with pytest.raises(ValueError, match="bos=False"):
        tokenizer.encode(" Ada", line_start=False)
    for bad in (-1, tokenizer.VOCABULARY):
        with pytest.raises(ValueError, match=f"{bad} is no token"):
            tokenizer.decode([bad])
    with pytest.raises(ValueError, match="'zebra'"):
        tokenizer.word_id("zebra")


# ---------------------------------------------------------------- world and stories


def test_fixed_facts_are_fixed_complete_and_balanced():
    assert len(fixed_facts()) == len(PEOPLE) * len(FIXED) == 96
    assert fixed_fact(LIVES, "Ada").say() == "Ada lives in Millbrook."
    for relation in FIXED:
        used = Counter(fixed_fact(relation, who).value for who in PEOPLE)
        assert set(used) == set(relation.values)
        assert max(used.values()) - min(used.values()) <= 1
    with pytest.raises(ValueError, match="'Zora'"):
        fixed_fact(LIVES, "Zora")


def test_questions_end_right_before_their_answer():
    lives = fixed_fact(LIVES, "Ben")
    asked = question(lives)
    assert f"{asked.ask} {asked.begin} {asked.answer}." == asked.line
    assert asked.answer in TOWNS
    who = question(Fact(HAS, "Ada", "lamp"), about_subject=True)
    assert (who.ask, who.begin, who.answer) == ("Who has the lamp?", "", "Ada")
    assert who.line == "Who has the lamp? Ada has the lamp."
    with pytest.raises(ValueError, match="lives"):
        question(lives, about_subject=True)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("sentences, facts", [(1, 1), (3, 0), (7, 5), (23, 9), (100, 6)])
def test_stories_have_the_length_and_the_facts_they_were_asked_for(sentences, facts, early):
    for seed in range(7):
        told = stories.story(Dice("test", seed), sentences, facts, early)
        assert len(told.sentences) == sentences
        assert all(s[0].isupper() and s[-1] == "." for s in told.sentences)
        assert len(told.given) <= facts
        for at, fact in told.given:
            assert told.sentences[at].endswith(f"{fact.value}.")
        subjects = [(f.relation.name, f.subject) for _, f in told.given]
        assert len(set(subjects)) == len(subjects)
        values = [(f.relation.name, f.value) for _, f in told.given]
        assert len(set(values)) == len(values)


def test_what_is_asked_was_given_or_is_fixed_and_then_not_in_the_text():
    for seed in range(60):
        told = stories.any_text(Dice("asked", seed))
        given = [fact for _, fact in told.given]
        for asked in told.questions:
            if asked.fact.relation.fixed:
                assert asked.fact == fixed_fact(asked.fact.relation, asked.fact.subject)
                assert asked.fact.say() not in told.sentences
            else:
                assert asked.fact in given
            prompt = told.prompt(asked)
            assert f"{prompt} {asked.answer}" in told.paragraph + "\n" + asked.line
        assert told.text.endswith(".\n")


def test_a_fixed_fact_is_said_at_most_once_in_a_text():
    sayings = {relation.says.split("} ")[1] for relation in FIXED}
    for seed in range(40):
        told = stories.long_story(Dice("once", seed))
        named = [s for s in told.sentences if s.split()[0] in PEOPLE]
        fixed = [s for s in named if any(f" {words} " in s for words in sayings)]
        assert len(set(fixed)) == len(fixed)


def test_pronouns_follow_a_meeting_or_the_person_and_can_mean_one_person_only():
    for seed in range(80):
        told = stories.any_text(Dice("pronouns", seed)).sentences
        for at, sentence in enumerate(told):
            first = sentence.split()[0]
            if first not in ("She", "He"):
                continue
            back = next(
                told[i] for i in range(at - 1, -1, -1) if told[i].split()[0] not in ("She", "He")
            )
            named = [w for w in back.strip(".").split() if w in PEOPLE]
            assert [pronoun(who) for who in named].count(first) == 1, (back, sentence)


def test_words_that_can_be_known_are_marked_and_only_those():
    for seed in range(60):
        told = stories.any_text(Dice("known", seed))
        parts = told.parts()
        assert "".join(parts) == told.text
        assert len(parts) == 1 + len(told.known) + len(told.questions)
        for at in told.known:
            sentence = told.sentences[at]
            subject, *middle, last = sentence.rstrip(".").split()
            repeated = sentence in told.sentences[:at] or any(
                fact.say() == sentence for i, fact in told.given if i < at
            )
            always = any(
                f.value == last and subject in (f.subject, pronoun(f.subject))
                for f in fixed_facts()
            )
            assert repeated or always, sentence


def test_a_hundred_sentences_and_a_question_fit_the_length_of_training():
    for seed in range(30):
        told = stories.long_story(Dice("long", seed), 100)
        assert max(len(tokenizer.encode(told.prompt(q))) for q in told.questions) < 512


def test_training_texts_use_every_word_and_only_characters_of_the_vocabulary():
    seen: Counter[int] = Counter()
    for seed in range(150):
        text = stories.any_text(Dice("words", seed), room=(64, 256, 512)[seed % 3]).text
        assert set(text) <= set(string.printable)
        seen.update(tokenizer.encode(text))
    assert [word for word in WORDS if not seen[tokenizer.word_id(word)]] == []


def test_the_world_has_clear_names():
    assert len(PEOPLE) == len(set(PEOPLE)) == 24 and not set(WOMEN) & set(MEN)
    assert len({r.name for r in FIXED + GIVEN}) == 7


# ---------------------------------------------------------------- recall


@pytest.mark.parametrize(
    "length, pairs, queries", [(6, 1, 1), (97, 11, 5), (99, 19, None), (251, 48, None)]
)
def test_recall_texts_ask_what_was_given_at_the_distance_they_say(length, pairs, queries):
    for seed in range(11):
        made = data.recall(Dice("recall", seed), length, pairs, queries)
        assert len(made.tokens) == length and made.tokens[0] == tokenizer.BOS
        assert len(made.answers) == (min(pairs, 16) if queries is None else queries)
        first_query = made.answers[0] - 2
        for at, distance in zip(made.answers, made.distances):
            mark, key, value = made.tokens[at - 2 : at + 1]
            assert mark == data.QUERY
            source = at - 1 - distance
            assert source < first_query
            assert made.tokens[source - 1 : source + 1] == (key, value)
            assert made.tokens[:first_query].count(key) == 1
        asked = [made.tokens[at - 1] for at in made.answers]
        assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(
    "length, pairs, queries", [(5, 1, 1), (99, 0, 0), (99, 5, 6), (500, 65, 3)]
)
def test_recall_refuses_what_cannot_fit(length, pairs, queries):
    with pytest.raises(ValueError, match="pairs"):
        data.recall(Dice(0), length, pairs, queries)


def test_keys_values_and_noise_are_told_apart():
    groups = [set(data.KEYS), set(data.VALUES), set(data.NOISE), {data.QUERY, tokenizer.BOS}]
    assert len(set.union(*groups)) == sum(map(len, groups)) == 64 + 64 + 26 + 2


# ---------------------------------------------------------------- batches


STAGES = [
    data.Stage(5, 77),
    data.Stage(6, 33, games=0.5, level=2),
    data.Stage(7, 64, games=1.0, level=3, both_ways=True),
]


def same(one: data.Batch, other: data.Batch) -> bool:
    return all(
        torch.equal(getattr(one, n), getattr(other, n)) for n in ("tokens", "targets", "known")
    )


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("task", data.TASKS)
def test_a_batch_depends_on_task_seed_step_and_stage_and_nothing_else(task, stage):
    once = data.batch(task, 3, 17, stage)
    random.seed(1)
    torch.manual_seed(1)
    assert same(once, data.batch(task, 3, 17, stage))
    for other in (
        data.batch(task, 4, 17, stage),
        data.batch(task, 3, 18, stage),
        data.batch(task, 3, 17, stage, held_out=True),
    ):
        assert not torch.equal(other.tokens, once.tokens)
    assert not torch.equal(once.tokens[0], once.tokens[1])


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("task", data.TASKS)
def test_targets_are_the_next_tokens_where_they_are_asked(task, stage):
    made = data.batch(task, 0, 0, stage)
    for ids in (made.tokens, made.targets, made.known):
        assert ids.shape == (stage.rows, stage.length) and ids.dtype == torch.int64
    asked, known = made.targets != data.IGNORED, made.known != data.IGNORED
    assert torch.equal(made.targets[:, :-1][asked[:, :-1]], made.tokens[:, 1:][asked[:, :-1]])
    assert torch.equal(made.known[known], made.targets[known])
    games = round(stage.games * stage.rows)
    assert torch.equal(asked[:games], known[:games])
    if task == "text":
        assert asked[games:].all() and (not known[games:].numel() or not known[games:].all())
    else:
        assert torch.equal(asked, known)
        assert set(made.tokens[games:][asked[games:]].tolist()) <= set(data.KEYS)
    assert 0.01 < known.float().mean() < 0.5


@pytest.mark.parametrize("level", range(len(data.JOINS)))
def test_in_a_memory_game_what_can_be_known_was_said_after_the_same_words(level):
    for seed in range(20):
        row, known = data.game_row(Dice("game", seed), 61, level)
        assert len(row) == len(known) == 61 and row[0] == tokenizer.BOS
        joins = [tokenizer.encode(join, bos=False) for join in data.JOINS[: level + 1]]
        asked = [at for at, token in enumerate(known) if token != data.IGNORED]
        assert asked
        for at in asked:
            assert known[at] == row[at]
            before = [i for i in range(at) if row[i] == row[at]]
            assert any(
                row[i - n - 1 : i + 1] == row[at - n - 1 : at + 1] and row[i - n : i] in joins
                for n in range(4)
                for i in before
            )


@pytest.mark.parametrize("level", range(len(data.BACKWARD)))
def test_a_backward_game_asks_for_the_first_word_of_a_pair(level):
    joins = [tokenizer.encode(join, bos=False) for join, *_ in data.BACKWARD[: level + 1]]
    for seed in range(20):
        row, known = data.game_row(Dice("game", seed), 61, level, backward=True)
        assert len(row) == len(known) == 61
        asked = [at for at, token in enumerate(known) if token != data.IGNORED]
        assert asked
        for at in asked:
            assert known[at] == row[at]
            second = row[at - 2] if row[at - 1] == data.QUERY else row[at - 1]
            pair = ([row[at], *join, second] for join in joins)
            assert any(row[i : i + len(p)] == p for p in pair for i in range(at - len(p)))


@pytest.mark.parametrize(
    "task, length, literal", [("text", 477, TEXT_SHA256), ("recall", 99, RECALL_SHA256)]
)
def test_the_data_is_the_same_on_every_machine(task, length, literal):
    stage = data.Stage(7, length, games=0.4, level=3, both_ways=task == "text")
    batches = [data.batch(task, 5, step, stage) for step in range(9)]
    assert data.fingerprint(batches) == literal
    assert data.fingerprint(batches[::-1]) != literal


@pytest.mark.parametrize(
    "settings",
    [{"rows": 0}, {"length": 0}, {"games": 1.1}, {"games": -0.1}, {"level": 4}, {"level": -1}],
)
def test_stages_refuse_bad_settings(settings):
    with pytest.raises(ValueError, match="at least 1|games is"):
        data.Stage(**({"rows": 2, "length": 9} | settings))


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match="'poems'.*text, recall"):
        data.batch("poems", 0, 0, data.Stage(1, 9))
