"""What a trained tiny model knows: its loss, the facts it keeps, the facts it looks back for.

Every figure is a share of right answers: the likeliest next token is the answer or it is not.
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tinymodels import data, stories, tokenizer
from tinymodels.dice import Dice
from tinymodels.world import MEN, WOMEN, fixed_facts, pronoun, question

STORY_LENGTHS = (4, 10, 25, 50, 100)  # sentences
PAIRS = (4, 8, 16, 32, 48)
DISTANCES = (8, 16, 32, 64, 128, 256)  # upper edges, in tokens

Model = Callable[[Int[Tensor, "B T"]], Float[Tensor, "B T V"]]
Asked = tuple[list[int], int]  # a prompt's tokens, and the token that should follow


@torch.no_grad()
def right_answers(model: nn.Module, asked: list[Asked], size: int = 16) -> list[bool]:
    """Whether each prompt is continued with the right token. Prompts may differ in length."""
    device = next(model.parameters()).device
    order = sorted(range(len(asked)), key=lambda i: len(asked[i][0]))
    right = [False] * len(asked)
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        longest = len(asked[chosen[-1]][0])
        # What follows a prompt cannot change what the model says at its end.
        rows = [asked[i][0] + [tokenizer.BOS] * (longest - len(asked[i][0])) for i in chosen]
        best_BT = model(torch.tensor(rows, device=device)).argmax(-1).cpu()
        for i, best_T in zip(chosen, best_BT):
            right[i] = int(best_T[len(asked[i][0]) - 1]) == asked[i][1]
    return right


def share(right: Iterable[bool]) -> float:
    """The share that is right, to four places."""
    right = list(right)
    return round(sum(right) / len(right), 4)


def _ask(prompt: str, answer: str) -> Asked:
    return tokenizer.encode(prompt), tokenizer.word_id(answer)


def fixed_fact_accuracy(model: nn.Module) -> dict[str, float]:
    """All fixed facts, asked in three ways; nothing in the prompt tells the answer.

    statement: `Ada lives in`. question: `Where does Ada live? Ada lives in`. pronoun: `Ada meets
    Ben. She lives in`, every pair that `She` and `He` tell apart.
    """
    facts = fixed_facts()
    statements = [_ask(f.begin(), f.value) for f in facts]
    questions = [(question(f), f.value) for f in facts]
    pronouns = []
    for fact in facts:
        for other in MEN if fact.subject in WOMEN else WOMEN:
            for pair in ((fact.subject, other), (other, fact.subject)):
                opening = "{} meets {}. ".format(*pair)
                pronouns.append(_ask(opening + fact.begin(pronoun(fact.subject)), fact.value))
    return {
        "statement": share(right_answers(model, statements)),
        "question": share(
            right_answers(model, [_ask(f"{q.ask} {q.begin}", answer) for q, answer in questions])
        ),
        "pronoun": share(right_answers(model, pronouns)),
    }


def given_fact_accuracy(
    model: nn.Module, sentences: int, facts: int = 4, count: int = 100, seed: int = 0
) -> dict[str, float]:
    """Facts given in the first sentences of a story, asked after its last.

    value: `What does Ada have?`, `Where is Ada?` subject: `Who has the lamp?` all: both. chance:
    what guessing among the values of the right kind named in the story would get.
    """
    asked, chance, about_subject = [], [], []
    for i in range(count):
        told = stories.story(Dice("measure", seed, sentences, i), sentences, facts, early=True)
        given = [fact for _, fact in told.given]
        for one in (q for q in told.questions if not q.fact.relation.fixed):
            if one.answer not in tokenizer.WORDS:
                continue  # a stranger's spelled name is more than one token
            asked.append(_ask(told.prompt(one), one.answer))
            chance.append(1 / sum(fact.relation is one.fact.relation for fact in given))
            about_subject.append(one.answer == one.fact.subject)
    right = right_answers(model, asked)
    return {
        "all": share(right),
        "value": share(r for r, subject in zip(right, about_subject) if not subject),
        "subject": share(r for r, subject in zip(right, about_subject) if subject),
        "chance": round(sum(chance) / len(chance), 4),
    }


def recall_accuracy(
    model: nn.Module, length: int, count: int = 32, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Recall by how many pairs there are, and by how many tokens lie between.

    A distance bucket is named by its upper edge; chance is 1 / 64 in all of them.
    """
    by_pairs: dict[int, list[bool]] = {}
    by_distance: dict[int, list[bool]] = {}
    for pairs in (p for p in PAIRS if 1 + 2 * p + 3 * min(p, 16) <= length):
        made = [data.recall(Dice("measure", seed, pairs, i), length, pairs) for i in range(count)]
        asked = [(list(m.tokens[:at]), m.tokens[at]) for m in made for at in m.answers]
        by_pairs[pairs] = right_answers(model, asked)
        for distance, right in zip([d for m in made for d in m.distances], by_pairs[pairs]):
            edge = next((e for e in DISTANCES if distance <= e), length)
            by_distance.setdefault(edge, []).append(right)
    return {
        "pairs": {str(p): share(right) for p, right in by_pairs.items()},
        "distance": {str(d): share(right) for d, right in sorted(by_distance.items())},
    }


@torch.no_grad()
def loss(model: nn.Module, task: str, size: int, length: int, batches: int = 8) -> float:
    """Mean cross-entropy in nats a token over batches that training has not seen."""
    device = next(model.parameters()).device
    total = asked = 0.0
    for step in range(batches):
        made = data.batch(task, 0, step, data.Stage(size, length), held_out=True)
        logits_BTV = model(made.tokens.to(device)).float()
        targets = made.targets.to(device)
        total += float(cross_entropy(logits_BTV.flatten(0, 1), targets.flatten(), reduction="sum"))
        asked += int((targets != data.IGNORED).sum())
    return round(total / asked, 5)


def measure(model: nn.Module, task: str, size: int, length: int) -> dict:
    """Everything that is written beside a checkpoint of this task."""
    model.eval()
    found: dict = {"loss": loss(model, task, size, length)}
    if task == "recall":
        return found | {"recall": recall_accuracy(model, length)}
    found["fixed"] = fixed_fact_accuracy(model)
    found["given"] = {str(n): given_fact_accuracy(model, n) for n in STORY_LENGTHS}
    return found
