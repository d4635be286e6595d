"""Named mistakes in exercise 01.3: a decode loop that runs each token once."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grading.exercise import Misconception


def newest(logits_BTV: torch.Tensor) -> torch.Tensor:
    """The likeliest next token of each text -> [B, 1]."""
    return logits_BTV[:, -1].argmax(-1, keepdim=True)


def loop(pick: Callable = newest, start: Callable = lambda prompt: prompt) -> Callable:
    """The right loop, with the way of picking a token and the first input open."""

    def generate(model, prompt_BT, count):
        cache = model.new_cache(prompt_BT.shape[0], prompt_BT.shape[1] + count)
        token_B1 = pick(model(start(prompt_BT), cache))
        tokens = [token_B1]
        for _ in range(count - 1):
            token_B1 = pick(model(token_B1, cache))
            tokens.append(token_B1)
        return torch.cat(tokens, 1)

    return generate


def over_everything(cache_for: Callable) -> Callable:
    """All the tokens so far go through the model at every step."""

    def generate(model, prompt_BT, count):
        tokens_BS, cache = prompt_BT, cache_for(model, prompt_BT, count)
        for _ in range(count):
            tokens_BS = torch.cat([tokens_BS, newest(model(tokens_BS, cache))], 1)
        return tokens_BS[:, prompt_BT.shape[1] :]

    return generate


def new_cache(model, prompt_BT, count):
    return model.new_cache(prompt_BT.shape[0], prompt_BT.shape[1] + count)


def new_cache_each_step(model, prompt_BT, count):
    given, tokens = prompt_BT, []
    for _ in range(count):
        given = newest(model(given, new_cache(model, prompt_BT, count)))
        tokens.append(given)
    return torch.cat(tokens, 1)


def last_prompt_token_twice(model, prompt_BT, count):
    cache = new_cache(model, prompt_BT, count + 1)
    model(prompt_BT, cache)
    token_B1, tokens = prompt_BT[:, -1:], []
    for _ in range(count):
        token_B1 = newest(model(token_B1, cache))
        tokens.append(token_B1)
    return torch.cat(tokens, 1)


def same_token_again(model, prompt_BT, count):
    cache = new_cache(model, prompt_BT, count)
    tokens = [newest(model(prompt_BT, cache))]
    for _ in range(count - 1):
        tokens.append(newest(model(prompt_BT[:, -1:], cache)))
    return torch.cat(tokens, 1)


def runs_the_last(model, prompt_BT, count):
    cache = new_cache(model, prompt_BT, count)
    token_B1, tokens = newest(model(prompt_BT, cache)), []
    for _ in range(count):
        tokens.append(token_B1)
        token_B1 = newest(model(token_B1, cache))
    return torch.cat(tokens, 1)


def prompt_by_token(model, prompt_BT, count):
    cache = new_cache(model, prompt_BT, count)
    for t in range(prompt_BT.shape[1]):
        token_B1 = newest(model(prompt_BT[:, t : t + 1], cache))
    tokens = [token_B1]
    for _ in range(count - 1):
        token_B1 = newest(model(token_B1, cache))
        tokens.append(token_B1)
    return torch.cat(tokens, 1)


def capacity_too_small(model, prompt_BT, count):
    class PromptOnly:
        """The model, but its caches are made for the prompt alone."""

        def new_cache(self, batch, capacity):
            return model.new_cache(batch, prompt_BT.shape[1])

        def __call__(self, tokens_BT, cache=None):
            return model(tokens_BT, cache)

    return loop()(PromptOnly(), prompt_BT, count)


DECODE = (
    Misconception(
        "recomputes",
        "The text is right, but everything so far runs again for each new token. That is the "
        "work a cache saves: give the model the cache and only the new token.",
        over_everything(lambda model, prompt, count: None),
    ),
    Misconception(
        "everything_into_the_cache",
        "This is the answer when the whole text goes in at every step although the cache "
        "holds it already: the model sees the beginning again and again. After the prompt, "
        "one new token at a time.",
        over_everything(new_cache),
    ),
    Misconception(
        "new_cache_each_step",
        "This is the answer with a new cache at every step: the model has forgotten the "
        "prompt. Make one cache before the loop.",
        new_cache_each_step,
    ),
    Misconception(
        "prompt_not_run",
        "This is the answer when only the prompt's last token went in: the model never saw "
        "the rest of the prompt.",
        loop(start=lambda prompt_BT: prompt_BT[:, -1:]),
    ),
    Misconception(
        "last_prompt_token_twice",
        "This is the answer when the prompt's last token runs twice. The pass over the prompt "
        "has given the logits for the first new token already: use its last position.",
        last_prompt_token_twice,
    ),
    Misconception(
        "first_position",
        "This is the answer from the logits of the first position. The last position, -1, "
        "tells what comes next.",
        loop(pick=lambda logits_BTV: logits_BTV[:, 0].argmax(-1, keepdim=True)),
    ),
    Misconception(
        "same_token_again",
        "This is the answer when the prompt's last token goes in at every step. Feed the "
        "token that was chosen last.",
        same_token_again,
    ),
    Misconception(
        "runs_the_last",
        "The text is right, but one run is wasted: the last token is put through the model "
        "and nobody needs what follows it.",
        runs_the_last,
    ),
    Misconception(
        "prompt_by_token",
        "The text is right and each token runs once, but the prompt went through one token "
        "at a time: one call takes it whole.",
        prompt_by_token,
    ),
    Misconception(
        "prompt_included",
        "The prompt stands in front of the new tokens; return the new ones only.",
        lambda model, prompt, count: torch.cat([prompt, loop()(model, prompt, count)], 1),
    ),
    Misconception(
        "one_too_many",
        "There is one token too many: the token after the prompt is the first of `count`.",
        lambda model, prompt, count: loop()(model, prompt, count + 1),
    ),
    Misconception(
        "first_text_for_all",
        "This is the answer when all the texts of the batch continue as the first one does. "
        "Each row has its own next token.",
        loop(pick=lambda logits_BTV: newest(logits_BTV)[:1].expand(len(logits_BTV), 1)),
    ),
    Misconception(
        "least_likely",
        "This is the answer with the least likely token each time: argmax, not argmin.",
        loop(pick=lambda logits_BTV: logits_BTV[:, -1].argmin(-1, keepdim=True)),
    ),
    Misconception(
        "capacity_too_small",
        "The text is right, but the cache was made for the prompt alone; it has to hold the "
        "new tokens too.",
        capacity_too_small,
    ),
)
