"""What chapter 02 says of trained models, on every seed that is shipped, with a margin."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tinymodels import checkpoints, data, lens, probe, tokenizer
from tinymodels.dice import Dice
from tinymodels.step import Step
from tinymodels.stories import story
from tinymodels.world import fixed_facts, question

NAMES = [name for name in checkpoints.available() if name.startswith("tiny_v1-text")]
OWN = (0, 1, 2, 3)


@pytest.fixture(scope="module", params=NAMES)
def model(request):
    return checkpoints.load(request.param).requires_grad_(False)


def fixed():
    return [(f"{q.ask} {q.begin}", q.answer) for q in map(question, fixed_facts())]


def given(count=25):
    """Other stories than the chapter's."""
    told = [story(Dice("effects", i), sentences=8, facts=4, early=True) for i in range(count)]
    asked = ((s, q) for s in told for q in s.questions if q.begin and not q.fact.relation.fixed)
    return [(s.prompt(q), q.answer) for s, q in asked]


def run_layers(model, tokens_BT, source=OWN):
    step, x, made = Step(tokens_BT), model.embed(tokens_BT), []
    for i, layer in enumerate(model.layers):
        query, rows = layer.attention.project(layer.attention_norm(x), step)
        made.append(rows)
        x = x + layer.attention.attend(query, made[source[i]], step)
        x = x + layer.ffn(layer.ffn_norm(x))
    return model.head(model.norm(x)), made


def right(model, pairs, source):
    said = []
    for prompt, answer in pairs:
        tokens = torch.tensor([tokenizer.encode(prompt)])
        best = run_layers(model, tokens, source)[0][0, -1].argmax()
        said.append(int(best) == tokenizer.word_id(answer))
    return sum(said) / len(said)


def keys(model, text):
    rows = run_layers(model, torch.tensor([tokenizer.encode(text)]))[1]
    return [row["key"][0] for row in rows]


def test_the_first_layers_key_knows_the_word_alone(model):
    """Same word, same place: layer 0 cannot tell whose lamp it is, the others can."""
    ada, ben = keys(model, "Ada has the lamp."), keys(model, "Ben has the lamp.")
    apart = [((a - b)[-2].norm() / a[-2].norm()).item() for a, b in zip(ada, ben)]
    assert apart[0] < 1e-6 and min(apart[1:]) > 1e-3 and max(apart) > 0.3


def test_keys_of_different_layers_have_little_in_common(model):
    text = story(Dice("effects", "keys"), sentences=20, facts=4).text
    rows = torch.stack(keys(model, text))
    cosine = torch.cosine_similarity(rows[:, None], rows[None], dim=-1).mean(-1)
    assert (cosine - torch.eye(4)).abs().max() < 0.4


def test_a_borrowed_memory_breaks_the_lower_layers(model):
    pairs = given()
    assert right(model, pairs, OWN) > 0.8
    assert right(model, pairs, (0, 0, 2, 3)) < 0.6
    assert right(model, pairs, (0, 1, 1, 3)) < 0.6


@pytest.mark.parametrize("kind", [fixed, given])
def test_answers_come_up_with_depth(model, kind):
    rank, bits = lens.follow(model, kind())
    first = (rank == 1).double().mean(1)
    assert first[0] < 0.25 and first[1] < 0.25 and first[-1] > 0.8
    middle = rank.double().log().mean(1)
    assert middle[1] - middle[-1] > 1.0 and bits[0].mean() - bits[-1].mean() > 1.0


def test_early_guesses_are_wrong_without_being_undecided(model):
    rank, bits = lens.follow(model, given())
    assert (rank[1] == 1).double().mean() < 0.25
    assert bits[1].mean() < 6  # 8 bits would be no idea at all


def test_given_facts_come_up_before_the_last_layer_and_some_fixed_ones_in_it(model):
    late = {}
    for kind in (given, fixed):
        rank, _ = lens.follow(model, kind())
        first = (rank == 1).double().mean(1)
        assert first[2] < first[-1] - 0.4
        late[kind] = first[-1] - first[-2]
    assert late[given] < 0.1 and late[fixed] > 0.15


def test_the_top_layer_can_borrow_where_a_given_fact_is_asked(model):
    pairs = given()
    assert right(model, pairs, OWN) - right(model, pairs, (0, 1, 2, 2)) < 0.15
    tokens = data.batch("text", 0, 1, data.Stage(6, 150), held_out=True)
    errors = [
        cross_entropy(
            run_layers(model, tokens.tokens, s)[0].flatten(0, 1), tokens.targets.flatten()
        )
        for s in (OWN, (0, 1, 2, 2))
    ]
    assert errors[1] - errors[0] > 0.05  # text is not all questions


def test_probes(model):
    local = probe.by_layer(probe.characters(model, each=60), 240)
    who = probe.by_layer(probe.pronouns(model), 384)
    answer = probe.by_layer(probe.answers(model, 500), 350)
    assert min(local[:3]) > 0.9
    assert who[0] < 0.15 and max(who[1:]) > 0.6
    assert max(answer[:2]) < 0.4 and answer[-1] > 0.9
    assert next(i for i, share in enumerate(who) if share > 0.5) < next(
        i for i, share in enumerate(answer) if share > 0.5
    )
