"""Named mistakes in exercise 10.2: candidate blocks."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from grading.exercise import Misconception

INF = float("inf")


def hidden(score_BTS, visible_TS):
    return score_BTS.masked_fill(~visible_TS, -INF)


def largest(score_BTJR):
    return score_BTJR.amax(-1)


def mean(score_BTJR):
    """Of the visible ones; a block without any is the worst."""
    there = score_BTJR > -INF
    total = score_BTJR.masked_fill(~there, 0).sum(-1) / there.sum(-1).clamp(min=1)
    return total.masked_fill(~there.any(-1), -INF)


def newest_visible(visible_TS, block: int, blocks: int):
    return torch.arange(blocks) == (visible_TS.sum(-1, keepdim=True) - 1) // block


def in_order(best_BTJ):
    return best_BTJ.sort(dim=-1, descending=True, stable=True).indices


def last_of_equals(best_BTJ):
    flipped = best_BTJ.flip(-1).sort(dim=-1, descending=True, stable=True).indices
    return best_BTJ.shape[-1] - 1 - flipped


def spread(kept_BTJ, block: int, visible_TS):
    return kept_BTJ.repeat_interleave(block, dim=-1)[..., : visible_TS.shape[-1]] & visible_TS


def answer(
    hide: Callable = hidden,
    best: Callable = largest,
    pinned: Callable = newest_visible,
    order: Callable = in_order,
    count: Callable = lambda keep: keep,
    extra: bool = False,
    out: Callable = spread,
) -> Callable:
    """The sieve with every choice open; the defaults make it right."""

    def candidates(score_BTS, visible_TS, block, keep):
        S = score_BTS.shape[-1]
        blocks = -(-S // block)
        padding = (0, blocks * block - S)
        padded_BTS = F.pad(hide(score_BTS, visible_TS), padding, value=-INF)
        best_BTJ = best(padded_BTS.unflatten(-1, (blocks, block)))
        pin_TJ = pinned(visible_TS, block, blocks)
        if not extra:
            best_BTJ = best_BTJ.masked_fill(pin_TJ, INF)
        kept_BTJ = torch.zeros_like(best_BTJ, dtype=torch.bool)
        kept_BTJ = kept_BTJ.scatter(-1, order(best_BTJ)[..., : count(keep)], True)
        if extra:
            kept_BTJ = kept_BTJ | pin_TJ
        return out(kept_BTJ, block, visible_TS)

    return candidates


def single_entries(score_BTS, visible_TS, block, keep):
    """The best keep x block entries, wherever they lie."""
    kept_BTS = torch.zeros_like(score_BTS, dtype=torch.bool)
    order_BTS = in_order(hidden(score_BTS, visible_TS))
    return kept_BTS.scatter(-1, order_BTS[..., : keep * block], True) & visible_TS


def for_all_queries(score_BTS, visible_TS, block, keep):
    """One choice of blocks for all queries of a text."""
    together_B1S = hidden(score_BTS, visible_TS).amax(1, keepdim=True)
    made = answer(hide=lambda score, visible: together_B1S.expand(score.shape))
    return made(score_BTS, visible_TS, block, keep)


def newest_alone(score_BTS, visible_TS, block, keep):
    """The newest entry stays, not its block."""
    kept_BTS = answer(pinned=nothing, count=lambda keep: keep - 1)(
        score_BTS, visible_TS, block, keep
    )
    places_S = torch.arange(score_BTS.shape[-1])
    return kept_BTS | (places_S == visible_TS.sum(-1, keepdim=True) - 1)


def short_block_dropped(score_BTS, visible_TS, block, keep):
    """Only whole blocks are looked at; the entries after them are lost."""
    whole = score_BTS.shape[-1] // block * block
    made = answer(pinned=lambda _, block, blocks: newest_visible(visible_TS, block, blocks))
    kept_BTS = made(score_BTS[..., :whole], visible_TS[:, :whole], block, keep)
    return F.pad(kept_BTS, (0, score_BTS.shape[-1] - whole))


def nothing(visible_TS, block: int, blocks: int):
    return torch.zeros(visible_TS.shape[0], blocks, dtype=torch.bool)


CANDIDATES = (
    Misconception(
        "not_pinned",
        "The block with the newest visible entry can get lost. It always stays.",
        answer(pinned=nothing),
    ),
    Misconception(
        "pinned_extra",
        "The newest block comes on top of the `keep` best. It is one of them.",
        answer(extra=True),
    ),
    Misconception(
        "last_block",
        "The last block of all is pinned. It is the block of the newest entry *this query* sees.",
        answer(pinned=lambda visible, block, blocks: torch.arange(blocks)[None] == blocks - 1),
    ),
    Misconception(
        "block_after",
        "Where the visible entries fill their blocks exactly, the block after the newest is "
        "pinned: the newest of n entries has the number n - 1.",
        answer(
            pinned=lambda visible, block, blocks: (
                torch.arange(blocks) == visible.sum(-1, keepdim=True) // block
            )
        ),
    ),
    Misconception(
        "first_block",
        "The first block is pinned instead of the newest one.",
        answer(pinned=lambda visible, block, blocks: torch.arange(blocks)[None] == 0),
    ),
    Misconception(
        "newest_alone",
        "The newest entry alone is kept, not its whole block.",
        newest_alone,
    ),
    Misconception(
        "sees_the_future",
        "A block is judged by entries that the query does not see. Hide them before the largest "
        "is taken.",
        answer(hide=lambda score, visible: score),
    ),
    Misconception(
        "hidden_kept",
        "Entries that the query does not see are among the candidates, because their block is.",
        answer(
            out=lambda kept, block, visible: kept.repeat_interleave(block, dim=-1)[
                ..., : visible.shape[-1]
            ]
        ),
    ),
    Misconception(
        "mean_of_block",
        "A block is judged by the mean of its entries. One good entry is enough: take the best.",
        answer(best=mean),
    ),
    Misconception(
        "first_of_block",
        "A block is judged by its first entry. Take the best of all.",
        answer(best=lambda score_BTJR: score_BTJR[..., 0]),
    ),
    Misconception(
        "worst_blocks",
        "The blocks with the lowest scores are kept.",
        answer(best=lambda x: (-largest(x)).masked_fill(largest(x) == -INF, -INF)),
    ),
    Misconception(
        "last_of_equals",
        "Of equally good blocks the last is taken. The one with the lowest index wins.",
        answer(order=last_of_equals),
    ),
    Misconception(
        "single_entries",
        "The best entries are kept one by one. Whole blocks were asked for.",
        single_entries,
    ),
    Misconception(
        "for_all_queries",
        "All queries of a text get the same blocks. Each has its own.",
        for_all_queries,
    ),
    Misconception(
        "short_block_dropped",
        "The last block is shorter than the others, and was left out. It is a block, too.",
        short_block_dropped,
    ),
    Misconception(
        "one_block_short",
        "One block too few is kept.",
        answer(count=lambda keep: keep - 1),
    ),
    Misconception(
        "blocks_out",
        "This says which blocks are kept. Which entries was asked: [B, T, S].",
        answer(out=lambda kept, block, visible: kept),
    ),
)
