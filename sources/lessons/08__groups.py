# %% [markdown]
# # 08 · Groups
#
# *75 minutes.* Until now every token left a row of its own in every layer. V3.2 reads
# few of them, but it *keeps* them all. V4 keeps less: several tokens are pooled to
# **one** entry. An entry lies in the cache just as a row does, only it stands for a
# group. From here on *row* is a token's, *entry* is a group's. You build the pooling,
# the rule of who may read, and the softmax over near and far; chapters 09 to 11 go on
# from these entries.
#
# A group has a difficulty that a token never had: it takes time to be complete.
#
# **Objectives.** After this chapter you can
#
# - say when a group may be read, and catch one that tells of tokens to come,
# - pool a group with a gate for every channel, with and without overlap,
# - read window, groups and a sink in one softmax, and say what the sink is for,
# - show why a row that is key *and* value makes the output turn, and turn it back,
# - say what a published number leaves out,
# - derive the number of this chapter:
#
# > **bytes per token = CSA layers × (entry + key) / 4 + HCA layers × entry / 128**
# >
# > V4-Flash: 21 × (584 + 68) / 4 + 20 × 584 / 128 = **3,514.25**

# %%
import inspect

import torch
from grading import predict
from tinymodels import checkpoints, data, device, leak, ledger
from tinymodels.widgets import plot

# %% [markdown]
# ## A text in groups
#
# Brackets hold groups of `m` tokens. The last one may still be open. Set `m` to 4, then
# to 8. How many entries are left to keep, and how many tokens wait?

# %%
m = 3

words = "the lamp is in the blue park and Ada has the old kite now".split()
groups = [words[i : i + m] for i in range(0, len(words), m)]
for group in groups:
    done = len(group) == m
    print("[" + " ".join(group) + ("]" if done else "   ... open"))
entries, waiting = divmod(len(words), m)
print(f"{len(words)} tokens: {entries} entries, {waiting} tokens wait")

# %% [markdown]
# ## Pooling, with a gate for every channel
#
# How do four rows become one? The mean would do, but then each token counts alike. V4
# lets every token say how much it wants to count. And it says so for each of its
# numbers (channels) by itself, with a second row, the **gate**:
#
# entry[d] = sum over the group of softmax(gate)[d] × value[d]
#
# The softmax runs over the tokens of the group, not over channels. Values and gates are
# made of the stream by one matrix each. (V4 also adds a learned number to each gate, by
# the token's place in its group: the *position bias*.) Here is the pooling itself:

# %%
print(inspect.getsource(leak.pool))

# %% [markdown]
# Below is one group of 4 tokens with 3 channels. Change a gate and run it again.

# %%
value = torch.tensor([[1.0, 10, 100], [2, 20, 200], [3, 30, 300], [4, 40, 400]])
gate = torch.tensor([[0.0, 0, 9], [0, 0, 0], [0, 9, 0], [0, 0, 0]])
print("weights:\n", gate.softmax(0).round(decimals=3))
print("entry:", leak.pool(value, gate, 4)[0].round(decimals=2).tolist())

# %% [markdown]
# Gates of 0 give the mean (the first channel). The second channel is nearly the third
# token's, the last one the first token's. So one entry can hold a bit of each.
#
# Do trained gates use this? The tiny V4 has learned recall: pairs of words stand in
# noise, and later it is asked for them. Its layer 3 pools 16 tokens. Here are the
# gates of one group, caught while the model reads, with the position bias added.

# %%
model = checkpoints.load("tiny_v4-recall-seed0").requires_grad_(False)
asked = data.batch("recall", 0, 0, data.Stage(8, 256), held_out=True)
compressor = model.layers[3].attention.compressor
seen_gates = []
handle = compressor.gate.register_forward_hook(lambda *x: seen_gates.append(x[2]))
model(asked.tokens)
handle.remove()

gate_MD = seen_gates[0][0, 32:48] + compressor.position_bias
fig, ax = plot.figure(6.4, 3.0)
image = ax.imshow(gate_MD.softmax(0), cmap="viridis", vmin=0)
fig.colorbar(image, label="weight")
ax.set(xlabel="channel", ylabel="token of the group")
ax.set_title("who counts in an entry (layer 3)")
plot.show(fig, alt="Two of the 16 tokens, 3 and 12, have most of the weight in most"
          " channels; a few channels spread it over all.")

# %%
from tinymodels import tokenizer

for place, share in enumerate(gate_MD.softmax(0).mean(1).tolist()):
    word = tokenizer.decode(asked.tokens[0, 32 + place : 33 + place].tolist())
    print(f"{place:2} {word.strip():6} {share:4.0%} {'#' * round(60 * share)}")

# %% [markdown]
# Far from a mean. This group holds two pairs, *Rosa Where* and *horse A*, among noise.
# The gates picked the second word of each: the answers that it will be asked for. Here
# it is for all groups of eight texts. With equal weights every token would have 1.00.

# %%
gates = seen_gates[0].unflatten(1, (16, 16)) + compressor.position_bias
weight_BGMD = gates.softmax(2)
weight_BT = weight_BGMD.mean(-1).flatten(1) * 16
sorts = {"keys of pairs": data.KEYS, "their values": data.VALUES, "noise": data.NOISE}
for name, sort in sorts.items():
    told_BT = torch.isin(asked.tokens, torch.tensor(sort))
    print(f"{name:13} {weight_BT[told_BT].mean():.2f} on average")

# %% [markdown]
# Nobody told the gates what a pair is.
#
# ## A group that talks of the future
#
# When may an entry be read? A model is trained on whole texts: all entries are computed
# at once, complete ones, and a mask says who sees what. Suppose the mask says: *a group
# that has started may be read*. It looks harmless. Each query still reads groups up to
# its own, none after it.
#
# Here is a small attention to groups alone, and three rules.

# %%
print(inspect.getsource(leak.outputs))
for rule in leak.RULES.values():
    print(inspect.getsource(rule))

# %% [markdown]
# **Before you run the next cell:** groups of 4. The query stands at position 14 (the
# 15th token). How many groups are complete?

# %% tags=["predict"]
guess = ...
predict("08-a", guess)

# %%
for t in (2, 3, 4, 7, 14):
    told = {name: rule(t, 4) for name, rule in leak.RULES.items()}
    print(f"t = {t:2}:", told)
predict("08-a", guess, answer=leak.complete(14, 4), unit="groups")

# %% [markdown]
# Which rule is safe? Don't argue, perturb: change token `s`, look which outputs move.
# An output at `t` may depend on tokens up to `t`. If it moves when a *later* token
# changes, it has read the future. For t = 12 and s = 13:

# %%
for name, rule in leak.RULES.items():
    moved_ST = leak.changes(tokens=16, m=4, rule=rule)
    print(f"{name:9} token 13 changed: output 12 moves by {moved_ST[13, 12]:.3f}")

# %% [markdown]
# That is the leak, and the test that catches it. The widget makes the test for every
# token.

# %%
from tinymodels.widgets.group_leak import GroupLeak

GroupLeak(m=4, rule="started", token=14)

# %% [markdown]
# Set the rule to *complete*: no output before the changed token moves, for any token.
# Set it to *before*: nothing leaks either, but the group that has just been completed
# is read one token late. The right rule is
#
# > **group j is visible at position t if j < floor((t + 1) / m)**
#
# What would the leak do to a real model? We put it into the layers of the tiny V4 that
# read all groups, by exchanging the mask of `complete_groups`. Then one token is
# changed, number 100, and we count which logits before it move.

# %%
from unittest.mock import patch

from tinymodels.attention import seen


def started_groups(step, entries, ratio):
    return torch.arange(entries) < (step.positions_T // ratio + 1)[:, None]


tokens = asked.tokens[:2].clone()
other = tokens.clone()
other[:, 100] = (other[:, 100] + 1) % 256
for mask in (seen.complete_groups, started_groups):
    with patch.object(seen, "complete_groups", mask):
        moved_BT = (model(tokens) - model(other)).abs().amax(-1) > 1e-4
    early = moved_BT[:, :100].any(0).nonzero().flatten().tolist()
    print(f"{mask.__name__:16} logits before token 100 that move: {early}")

# %% [markdown]
# Group 6 holds tokens 96 to 111, and under the wrong mask its first tokens know of
# token 100. A model that is *trained* so can learn to peek, and its loss then looks
# better than it is. When it writes, the later tokens do not exist yet, the group cannot
# be whole, and what was learned of peeking is of no use. So the second test is: token
# by token must give the same as all at once.

# %%
def token_by_token(model, tokens):
    memory = model.new_cache(len(tokens), tokens.shape[1], "float64")
    return torch.cat([model(token, memory) for token in tokens.split(1, 1)], dim=1)


short = asked.tokens[:1, :60]
model.double()
for mask in (seen.complete_groups, started_groups):
    with patch.object(seen, "complete_groups", mask):
        gap = (model(short) - token_by_token(model, short)).abs().max().item()
    print(f"{mask.__name__:16} all at once and one by one agree to 1e-9: {gap < 1e-9}")
model = model.float()

# %% [markdown]
# You write the rule in exercise 08.1 and plain pooling in 08.2.
#
# ## Who remembers the open group?
#
# A token whose group is not complete has no entry yet. It would be lost for a while,
# were there not the **window**: the newest `W` tokens are kept as rows of their own,
# one by one, in every layer. How wide must it be?

# %%
def lost(window, m, tokens=600):
    """The most tokens that a query can neither see in the window nor in a group."""
    counts = []
    for t in range(tokens):
        first_open = leak.complete(t, m) * m
        first_near = max(0, t - window + 1)
        counts.append(max(0, first_near - first_open))
    return max(counts)


for window in (32, 64, 127, 128):
    print(f"window {window:3}, groups of 128: {lost(window, 128):2} tokens lost")

# %% [markdown]
# V4's largest groups have 128 tokens, and its window has 128. Now that is no
# coincidence. (127 would just do.) Once a group is complete, its tokens may be seen
# twice for a while, in the window and in the entry. That does no harm.
#
# ## Overlap: eight rows, one entry for four
#
# A cut between groups can fall in the middle of a thing: `[... the lamp] [has Ada
# ...]`. Neither entry then holds all of it. V4's finer groups (**CSA**, compressed
# sparse attention, m = 4) overlap, so that each entry pools *eight* tokens and there is
# still one entry for every four.
#
# Every token has two values and two gates: one for the group it is in, one for the
# *next* group. Entry j pools, in one softmax over 8 rows,
#
# - the first halves of the 4 tokens before it (group j − 1),
# - the second halves of its own 4 (group j).

# %%
from tinymodels.attention.csa import overlapping

print(inspect.getsource(overlapping))

# %% [markdown]
# **Before you run the next cell:** groups of 4, overlapping. Which is the first token
# that entry 5 pools?

# %% tags=["predict"]
guess = ...
predict("08-b", guess)

# %%
def csa_entries(value_SC, gate_SC, m=4, missing=-torch.inf):
    """All complete groups; `missing` is the gate where nothing lies before them."""
    count = len(value_SC) // m
    value_GMD = overlapping(value_SC[None], count, m, False, 0.0)[0]
    gate_GMD = overlapping(gate_SC[None], count, m, False, missing)[0]
    return (gate_GMD.softmax(1) * value_GMD).sum(1)


# %% [markdown]
# Again we perturb: which entries move when one token's values change?

# %%
draw = torch.Generator().manual_seed(2)
value_SC, gate_SC, other_SC = torch.randn(3, 28, 12, generator=draw).double()
was_GD, reach_SG = csa_entries(value_SC, gate_SC), torch.zeros(28, 7)
for s in range(28):
    changed_SC = torch.where(torch.arange(28)[:, None] == s, other_SC, value_SC)
    reach_SG[s] = (csa_entries(changed_SC, gate_SC) - was_GD).norm(dim=1) > 0

# %%
fig, ax = plot.figure(6.4, 2.2)
ax.imshow(reach_SG.T, cmap="Blues", aspect="auto")
ax.set(xlabel="token that was changed", ylabel="entry", yticks=range(7))
ax.set_title("entries that move")
plot.show(fig, alt="Each token moves two entries, its own group's and the next one's."
          " Entry 0 pools only tokens 0 to 3.")
pooled = reach_SG[:, 5].nonzero().flatten().tolist()
print("entry 5 pools tokens", pooled)
predict("08-b", guess, answer=pooled[0])

# %% [markdown]
# Eight tokens in every entry but the first. Yet no more bytes: 7 entries for 28 tokens.
#
# **The first group** has nothing before it. Half of its eight rows are missing: their
# value is 0 *and their gate −∞*, so that they weigh nothing and the four real rows
# share all the weight. With a gate of 0 they would weigh something, of nothing:

# %%
right = csa_entries(value_SC, gate_SC)
wrong = csa_entries(value_SC, gate_SC, missing=0.0)
print(f"entry 0 has length {right[0].norm():.3f};"
      f" with a gate of 0 {wrong[0].norm():.3f}")
print("all other entries are the same:", torch.equal(right[1:], wrong[1:]))

# %% [markdown]
# You write this compressor in exercise 08.3. An entry of CSA is *visible* under the
# same rule as before: when its own last token is there.
#
# ## Where does a group stand?
#
# RoPE needs a position. A token has one; a group has m of them. V4 takes its **first**:
# entry j stands at position j × m. It could as well have taken the last. What counts is
# that the distance from query to entry is the same wherever in a text both lie:

# %%
from tinymodels.attention.rope import rotate
from tinymodels.config import Rope

query_D, entry_D = torch.randn(2, 8, generator=draw).double()


def score(t, j, m=4):
    turned = [rotate(x[None, None], Rope(8), torch.tensor([at]))[0, 0]
              for x, at in ((query_D, t), (entry_D, j * m))]
    return (turned[0] @ turned[1]).item()


for t, j in ((10, 1), (110, 26), (1010, 251)):
    print(f"query at {t:4}, entry {j:3} at {4 * j:4}: distance {t - 4 * j},"
          f" score {score(t, j):.6f}")

# %% [markdown]
# The order is: pool, then the norm, then RoPE. Is the order free? We pool the same four
# tokens at position 0 and at 700, both ways, and turn the entry back by its position:
# what is left should be the same.

# %%
def pooled_at(start, turn_first):
    at = start + torch.arange(4)
    rows_MD, weight_MD = value_SC[:4, :8], gate_SC[:4, :8].softmax(0)
    if turn_first:
        rows_MD = rotate(rows_MD[None], Rope(8), at)[0]
    entry_11D = (weight_MD * rows_MD).sum(0)[None, None]
    if not turn_first:
        entry_11D = rotate(entry_11D, Rope(8), at[:1])
    return rotate(entry_11D, Rope(8), at[:1], back=True)


for turn_first in (False, True):
    moved = (pooled_at(0, turn_first) - pooled_at(700, turn_first)).abs().max()
    print(f"turned before pooling: {turn_first!s:5}  the entry moves by {moved:.2f}")

# %% [markdown]
# RoPE mixes two numbers at a time, and after that each would be weighed by a gate of
# its own. What comes out depends on where in the text the group lies. Pooled first
# and turned then, it does not.
#
# ## Two kinds of far memory
#
# A V4 layer is one of three. All have a window.
#
# - **window only**: the first two of V4-Flash, nothing far.
# - **CSA**: groups of 4, overlapping; an indexer chooses few of them (chapter 07), 512
#   in V4-Flash. The indexer's keys are pooled by a small compressor of their own.
# - **HCA**, heavily compressed attention: groups of 128, plain, no overlap, no indexer.
#   They are so few that each query reads *all* of them.

# %%
from tinymodels.published import get

flash = get("deepseek-v4-flash").config
ratios = [layer.attention.ratio for layer in flash.layers]
print(*ratios[:9], "...", *ratios[-3:])
kinds = {r: ratios.count(r) for r in (0, 4, 128)}
print("window only, CSA, HCA:", kinds)
for n in (4_096, 131_072, 1_048_576):
    chosen = min(n // 4, flash.layers[2].attention.indexer.top_k)
    print(f"{n:9,} tokens: CSA reads 128 + {chosen} of {n // 4:7,} entries,"
          f" HCA 128 + {n // 128:5,}")

# %% [markdown]
# HCA's view is blurred and complete, CSA's sharp and selective, the window's exact and
# short. At a million tokens an HCA layer reads 8,192 entries, and nobody had to
# choose.
#
# Here is what one query of the *tiny* V4 may see: a window of 16, groups of 4 (all are
# drawn; its indexer chooses 8 of them), or groups of 16.

# %%
def coverage(t, window, m, tokens=100):
    """0: not seen, about 1: in a complete group (every second darker), 2: window."""
    place, far = torch.arange(tokens), torch.zeros(tokens)
    if m:
        far = (place // m < leak.complete(t, m)) * (0.6 + 0.5 * (place // m % 2))
    near = (place <= t) & (place > t - window)
    return torch.where(near, 2.0, far)


fig, ax = plot.figure(6.4, 1.9)
strips = torch.stack([coverage(87, 16, m) for m in (0, 4, 16)])
ax.imshow(strips, cmap="Blues", aspect="auto", vmin=0, vmax=2.4)
ax.set_yticks(range(3), ("window only", "CSA, groups of 4", "HCA, groups of 16"))
ax.set(xlabel="token")
ax.set_title("query at 87: dark = its window, stripes = groups it may read", fontsize=9)
plot.show(fig, alt="All see tokens 72 to 87 in the window. CSA and HCA reach back to"
          " token 0 in groups.")

# %% [markdown]
# ## One softmax for near and far, and a sink
#
# A query scores the rows of its window and the entries it reads, and *one* softmax
# weighs them all. So near and far compete. But the weights of a softmax always add up
# to 1. That is bad when there is nothing worth reading: then something irrelevant is
# read at full weight.
#
# V4 adds one learned number for each head, the **sink**. It takes part in the softmax
# like a score, and no value belongs to it. Weight that goes there goes nowhere.

# %%
print(inspect.getsource(seen.softmax_with_sink))

# %%
rows = torch.randn(1, 1, 1, 6, generator=draw)
for height in (8.0, 0.0, -8.0):
    scores = height + rows
    (weight,) = seen.softmax_with_sink([scores], torch.zeros(1))
    print(f"scores around {height:4}: rows get {weight.sum():.4f}, sink the rest")
(nothing,) = seen.softmax_with_sink([torch.full((1, 1, 1, 6), -torch.inf)],
                                    torch.zeros(1))
print("nothing visible:", nothing.flatten().tolist())

# %% [markdown]
# With no visible row at all, everything goes to the sink: the output is exactly 0. A
# softmax without a sink would divide 0 by 0.
#
# Does a trained model use it? In recall there are tokens where something must be found
# (a key was named after a question mark), and others, mostly noise, where nothing is
# asked.
#
# **Before you run the next cell:** where does the sink of the last layer get more
# weight, `"asked"` or `"elsewhere"`?

# %% tags=["predict"]
guess = ...
predict("08-c", guess)

# %%
sinks, plain = [], seen.softmax_with_sink


def noting(scores, sink):
    weights = plain(scores, sink)
    sinks.append(1 - sum(weight.sum(-1) for weight in weights).mean(-1))
    return weights


with patch.object(seen, "softmax_with_sink", noting):
    said = model(asked.tokens).argmax(-1)
here_BT = asked.targets != data.IGNORED
for layer, sink_BT in enumerate(sinks):
    print(f"layer {layer}: the sink gets {sink_BT[here_BT].mean():6.2%} where asked,"
          f" {sink_BT[~here_BT].mean():6.2%} elsewhere")
last = sinks[-1]
more = "asked" if last[here_BT].mean() > last[~here_BT].mean() else "elsewhere"
predict("08-c", guess, answer=more)

# %% [markdown]
# In the last layer the sink gets several times as much where nothing is asked. It is a
# small share all the same, and in layer 2 there is no clear difference. Here are the
# last two layers of a model trained from another seed.

# %%
sinks = []
with torch.no_grad(), patch.object(seen, "softmax_with_sink", noting):
    checkpoints.load("tiny_v4-recall-seed1")(asked.tokens)
for layer in (5, 6):
    sink_BT = sinks[layer]
    print(f"layer {layer}: the sink gets {sink_BT[here_BT].mean():6.2%} where asked,"
          f" {sink_BT[~here_BT].mean():6.2%} elsewhere")

# %% [markdown]
# It agrees about the last layer (there about twice as much), and not about the one
# before it. Does the first model need its sinks?

# %%
from copy import deepcopy

without = deepcopy(model)
for layer in without.layers:
    layer.attention.sink.fill_(-1e9)  # as if there were none
for name, one in {"with sinks": model, "without": without}.items():
    right = (one(asked.tokens).argmax(-1) == asked.targets)[here_BT].float().mean()
    print(f"{name:10} {right:.1%} of the answers right")

# %% [markdown]
# Not on this task, at this size. What it does can be seen; that it is needed can not.
# You write the softmax in exercise 08.4.
#
# ## Key and value in one, and the turn back
#
# MLA's latent became a key and a value by two matrices. V4 leaves them out: **the row
# is the key, and the same row is the value** (K = V), 512 numbers for all heads. A key
# and a value kept apart would be twice as many. It has a price that is easy to miss. In
# MLA a small key of its own was turned by RoPE, and no value. Here 64 of the row's own
# numbers are turned, for its score. So the *value* is turned as well, by its own
# position, and the output is a sum of turned values. It depends on where in the text we
# are:

# %%
from tinymodels.attention.sliding import Sliding
from tinymodels.presets import tiny_v4
from tinymodels.step import Step

layer = Sliding(64, tiny_v4().layers[0].attention, eps=1e-6)
layer = layer.double().requires_grad_(False)
for p in layer.parameters():
    if p.dim() > 1:
        p.normal_(0, p.shape[-1] ** -0.5, generator=draw)
x_BTX = torch.randn(1, 30, 64, generator=draw).double()


def mixed(start, back):
    """What the heads take from a window; back: turned back by the query's angle."""
    step = Step(torch.zeros(1, 30, dtype=torch.long), start)
    query, row = layer.project(x_BTX, layer.query_latent(x_BTX), step)
    out = seen.look(query, layer.sink, layer.near(row, step))
    rope, tail = layer.config.rope, out[..., -8:]
    turned = rotate(tail, rope, step.positions_T, back=True) if back else tail
    return torch.cat([out[..., :-8], turned], dim=-1)


# %%
for back in (False, True):
    off = (mixed(0, back) - mixed(700, back)).abs().amax((0, 1, 2))
    print(f"turned back: {back!s:5}  the first 24 numbers moved less than 1e-9:"
          f" {(off[:24].max() < 1e-9).item()}; the last 8 by {off[24:].max():.2f}")

# %% [markdown]
# The same text, moved by 700 positions, and the last 8 numbers are quite different. They
# are those that RoPE turns. Turned back by the angle of the *query's* position t, a
# value from position s is turned by s − t in all: distances again, and nothing else.
# (One turn for the sum is enough, since all its parts are turned back by the same
# angle.)
#
# Without it the output matrix would be given a different direction at every position
# for the same thing. That is the `back=True` in the course's own layer:

# %%
print(inspect.getsource(Sliding.attend))

# %% [markdown]
# You write it in exercise 08.5.
#
# ## The number
#
# An entry of V4 in the deployed layout: 448 numbers in 8 bits each (FP8, chapter 11
# opens it), 64 numbers that RoPE turns in 16 bits, 7 scales and 1 byte of padding. An
# index key: 128 numbers in 4 bits and 4 scales.

# %%
entry, key = 448 + 64 * 2 + 7 + 1, 128 // 2 + 4
csa, hca = (entry + key) / 4, entry / 128
print(f"entry {entry}, key {key}; a token costs {csa:g} in CSA, {hca:g} in HCA")
total = kinds[4] * csa + kinds[128] * hca
print(f"{kinds[4]} x {csa:g} + {kinds[128]} x {hca:g} = {total:,} bytes a token;"
      f" ledger {ledger.rate('deepseek-v4-flash'):,}")
said = get("deepseek-v4-flash").rate
print(f"published: {said.value:,} [{said.status}], {said.source}")

# %% [markdown]
# The keys of the indexer cost more than all HCA layers together: 21 × 17 = 357 against
# 91.25.
#
# It is a *rate*, an average over many tokens. No single token adds 3,514.25 bytes.
#
# **Before you run the next cell:** after 3 tokens, how many bytes do the groups of
# V4-Flash hold?

# %% tags=["predict"]
guess = ...
predict("08-d", guess)

# %%
def held(n):
    return ledger.exact("deepseek-v4-flash", n)["global"]


for n in (3, 4, 127, 128):
    by_hand = 21 * (n // 4) * (entry + key) + 20 * (n // 128) * entry
    print(f"{n:3} tokens: {by_hand:7,} bytes, ledger {held(n):7,};"
          f" rate x tokens {total * n:9,.0f}")
predict("08-d", guess, answer=held(3), unit="bytes")

# %%
steps = list(range(0, 141))
fig, ax = plot.figure(6.4, 2.8)
ax.step(steps, [held(n) for n in steps], where="post", label="held")
ax.plot(steps, [total * n for n in steps], linewidth=1, label="3,514.25 x tokens")
ax.set(xlabel="tokens", ylabel="bytes", title="groups of V4-Flash")
ax.legend()
plot.show(fig, alt="A staircase with a step at every fourth token and a larger one at"
          " 128, always at or below the straight line.")

# %% [markdown]
# A staircase: small steps of 13,692 bytes at each fourth token, and every 128 tokens
# one of 25,372. At multiples of 128 it touches the line. Is this also what memory
# takes? Two caches, allocated at real size, measured:

# %%
from tinymodels.cache import allocate

for name in ("deepseek-v4-flash", "deepseek-v4-pro"):
    config = get(name).config
    measured = allocate(config, tokens=256).bytes()
    print(f"{name}: 256 tokens {measured['global']:,} bytes,"
          f" {measured['global'] / 256:,} a token")

# %% [markdown]
# V4-Pro has no layers of window alone: 30 CSA and 31 HCA layers (its formula below).
# We know of no place where its rate is printed; it is arithmetic (status D). The V4
# report compares both with V3.2:

# %%
print(f"V4-Pro: 30 x {csa:g} + 31 x {hca:g} = {30 * csa + 31 * hca:,}")
v32 = ledger.rate("deepseek-v3.2")
for name in ("deepseek-v4-flash", "deepseek-v4-pro"):
    printed = get(name).more["share of V3.2"]
    print(f"{name}: {ledger.rate(name):,} of {v32:,} is"
          f" {100 * ledger.rate(name) / v32:.1f} %; printed {printed.value} %"
          f" [{printed.status}]")

# %% [markdown]
# ## What the number leaves out
#
# The rate counts what grows. Two things do not grow, and are not small:
#
# - the **windows**: 128 rows in each of 43 layers, kept in a ring,
# - the **open groups**: values and gates of tokens whose group is not complete, in 32
#   bits. CSA keeps two groups of 4, twice as wide, for the entries and for the keys;
#   HCA one group of 128.

# %%
rings = entry * 128 * 43
csa_open = 2 * (2 * 4) * (2 * 512 + 2 * 128)  # value and gate, 8 slots, both halves
hca_open = 2 * 128 * 512
opened = (21 * csa_open + 20 * hca_open) * 4
measured = allocate(flash, tokens=256).bytes()
print(f"windows {rings:,}, measured {measured['window']:,}")
print(f"open groups {opened:,}, measured {measured['open_state']:,}")
for name in ("deepseek-v4-flash", "deepseek-v4-pro"):
    e = ledger.exact(name, 10_000)
    print(f"{name}: windows {e['window']:,}, open groups {e['open_state']:,} a text")

# %% [markdown]
# So 15.4 million bytes for every text, once. Three mistakes about this cache are seen
# in public. Here they are as arithmetic.

# %%
print("1. a pool with a fixed part, divided by its tokens:")
for n in (1_024, 16_384, 1_048_576):
    e = ledger.exact("deepseek-v4-flash", n)["total"]
    print(f"   {n:9,} tokens: {e:13,} / tokens = {e / n:8,.1f} 'bytes a token'")
fp16 = 21 * (512 + 128) * 2 / 4 + 20 * 512 * 2 / 128
print(f"2. all numbers at 16 bits: {fp16:,}, {fp16 / total:.2f} times too much")
v41 = ledger.rate("deepseek-v4.1-flash")
print(f"3. 'V4-Flash is 4 x 890': {4 * v41:,}, and it is {total:,}:"
      f" {total / v41:.2f} x {v41}")

# %% [markdown]
# 1. That is no rate. It falls with the length of the text, and says as much about the
#    length as about the model. Name both parts: 3,514.25 a token, and 15.4 million a
#    text.
# 2. Most of a row is in 8 bits, the keys in 4. A count of numbers is no count of bytes.
# 3. Near, by accident. V4-Flash has 21 × 163 + 20 × 4.5625, and no 890 in it.
#
# You write all of it for any length in exercise 08.6.
#
# ## The kernel: pooling
#
# `kernels/group_pool.py` pools whole groups, with overlap or without. A program takes a
# few groups and reads value and gate once. There is little to compute: the time is that
# of reading.

# %%
from kernels import backend, bounds, group_pool, sparse_attention

sizes = dict(tokens=16_384, width=512, bias=True)
for name, more in {"CSA": dict(ratio=4, overlap=True), "HCA": dict(ratio=128)}.items():
    t = group_pool.traffic(**sizes, **more)
    print(f"{name}: {plot.bytes_short(t['bytes_read'])} read,"
          f" {plot.bytes_short(t['bytes_written'])} written,"
          f" {t['flops'] / t['bytes_read']:.2f} FLOPs a byte")

# %%
here = device.pick()
value, gate = (torch.randn(2, 38, 20, generator=draw).to(here) for _ in range(2))
impl = "triton" if backend.current().runs_triton else "torch"
with bounds.counting() as counts:
    got = group_pool(value, gate, 4, overlap=True, impl=impl)
twin = group_pool(value, gate, 4, overlap=True, impl="torch")
print("same as in plain torch:", torch.allclose(got, twin, atol=1e-5))
said = group_pool.traffic(batch=2, tokens=38, ratio=4, width=10, overlap=True)
print(f"formula: {said['bytes_read']:,} bytes read, {said['bytes_written']:,} written")
if backend.current().name == "interpret":
    print(f"counted: {counts.bytes_read:,} bytes read,"
          f" {counts.bytes_written:,} written")

# %% [markdown]
# An entry is read by `kernels/sparse_attention.py`: a list of entries and a window, one
# softmax, a sink. What one new token reads in one layer of V4-Flash at a million tokens
# (this kernel's rows have 16 bits a number; chapter 11 reads packed ones):

# %%
sizes = dict(tokens=1, heads=64, head_dim=512, rows=128, sink=True)
for name, n in {"CSA": 512, "HCA": 8_192, "a row for every token": 1_048_576}.items():
    t = sparse_attention.traffic(chosen=n, **sizes)
    print(f"{name:21} {plot.bytes_short(t['bytes_read']):>8} read,"
          f" {t['flops'] / 1e6:9,.0f} MFLOP")

# %% [markdown]
# ## What pooling loses
#
# Four tokens in one entry: something must go. What? Models of three layers, alike but
# for m, read memory games (*lamp Ada, blue park, lamp ...?*). All have a window of 8
# tokens. They are judged only by words whose pair has left the window. Three seeds, 800
# steps of training. The loss is that of the last 100 steps, over near words as well.

# %%
from tinymodels import group_sizes

runs = group_sizes.results()["runs"]
fig, ax = plot.figure(6.4, 2.9)
names = {size: f"m = {size}" if size else "no groups" for size in group_sizes.SIZES}
for size, colour in zip(group_sizes.SIZES, (plot.BLACK, *plot.PALETTE)):
    curves = [run["right"] for run in runs if run["size"] == size]
    for n, curve in enumerate(curves):
        at = [group_sizes.EVERY * (i + 1) for i in range(len(curve))]
        ax.plot(at, curve, color=colour, linewidth=1.3,
                label=None if n else names[size])
    ends = " ".join(f"{curve[-1]:4.0%}" for curve in curves)
    own = next(run for run in runs if run["size"] == size)
    losses = " ".join(f"{run['loss'][-1]:.2f}" for run in runs if run["size"] == size)
    print(f"{names[size]:9} {own['bytes_per_token']:4} bytes a token;"
          f" found {ends}; loss {losses}")
ax.set(xlabel="steps of training", ylim=(0, 1.03), title="far words found, 3 seeds")
ax.legend()
plot.show(fig, alt="Without groups nothing is found. Groups of 2 learn fastest; 1 and 4"
          " follow, 8 comes last.")

# %% [markdown]
# Without groups, none: what has left the window is gone. The loss alone would not have
# told: with seed 0 it is lower without groups than with groups of 1, thanks to near
# words. With groups of 8 about one word in eight or nine is found, in every seed. So
# wide groups do lose something here.
#
# But groups of 1, which lose nothing at all, find about as much as groups of 4 (0.02
# apart or less) and much less than groups of 2. After these 800 steps nobody has
# learned the task to the end. So the picture shows how *fast* it is learned. Two things
# may pull: an entry that holds more is less exact, and among fewer entries the right
# one may be sooner found. And this game may be kind to groups of 2: it is made of
# pairs, one after the other, so that it has a rhythm of two words. A longer training,
# or another game, can change the order. It will not change the first line.
#
# ## What it costs
#
# The whole tiny models of this course, recall and bytes. (The cell reads the
# checkpoints that are there.)

# %% tags=["nbval-ignore-output"]
for preset in ("tiny_v1", "tiny_v3", "tiny_v3_2", "tiny_v4"):
    rate = ledger.rate(checkpoints.preset(preset))
    found = [checkpoints.describe(name)["measured"]["recall"]["pairs"]["48"]
             for name in checkpoints.available() if name.startswith(f"{preset}-recall")]
    print(f"{preset:9} {rate:7} bytes a token; 48 pairs, by seed:",
          [f"{share:.1%}" for share in found])
once = ledger.exact(tiny_v4(), 100)
print(f"tiny_v4 on top, once a text: {once['window']:,} bytes of windows,"
      f" {once['open_state']:,} of open groups")

# %% [markdown]
# The tiny V4 keeps 48.75 bytes a token where the tiny V1 keeps 512. In its texts of 256
# tokens, the constant part is larger than all its groups. Small models show a mechanism
# and its arithmetic; whether it pays is a question of length.
#
# | | V3.2 | V4-Flash |
# |---|---|---|
# | bytes kept of a token, per layer | row of 656 and key of 132 | 652 / 4, or 584 / 128 |
# | bytes a token | 48,068 | 3,514.25 |
# | constant, per text | 0 | 15.4 million |
# | key and value | made of a latent | the row itself, turned back later |
# | read by a query | 2,048 rows | window, and 512 entries (CSA) or all (HCA) |
# | when is it there | at once | when its group is complete |
#
# Whole layers still keep entries of their own. Must they? That is chapter 09's and 10's
# question.
#
# ## Exercises
#
# [Exercises 08](../exercises/08__groups.ipynb): visible groups, plain pooling, the
# overlapping compressor, a softmax with a sink, the turn back, and V4-Flash at n
# tokens. About 110 minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("08")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="08")

# %% [markdown]
# ## Sources
#
# - Groups, CSA, HCA, the sink, K = V and the turn back: DeepSeek's report on V4, and
#   the released configuration and inference code. The sizes of entry and key are those
#   of the deployed layout.
# - 7 % and 10 % of V3.2: V4 report (status C). 3,514: published chart (R), and
#   arithmetic on the shapes. 5,031.4375, the windows and the open groups are arithmetic
#   (D).
# - A sink as one more logit: Miller 2023, "Attention is off by one"; first tokens as
#   sinks: Xiao et al. 2023, [arXiv 2309.17453](https://arxiv.org/abs/2309.17453).
# - RoPE: Su et al. 2021, [arXiv 2104.09864](https://arxiv.org/abs/2104.09864).
