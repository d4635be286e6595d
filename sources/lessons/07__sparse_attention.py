# %% [markdown]
# # 07 · Sparse attention
#
# *75 minutes.* With a latent a token leaves little behind
# ([chapter 06](06__mla.ipynb)). But each new word still reads all of it: at 100,000
# tokens, 100,000 rows in each of 61 layers. DeepSeek-V3.2 reads 2,048 of them. Which
# 2,048? A cheap scorer says so. You build it here, train it to follow a real model's
# attention, and find out what it saves. It does not save what most people think.
#
# **Objectives.** After this chapter you can
#
# - measure how concentrated a trained model's attention is, by layer and context,
# - write the lightning indexer, train it to follow attention, and measure its hits,
# - choose the best k: with equal scores, with fewer than k to choose from, and without
#   a look into the future,
# - find the k best without sorting them,
# - say what a choice saves (reads), what it does not (bytes), and where it breaks,
# - derive the number of this chapter:
#
# > **V3.2: 61 layers × (656 bytes of row + 132 bytes of index key) = 48,068**

# %%
import inspect
from dataclasses import replace

import torch
from grading import predict
from tinymodels import checkpoints, data, device, few_entries, ledger, low_rank
from tinymodels.widgets import plot

# %% [markdown]
# ## A thousand rows, and a few that count
#
# A query's scores for 1,000 rows, drawn at random. Softmax makes weights of them.
# How much of the weight do the best 20 have together?

# %%
sharp = 1.0

draw = torch.Generator().manual_seed(1)
scores = sharp * torch.randn(1000, generator=draw)
weights = scores.softmax(-1)
print(f"the best 20 of 1,000 carry {weights.topk(20).values.sum():.0%}")

# %% [markdown]
# Set `sharp` to 4 and run the cell again, then to 0.1. With sharp scores 980 rows
# could be left out, and hardly anybody would notice. With flat ones they could not. So
# first we ask a trained model: how sharp is it?
#
# ## How concentrated attention is
#
# The tiny V1 has read stories. We let it read held-out ones and look at the last 16
# queries of each. The heads of a layer are taken together, because they will have to
# share one choice. (In code a row that can be read is an *entry*, the wider word: from
# the next chapter on one may stand for several tokens.)
#
# **Before you run the next cell:** in layer 1, how many percent of all attention lie on
# the best 16 of 512 rows?

# %% tags=["predict"]
guess = ...
predict("07-a", guess)

# %%
model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)
long = data.batch("text", 0, 0, data.Stage(4, 512), held_out=True).tokens
sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
shares = few_entries.concentration(model, long, sizes)

fig, ax = plot.figure(6.4, 2.8)
for i, line in enumerate(shares):
    ax.plot(sizes, line, "o-", label=f"layer {i}")
ax.axvline(16, color="black", linewidth=1)
ax.set(xscale="log", xlabel="best k of 512 rows", ylim=(0, 1.03),
       title="share of all attention")
ax.set_xticks(sizes, sizes)
ax.legend()
best_16 = [f"{line[4]:.0%}" for line in shares]
plot.show(fig, alt="The best 16 of 512 rows carry " + ", ".join(best_16) + " of the"
          " attention in layers 0 to 3.")
print("the best 16 of 512, by layer:", ", ".join(best_16))
predict("07-a", guess, answer=round(100 * shares[1][4]), unit="%")

# %% [markdown]
# One layer looks at a handful of rows, another at nearly all of them a little. Is
# that so in other models of the kind, and what does a longer context do?

# %%
for seed in (0, 1, 2):
    other = checkpoints.load(f"tiny_v1-text-seed{seed}")
    for context in (64, 256, 512):
        found = few_entries.concentration(other, long[:, :context], (16,))
        line = "  ".join(f"{layer[0]:4.0%}" for layer in found)
        print(f"seed {seed}, {context:3} rows: best 16 carry {line}  (layer 0 to 3)")

# %% [markdown]
# In all three models, layer 1 is sharp whatever the context, layer 0 is flat, and in
# flat layers the share of the best 16 shrinks as the context grows.
#
# Flat does not mean that all of it is needed. Whoever takes a little of everything
# takes mostly an average. The test is the loss.
#
# ## If we knew the best
#
# So let the model read k rows a query and no others, in every layer. Three rules:
#
# - **best**: those with most attention. To know them we compute all of it first. That
#   saves nothing; it shows what could be had.
# - **newest**: the last k.
# - **random**: any k, drawn anew for each query.
#
# **Before you run the next cell:** 32 of up to 256 rows: which rule does worst,
# `"best"`, `"newest"` or `"random"`? (And how near does the best one come?)

# %% tags=["predict"]
guess = ...
predict("07-b", guess)

# %%
from tinymodels.parts import Parts

held = data.batch("text", 0, 0, data.Stage(4, 256), held_out=True)
reads = (8, 16, 32, 64, 128)


def loss(seed, rule="best", k=256):
    attention = few_entries.only(k, rule)
    few = checkpoints.load(f"tiny_v1-text-seed{seed}", Parts(attention=attention))
    return low_rank.quality(few.requires_grad_(False), held).loss


whole = [loss(seed) for seed in (0, 1, 2)]
more = {
    rule: [[loss(seed, rule, k) - whole[seed] for k in reads] for seed in (0, 1, 2)]
    for rule in few_entries.RULES
}

# %%
fig, ax = plot.figure(6.4, 2.8)
for rule, marker, colour in zip(more, "os^", plot.PALETTE):
    for n, line in enumerate(more[rule]):
        ax.plot(reads, [max(x, 1e-3) for x in line], marker + "-", color=colour,
                label=None if n else rule, markersize=4, linewidth=1.4)
ax.set(xscale="log", yscale="log", xlabel="rows read a query",
       title="loss above that of reading all 256 rows, 3 seeds")
ax.set_xticks(reads, reads)
ax.set_yticks([0.001, 0.01, 0.1, 1], ["0.001\nor less", "0.01", "0.1", "1"])
ax.legend(loc="lower left")
plot.show(fig, alt="With the best rows the loss is within a few hundredths of the whole"
          " model's from 32 rows on; with the newest it falls slowly; with random ones"
          " it is far higher.")
print("loss with all rows:", ", ".join(f"{x:.2f}" for x in whole))
for rule, lines in more.items():
    for k, found in zip(reads[:3], zip(*lines)):
        print(f"{rule:6} {k:2} rows: +{min(found):.2f} to +{max(found):.2f}")
predict("07-b", guess, answer=max(more, key=lambda rule: more[rule][0][2]))

# %% [markdown]
# The best 32 of 256 are nearly as good as all; below 32 the loss begins to rise. The
# newest 32 are much worse, and random ones are hopeless. So an eighth of the reads
# would do, *if the right eighth is known*.
#
# But to know it, we read every key. What is needed is a second, much cheaper look.
#
# ## The lightning indexer
#
# V3.2 puts a small scorer in front of each layer's attention:
#
# > score(t, s) = sum over heads i of **weight**(t, i) × ReLU(**q**(t, i) · **k**(s))
#
# - One **index key** a row, 128 numbers, shared by all 64 heads of the indexer. It
#   is kept in the cache beside the row.
# - Each head has a query, and a weight that depends on the token.
# - No softmax and no values. The score has to put rows in order, no more. ReLU is
#   what keeps heads apart: one that disagrees says nothing, instead of taking away what
#   another has found.
#
# The course's own scores, in three lines. (M is queries and heads in one axis, T × I:
# so one product of two matrices does it.)

# %%
from tinymodels.attention.indexer import divergence, index_scores, top_k

print(inspect.getsource(index_scores))

# %% [markdown]
# Queries, weights and keys are made with little work, too:

# %%
from tinymodels.attention.dsa import Indexer

print(inspect.getsource(Indexer.project))

# %% [markdown]
# - The queries are made of MLA's query latent ([chapter 06](06__mla.ipynb)), which is
#   there already; the weights and the key of what goes into the layer.
# - The key passes a LayerNorm: an RMS norm that takes the mean away first.
# - `_turn` is RoPE on the first 64 of the 128 numbers of both, and then a **Hadamard
#   turn**. It spreads each number evenly over all of them. No score changes, but no
#   single number is much larger than the others. That is good for keeping them in few
#   bits, as V3.2 does:

# %%
from tinymodels.attention.indexer import hadamard

q, k = torch.randn(2, 128, generator=torch.Generator().manual_seed(6)).double()
k[5] = 30.0
print(f"score {q @ k:.6f}, after the turn {hadamard(q) @ hadamard(k):.6f}")
print(f"the key's largest number {k.abs().max():.1f},"
      f" after the turn {hadamard(k).abs().max():.1f}")

# %% [markdown]
# How cheap is it? A query against one row, in V3.2's sizes. The attention is absorbed
# ([chapter 06](06__mla.ipynb)).

# %%
from tinymodels.published import get

v32 = get("deepseek-v3.2").config
a, index = v32.layers[0].attention, v32.layers[0].attention.indexer
attend = 2 * a.heads * (2 * a.kv_rank + a.rope_dim)
score = 2 * index.heads * index.dim
print(f"attention: 2 x {a.heads} heads x ({a.kv_rank} + {a.rope_dim} + {a.kv_rank})"
      f" = {attend:,} FLOPs")
print(f"indexer:   2 x {index.heads} heads x {index.dim} = {score:,} FLOPs,"
      f" {attend / score:.0f} times less")

# %% [markdown]
# ## Teaching it to follow
#
# A scorer with random weights finds nothing. Its teacher is the attention itself. The
# softmax of its scores should be the share that all heads together take from each row.
# How far it is from that is measured by the **KL divergence**: the sum over the rows of
# share × log(share / the scorer's share). It is 0 if both are the same. This is how
# V3.2 begins: the model is frozen and only the indexers learn (its report calls this
# the dense warm-up).
#
# Here: layer 2 of the tiny V1, frozen, and a scorer of 4 heads with 16 numbers each. We
# do it with all three models. First, what the scorer sees, and what it is to follow:
# `watch` lets the model read a text and writes down what goes into layer 2 (a *hook* is
# a function that a module calls before it runs) and what its heads take.

# %%
from tinymodels.attention.mla import in_order
from tinymodels.attention.seen import chosen
from tinymodels.attention.weights import attention_weights
from tinymodels.config import Indexer as Shape
from tinymodels.presets import LATENT
from tinymodels.step import Step

LAYER, T, K = 2, 128, 16
step = Step(torch.zeros(1, T, dtype=torch.long))  # positions 0 to T - 1, for RoPE
visible = in_order(T, T)  # nobody looks ahead


def watch(model, number, held_out=False):
    """What goes into the layer, and what its heads take from each row."""
    tokens = data.batch("text", 0, number, data.Stage(4, T), held_out).tokens
    inputs = []
    note = model.layers[LAYER].attention.register_forward_pre_hook(
        lambda module, given: inputs.append(given[0])
    )
    share = attention_weights(model, tokens)[LAYER].mean(dim=1)
    note.remove()
    return inputs[0], share

# %% [markdown]
# How good is a choice? Of the true best 16, how many did it find (its **recall**)? And
# how much of the attention lies on what it chose? (The tiny V1 has no query latent, so
# the scorer makes its queries of x as well: that is why x stands there twice.)

# %%
def scores_of(scorer, x):
    query, weight, rows = scorer.project(x, x, step)
    return index_scores(query, weight, rows["index"])


@torch.no_grad()
def recall(scorer, x, share):
    """Found of the true best 16; attention on the choice, and on the true best."""
    both = scores_of(scorer, x), share
    mine, true = (chosen(top_k(marks, visible, K), T) for marks in both)
    late = slice(64, T)  # queries that have at least 64 rows to choose from
    right = (mine & true)[:, late].sum(-1) / K
    served = [(share * choice)[:, late].sum(-1).mean() for choice in (mine, true)]
    return right.mean().item(), *(each.item() for each in served)

# %%
def teach(seed):
    """60 steps of training; what recall says before, and after each 10."""
    model = checkpoints.load(f"tiny_v1-text-seed{seed}").requires_grad_(False)
    lessons, exam = [watch(model, n) for n in range(10)], watch(model, 0, held_out=True)
    torch.manual_seed(seed)
    small = Shape(heads=4, dim=16, top_k=K, rope_dim=8)
    scorer = Indexer(64, replace(LATENT, q_rank=None, indexer=small))
    rule = torch.optim.Adam(scorer.parameters(), lr=1e-2)
    course = [recall(scorer, *exam)]
    for n in range(60):
        x, share = lessons[n % len(lessons)]
        distance = divergence(scores_of(scorer, x), share, visible).mean()
        rule.zero_grad()
        distance.backward()
        rule.step()
        if n % 10 == 9:
            course.append(recall(scorer, *exam))
    return zip(*course)

# %% [markdown]
# **Before you run the next cell:** after 60 steps of training, how many percent of the
# true best 16 will it find, on texts it has not seen? (Guessing blindly would find
# about 16 of 64 to 128: a sixth.)

# %% tags=["predict"]
guess = ...
predict("07-c", guess)

# %% tags=["nbval-ignore-output"]
fig, ax = plot.figure(6.4, 2.8)
names = ("of the true best 16, found", "attention on the chosen 16",
         "attention on the true best 16")
for seed in (0, 1, 2):
    right, served, most = curves = [*teach(seed)]
    styles = zip(("o-", "s-", "--"), plot.PALETTE)
    for line, name, (style, colour) in zip(curves, names, styles):
        ax.plot(range(0, 61, 10), line, style, color=colour, markersize=3,
                linewidth=1.2, label=None if seed else name)
    print(f"seed {seed}: found {right[0]:.0%} before, {right[-1]:.0%} after; attention"
          f" on its choice {served[-1]:.0%}, on the true best {most[0]:.0%}")
    answer = round(100 * right[-1]) if seed == 0 else answer
ax.set(xlabel="steps of training", ylim=(0, 1),
       title="scorers learn to follow layer 2 of three models")
ax.legend(loc="lower right")
plot.show(fig, alt="Hits and attention on the chosen rows rise steeply in the first 30"
          " steps, and come near to what the true best have, in all three models.")
predict("07-c", guess, answer=answer, unit="% (seed 0)")

# %% [markdown]
# It misses some of the true best, and still has nearly all of the attention that they
# have: what it misses are mostly rows at the edge, which count little. Four heads of
# 16 numbers are enough to *order* what four heads of attention will *mix*.
#
# V3.2 then goes on in a second stage. The model reads only what is chosen, and learns
# to live with it; the indexer goes on following. The tiny V3.2 of this course was
# trained with both at once from the first step (`Transformer.with_losses`). The model's
# loss cannot teach the indexer: a list of positions has no gradient. And the indexer's
# own loss is kept away from the model.
#
# ## Choosing: order hides, ties, and -1
#
# A choice must be the same for everyone, each time: whoever reads a prompt at once and
# whoever writes it word by word has to choose alike. Three corners.
#
# **What is hidden goes first.** A query may not see later tokens. Mask before choosing:

# %%
wish = torch.tensor([[[0.2, 0.9, 0.1, 0.8, 0.7, 0.6]]])
seen = torch.tensor([[True, True, True, False, False, False]])


def too_late(wish_T):
    """Chooses first, and masks what was chosen."""
    best = wish_T.topk(2).indices
    return torch.where(seen[0, best], best, -1).tolist()


print("masked first:", top_k(wish, seen, 2)[0, 0].tolist())
print("chosen first, then masked:", too_late(wish[0, 0]))
wish[..., 3:] = 0.0
print("the same, when tokens 3 to 5 turn out otherwise:", too_late(wish[0, 0]))

# %% [markdown]
# Whoever chooses first loses places to tokens that may not be read. Here one of two
# places was lost, and when only *later* tokens change, what is read changes: the future
# is hidden, and still has its say. Written word by word, the same text would be read
# differently.
#
# (The list is in the order of positions, not of scores.)
#
# **Equal scores.** ReLU makes zeros, and zeros are equal. `torch.topk` leaves open
# which of the equal ones it takes; on another chip it may take others. The rule of this
# course, everywhere: the lowest index wins.

# %%
tied = torch.tensor([[[0.0, 0.5, 0.0, 0.0, 0.5, 0.0]]])
everything = torch.ones(1, 6, dtype=torch.bool)
best = top_k(tied, everything, 4)[0, 0]
print("best 4 of", tied[0, 0].tolist(), "are", best.tolist())

# %%
draw = torch.Generator().manual_seed(2)
for heads in (1, 2, 4, 8, 16, 64):
    q = torch.randn(1, 200, heads, 16, generator=draw)
    w = torch.randn(1, 200, heads, generator=draw)
    k = torch.randn(1, 300, 16, generator=draw)
    silent = (index_scores(q, w, k) == 0).float().mean()
    print(f"heads {heads:2}: {silent:6.2%} of random scores are exactly 0")

# %% [markdown]
# A score is 0 where no head says anything, half as often with each head more. With 64
# heads it hardly happens; tiny models see it often.
#
# **Fewer than k.** The fifth token has five rows to read, not 2,048. Its list is
# filled with -1, which means *nothing here*, and is skipped when reading.

# %%
whole = torch.ones(4, 4, dtype=torch.bool).tril()
print(top_k(torch.zeros(1, 4, 4), whole, 3)[0])

# %% [markdown]
# Exercise 07.2 is this function with all its corners.
#
# ## A threshold instead of sorting
#
# To sort 131,072 scores takes many passes over all of them. But nobody needs the order.
# It is enough to know where to cut: the k-th largest score. One can guess it, bit by
# bit, and only count. A float's bits, read as a whole number, rise with the float
# (where it is positive). So the highest bit is settled first, then the next.

# %%
draw = torch.Generator().manual_seed(3)
marks = torch.rand(1000, generator=draw)
keys = marks.view(torch.int32)
k, threshold, trail = 100, 0, []
for bit in range(30, -1, -1):
    tried = threshold | (1 << bit)
    reach = int((keys >= tried).sum())
    if reach >= k:
        threshold = tried
    value = torch.tensor(tried, dtype=torch.int32).view(torch.float32).item()
    trail.append((bit, value, reach, reach >= k))
for bit, value, reach, kept in trail[:14]:  # the first 14 of 31
    print(f"bit {bit:2}: do {k} scores reach {value:.6g}? {reach:4} do;"
          f" {'kept' if kept else 'dropped'}")
found = torch.tensor(threshold, dtype=torch.int32).view(torch.float32).item()
print(f"after {len(trail)} bits: {found:.6f}, by sorting"
      f" {marks.sort(descending=True).values[k - 1]:.6f}")

# %% [markdown]
# The highest eight bits of such a number, 30 to 23, are its exponent: they settle the
# size, here 0.5 to 1. The others settle the place between, by halves.

# %%
fig, ax = plot.figure(6.4, 2.4)
shown = [(n, value) for n, (_, value, _, _) in enumerate(trail) if value < 2]
ax.plot(*zip(*shown), "o-", label="candidate")
ax.axhline(found, color="black", linewidth=1, label="the 100th largest of 1,000")
ax.set(xlabel="bits settled", ylim=(0, 1.1), title="guessing the threshold")
ax.legend()
plot.show(fig, alt=f"The candidates close in on {found:.3f} within about ten bits.")

# %% [markdown]
# The course's kernel settles two bits in each pass: 16 passes, and one more to write
# down what was chosen. Of rows that are just equal to the threshold it takes as many as
# are missing, from the front. Here it runs, in Triton's interpreter where there is no
# GPU, beside its twin that sorts, and its reads are counted:

# %%
from kernels import backend, bounds, indexer_scores, select_topk, sparse_attention

here, impl = device.pick(), "triton" if backend.current().runs_triton else "torch"
draw = torch.Generator().manual_seed(4)
marks = torch.randn(2, 1, 1003, generator=draw).relu().to(here)  # many ties at 0
with bounds.counting() as counts:
    mine = select_topk(marks, 600, impl=impl)
print("same as by sorting:", torch.equal(mine, select_topk(marks, 600, impl="torch")))
said = select_topk.traffic(batch=2, tokens=1, entries=1003, k=600)
print(f"formula: {said['bytes_read']:,} bytes read = 2 texts x 17 passes x 1,003 x 4")
if backend.current().name == "interpret":
    print(f"counted: {counts.bytes_read:,} bytes read")

# %% [markdown]
# ## Reads against bytes
#
# Now the sum. V3 keeps 576 numbers a token in each of 61 layers: 70,272 bytes. V3.2 is
# the same model with a choice of 2,048 rows.
#
# **Before you run the next cell:** with 2 bytes a number as before, how many bytes a
# token does V3.2 keep?

# %% tags=["predict"]
guess = ...
predict("07-d", guess)

# %%
v3_bytes, in_bf16 = ledger.rate("deepseek-v3"), ledger.rate("deepseek-v3.2", row="bf16")
print(f"V3:             61 x (512 + 64) x 2       = {v3_bytes:,}")
print(f"V3.2 in bf16:   61 x (512 + 64 + 128) x 2 = {in_bf16:,}")
predict("07-d", guess, answer=in_bf16, unit="bytes")

# %% [markdown]
# **More, not less.** What is not chosen now may be chosen by the next query. So every
# row stays, and an index key comes on top. The next cell counts what lies in the
# storage of the tiny V3.2, with a k of 1, 24 and 240:

# %%
from tinymodels.cache import allocate
from tinymodels.presets import tiny_v3_2


def choosing(config, k):
    def narrower(layer):
        a = layer.attention
        return replace(layer, attention=replace(a, indexer=replace(a.indexer, top_k=k)))

    return config.with_(layers=tuple(narrower(layer) for layer in config.layers))


for k in (1, 24, 240):
    config = choosing(tiny_v3_2(), k)
    measured = allocate(config, tokens=100).bytes()["total"] / 100
    one = ledger.per_layer(config, tokens=1)[0]
    print(f"k = {k:3}: {measured:g} bytes a token measured; ledger {len(config)} x"
          f" ({one['main']} + {one['index']}) = {ledger.rate(config)}")
print(f"the same in bf16: 5 x (40 + 16) x 2 = {ledger.rate(config, row='bf16')};"
      f" the tiny V3: 5 x 40 x 2 = {ledger.rate(checkpoints.preset('tiny_v3'))}")

# %% [markdown]
# And yet V3.2's published number is 48,068, less than V3's. That is the work of smaller
# numbers, not of the choice. (It was so just now: in bf16 the tiny V3.2 keeps more than
# the tiny V3, as released less.) Its rows are kept in **FP8**: 8 bits a number, and for
# every 128 numbers one **scale** of 4 bytes, by which they are multiplied when they are
# read. The rope key stays in bf16. ([Chapter 11](11__fp4.ipynb) builds such formats.)

# %%
per_layer = ledger.per_layer("deepseek-v3.2", tokens=1)[0]
print(f"row: 512 in FP8 + 4 scales of 4 bytes + 64 in bf16 = {512 + 4 * 4 + 64 * 2};"
      f" ledger {per_layer['main']}")
print(f"index key: 128 in FP8 + 1 scale of 4 bytes = {128 + 4};"
      f" ledger {per_layer['index']}")
published = get("deepseek-v3.2").rate
print(f"the index key adds {in_bf16 / v3_bytes - 1:.0%};"
      f" FP8 takes {1 - ledger.rate('deepseek-v3.2') / in_bf16:.0%} away")
print(f"61 x (656 + 132) = {ledger.rate('deepseek-v3.2'):,};"
      f" published {published.value:,} [{published.status}]")

# %% [markdown]
# So there are two ideas in 48,068, as there were two in 93.3 %. The choice *adds* 22 %
# to the bytes. FP8 takes 44 % away.
#
# What the choice saves is reading. For one new token at context n, a layer of V3 reads
# n rows. V3.2 reads n index keys and 2,048 rows.
#
# **Before you run the next cell:** at 131,072 tokens and in bf16, how many percent of
# V3's bytes does V3.2 read?

# %% tags=["predict"]
guess = ...
predict("07-e", guess)

# %%
def read_bytes(config, context, row, key):
    """Of one new token, over all layers: every index key, and the chosen rows."""
    chosen_rows = min(context, config.layers[0].attention.indexer.top_k)
    return len(config) * (context * key + chosen_rows * row)


contexts = [2**n for n in range(9, 21)]
curves = {
    "V3, bf16": [n * v3_bytes for n in contexts],
    "V3.2, bf16": [read_bytes(v32, n, 1152, 256) for n in contexts],
    "V3.2, FP8": [read_bytes(v32, n, 656, 132) for n in contexts],
}
fig, ax = plot.figure(6.4, 2.8)
for (name, line), marker in zip(curves.items(), "os^"):
    ax.plot(contexts, line, marker + "-", label=name, markersize=4)
ax.axvline(2048, color="black", linewidth=1)
ax.set(xscale="log", yscale="log", xlabel="context (black line: 2,048)",
       title="bytes read for one new token")
ax.set_yticks([1e8, 1e9, 1e10, 1e11], ["100 MB", "1 GB", "10 GB", "100 GB"])
ax.legend()
plot.show(fig, alt="Up to 2,048 tokens V3.2 in bf16 reads a little more than V3;"
          " beyond, its curve bends and ends at about a quarter; in FP8 it is lower.")
ratio = read_bytes(v32, 131_072, 1152, 256) / (131_072 * v3_bytes)
predict("07-e", guess, answer=round(100 * ratio), unit="%")

# %%
for n in (1_000, 2_048, 8_192, 131_072, 1_048_576):
    bf16 = read_bytes(v32, n, 1152, 256) / (n * v3_bytes)
    fp8 = read_bytes(v32, n, 656, 132) / (n * v3_bytes)
    print(f"{n:9,} tokens: {bf16:4.0%} of V3's bytes in bf16, {fp8:4.0%} in FP8")
least = next(
    n for n in range(1, 10_000) if read_bytes(v32, n, 1152, 256) < n * v3_bytes
)
print(f"in bf16 V3.2 reads less than V3 from {least:,} tokens on")

# %% [markdown]
# Most of what is left to read are the index keys: **all** of them, for each new token.
# The line bends and goes on rising. A choice makes the reads cheaper by a factor, not
# independent of the context; chapters 08 and 10 go on from there. The same with
# arithmetic, all of a model's FLOPs for one new token. They are weighted by format: a
# FLOP in FP8 counts half of one in bf16, because a card does twice as many.

# %%
for name in ("deepseek-v3", "deepseek-v3.2"):
    low, high = (ledger.decode_flops(name, n) for n in (4096, 131_072))
    print(f"{name:13} {low / 1e9:5.1f} GFLOP (weighted) at 4,096 tokens,"
          f" {high / 1e9:7,.1f} at 131,072")

# %% [markdown]
# At 131,072 tokens nearly all of V3's work is attention; with the choice a sixteenth of
# the whole is left. This, not the bytes kept, is what the choice is for. (The
# assignment behind it: matrices, experts and the indexer's scores in FP8; attention
# itself, the router and the output head in bf16. `tinymodels/ledger/flops.py` has it.)
#
# ## Three kernels in a row
#
# A decode step of V3.2's attention is three kernels: **score** every key, **select**
# the best k, **gather** their rows and attend. The last one needs no copy of the chosen
# rows. An index becomes an address; each row is fetched from where it lies.

# %%
draw = torch.Generator().manual_seed(5)
B, S, H, k = 2, 333, 6, 24
sizes = dict(q=(B, 1, 3, 24), w=(B, 1, 3), key=(B, S, 24),
             query=(B, 1, H, 46), row=(B, S, 46))
t = {name: torch.randn(size, generator=draw).to(here) for name, size in sizes.items()}


def decode(impl):
    marks = indexer_scores(t["q"], t["w"], t["key"], impl=impl)
    list_BTk = select_topk(marks, k, impl=impl)
    return sparse_attention(t["query"], t["row"], list_BTk, value_dim=40, impl=impl)


with bounds.counting() as counts:
    got = decode(impl)
print("same as in plain torch:", torch.allclose(got, decode("torch"), atol=1e-5))
if backend.current().name == "interpret":
    rows = counts["entry"].bytes_loaded
    print(f"rows read: {rows:,} bytes = {B} texts x {k} rows x 46 numbers x 4;"
          f" {B * S * 46 * 4:,} lie there")

# %% [markdown]
# Only the chosen rows were touched: the interpreter counts each load. In exercise 07.5
# you write the two lines that turn a list into addresses.
#
# And at V3.2's real sizes, by the kernels' formulas, for one new token and one layer:

# %%
parts = {
    "score": indexer_scores.traffic(tokens=1, entries=131_072, heads=64, dim=128),
    "select": select_topk.traffic(tokens=1, entries=131_072, k=2048),
    "gather": sparse_attention.traffic(tokens=1, heads=128, block=128,
                                       chosen=2048, head_dim=576, value_dim=512),
    "V3, all rows": {"bytes_read": 131_072 * 1152},
}
for name, moved in parts.items():
    print(f"{name:12} asks for {plot.bytes_short(moved['bytes_read'])}")
query, marks = 64 * 129 * 2, 131_072 * 4
print(f"the index query {query:,} bytes x {131_072 // 64:,} blocks of 64 keys,"
      f" the scores {marks:,} bytes x 17")
once = 131_072 * 256 + 2048 * 1152
print(f"all index keys and the chosen rows, once: {plot.bytes_short(once)},"
      f" {once / (131_072 * 1152):.0%} of V3's rows")

# %% [markdown]
# What a kernel *asks for* is more than what memory must bring. Half of what `score`
# asks for is one small query, over and over, and `select` goes through the same half
# megabyte of scores 17 times; both stay in the chip's own cache after the first time.
# What is left are the keys and the chosen rows: the 24 % of your guess above.

# %% [markdown]
# ## Where it breaks
#
# A needle that is not chosen does not exist. The tiny V3.2 was trained on recall: up to
# 48 pairs of words in 256 tokens of noise, then questions. It reads 24 rows a layer.
# We let it read fewer or more, and beside it the same model with a blind rule in place
# of its indexers. All of it twice, with two models of different seeds.
#
# **Before you run the next cell:** with 4 of up to 256 rows, chosen by its own
# indexers, how many percent of the answers will it still find?

# %% tags=["predict"]
guess = ...
predict("07-f", guess)

# %%
sparse, twin = (checkpoints.load(f"tiny_v3_2-recall-seed{seed}").requires_grad_(False)
                for seed in (0, 1))
needles = data.batch("recall", 0, 0, data.Stage(6, 256), held_out=True)
reads = (1, 2, 4, 24, 96, 192, 256)
found = {}
for seed, model in enumerate((sparse, twin)):
    ways = {"its indexers": model} | {
        rule: few_entries.with_indexer(model, rule) for rule in ("newest", "random")
    }
    for name, way in ways.items():
        narrow = (few_entries.with_top_k(way, k) for k in reads)
        found[name, seed] = [low_rank.quality(each, needles).right for each in narrow]
for (name, seed), line in found.items():
    said = "  ".join(f"{k}: {right:.0%}" for k, right in zip(reads, line))
    print(f"seed {seed}, {name:12} {said}")

# %%
fig, ax = plot.figure(6.4, 2.8)
styles = dict(zip(ways, zip("os^", plot.PALETTE)))
for (name, seed), line in found.items():
    marker, colour = styles[name]
    ax.plot(reads, line, marker + "-", color=colour, markersize=4, linewidth=1.2,
            label=None if seed else name)
ax.set(xscale="log", xlabel="rows read a query", ylim=(0, 1.05),
       title="needles found among 256 tokens, 2 seeds")
ax.set_xticks(reads, reads)
ax.legend()
plot.show(fig, alt="With their indexers both models find all needles from 2 rows on;"
          " with a blind rule they find them only when nearly everything is read.")
predict("07-f", guess, answer=round(100 * found["its indexers", 0][2]), unit="%")

# %% [markdown]
# And if only one layer is narrow? Is there one that everything hangs on?

# %%
print("one row in a single layer, 24 in the others; needles found:")
for seed, model in enumerate((sparse, twin)):
    thin = [few_entries.with_top_k(model, 1, layers=[i]) for i in range(5)]
    line = [f"{low_rank.quality(each, needles).right:.0%}" for each in thin]
    print(f"seed {seed}, layer 0 to 4:", "  ".join(line))

# %% [markdown]
# One row is enough in any of them, if it is the right one: each still chooses with its
# indexer. So take the choice of one layer away. It reads the newest 24 rows, whatever
# they are:

# %%
from tinymodels import choices

print("one layer reads the newest 24 rows; needles found:")
for seed, model in enumerate((sparse, twin)):
    line = []
    for layer in range(5):
        with choices.newest(model, layer):
            line.append(f"{low_rank.quality(model, needles).right:.0%}")
    print(f"seed {seed}, layer 0 to 4:", "  ".join(line))

# %% [markdown]
# Now there is one: with layer 2 blind, in both models, most needles are lost, and the
# other layers do not make up for it. (They were never trained to.) Blind, layer 3 loses
# a tenth, the others nothing.
#
# Two rows a layer are enough here, and even one nearly is. A question of this game has
# *one* answer, in *one* place. All of it hangs on the indexer: without a trained one,
# 24 rows find next to nothing, and it takes nearly all 256 to make up for it.
#
# So a small k is not enough where a query needs many rows at once: in stories the loss
# rose below 32. Is the choice also what fails in texts longer than those of training?

# %%
from tinymodels.dice import Dice


def answered(model, length):
    """The part of the questions answered right, in four texts of this length."""
    made = [data.recall(Dice("long", i), length, 48) for i in range(4)]
    tokens = torch.tensor([text.tokens for text in made])
    said = model(tokens).argmax(-1)
    right = [said[b, at - 1] == tokens[b, at]
             for b, text in enumerate(made) for at in text.answers]
    return torch.stack(right).float().mean()


for length in (256, 512):
    for seed, model in enumerate((sparse, twin)):
        line = [f"k = {k}: {answered(few_entries.with_top_k(model, k), length):.0%}"
                for k in (24, length)]
        print(f"{length} tokens, seed {seed}:  ", "  ".join(line))

# %% [markdown]
# Trained on 256 tokens, both lose many needles among 512. But so they do when they read
# *everything*. To blame the choice one has to look at k = all first.
#
# ## Which rows a query reads
#
# One recall text, question by question. A strip for each layer: what is marked is read.
# The needle's own row stands out. At the right, the part of the layer's attention
# that lies on what it reads.

# %%
from tinymodels.widgets.which_entries import WhichEntries, record

text = data.recall(Dice("widget", 0), 256, 40)
WhichEntries(record(sparse, text), question=3, k=24)

# %% [markdown]
# Go through the questions, then bring k down to 1. Which layers read the needle, and
# which read something else? Here it is for all questions of this text, in both models:

# %%
for seed, model in enumerate((sparse, twin)):
    looks = record(model, text, (1, 24))
    for k, asked in looks.looks.items():
        for what in ("questions whose needle is read", "attention on what is read"):
            line = []
            for i in range(5):
                read, parts = zip(*(one.layers[i] for one in asked))
                hits = sum(needle in rows for needle, rows in zip(looks.needles, read))
                share = sum(parts) / len(parts)
                line.append(f"{hits:2}" if "needle" in what else f"{share:.0%}")
            print(f"seed {seed}, k = {k:2}, layer 0 to 4: {what:31}", "  ".join(line))
print("questions:", len(asked))

# %% [markdown]
# Layers 2 and 3 read the needle for every question, even when they may read no more
# than one row. In layer 0 the list of 24 leaves out most of the attention, and it does
# no harm: flat attention, as in the V1 above.
#
# ## Your own choice
#
# Have you solved exercise 07.2? Then `my_parts()` finds your function; otherwise the
# course's takes its place.

# %% tags=["nbval-ignore-output"]
from grading import my_parts

parts = my_parts()

# %% [markdown]
# It runs in the trained V3.2, in each layer, and looks for needles:

# %%
mine = checkpoints.load("tiny_v3_2-recall-seed0", replace(Parts(), select=parts.select))
mine.requires_grad_(False)
same = torch.allclose(mine(needles.tokens), sparse(needles.tokens), atol=1e-4)
print(f"needles found: {low_rank.quality(mine, needles).right:.1%};"
      f" the same logits: {same}")

# %% [markdown]
# ## What it costs
#
# The tiny V3 and the tiny V3.2 learned the same task with the same data, two seeds
# each. V3.2 has its indexers to train as well.

# %%
for preset in ("tiny_v3", "tiny_v3_2"):
    rate = ledger.rate(checkpoints.preset(preset))
    for seed in (0, 1):
        about = checkpoints.describe(f"{preset}-recall-seed{seed}")
        pairs = about["measured"]["recall"]["pairs"]["48"]
        print(f"{preset:9} {rate:g} bytes, seed {seed}: {pairs:.1%} of 48 pairs found,"
              f" {about['cpu_seconds']:.0f} s of training")

# %% [markdown]
# (360 is less than 400 by FP8, as above.) Nothing is lost that recall could show. What
# it cost is work: the training took twice as long, because the indexers are run and
# taught beside an attention that has to be computed in full, to teach them. A choice
# pays later, in long texts.
#
# Stories are harder. All of these had 9,000 steps of them. Then facts are asked for that
# were told 25 sentences ago (who guesses among the values named finds 45 in a hundred):

# %%
from tinymodels import from_dense
from tinymodels.measure import given_fact_accuracy

for name in ("tiny_v1-text-seed0", "tiny_v1-text-seed1",
             "tiny_v3-text-seed0", "tiny_v3_2-text-seed0"):
    told = checkpoints.describe(name)["measured"]
    print(f"{name:21} loss {told['loss']:.3f}; {told['given']['25']['all']:.0%} found")
scratch = checkpoints.load("tiny_v3_2-text-seed0").requires_grad_(False)
for k in (24, 512):
    reader = few_entries.with_top_k(scratch, k)
    share = given_fact_accuracy(reader, 25, count=30)["all"]
    print(f"tiny_v3_2, k = {k:3}: {share:.0%} found (30 stories)")

# %% [markdown]
# V3.2 finds little more than a guesser. And it finds no more when it reads *everything*.
# So rows that are not read are not what is missing. Most of what it was told it has not
# learned to look up. (V1's second seed has not quite learned it either.)
#
# DeepSeek did not train V3.2 from nothing. It began as V3.1, which could look already.
# First the indexers learned alone, 1,000 steps with all else frozen and all rows read.
# Then everything learned, with 2,048 rows a query, 15,000 steps (report, section 2.1,
# status C). The same in small: the tiny V3 from above, 300 steps and 1,000 steps.
#
# **Before you run the next cell:** after the first 300 steps only the indexers have
# changed. The model reads 24 rows a query. In percent, how many of the facts does it
# find?

# %% tags=["predict"]
guess = ...
predict("07-g", guess)

# %%
run = from_dense.results()["runs"][0]
rows = {
    "V3, reads all": checkpoints.describe("tiny_v3-text-seed0")["measured"],
    "24 rows, untaught indexers": run["untaught"],
    "24 rows, indexers taught": run["after the warm-up"],
    "24 rows, all trained on": run["sparse"]["measured"],
    "V3 trained on as long": run["dense"]["measured"],
}
for what, told in rows.items():
    found = told["given"]["25"]["all"]
    print(f"{what:27} loss {told['loss']:.3f}; {found:.1%} found")
found = rows["24 rows, indexers taught"]["given"]["25"]["all"]
predict("07-g", guess, answer=round(100 * found), unit="%")

# %% [markdown]
# All of them. And trained on, it cannot be told from the V3 that reads everything and
# was trained on as long: they differ by less than a thousandth. So a choice costs these
# stories nothing, where there is something to be chosen *for*. To learn to look through
# 24 rows that nobody has learned to choose yet is another matter.
#
# (One seed of each. `python -m tinymodels.from_dense` makes it again, in about 16 minutes.)
#
# | | V3 | V3.2 |
# |---|---|---|
# | kept, a token and layer, bf16 | 1,152 | 1,152 + 256 |
# | kept, as released | 1,152 | 656 + 132 (FP8) |
# | bytes a token | 70,272 | 85,888 in bf16, **48,068** in FP8 |
# | rows read for a new token | all | 2,048 |
# | index keys read for it | none | all |
# | new matrices | none | the indexer's queries, keys, weights |
# | what can go wrong | nothing new | what is not chosen is not there |
#
# Reading is cheaper, and every token still leaves a row in every layer. The next
# chapter lets four tokens share one.
#
# ## Exercises
#
# [Exercises 07](../exercises/07__sparse_attention.ipynb): the scorer, the choice, reads
# against bytes, the threshold, and two lines of the kernel. About 100 minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("07")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="07")

# %% [markdown]
# ## Sources
#
# - Sparse attention, the lightning indexer and its two stages of training:
#   DeepSeek-V3.2's report, [arXiv 2512.02556](https://arxiv.org/abs/2512.02556),
#   section 2.1, and the released inference code (656 and 132 bytes, k = 2,048).
# - 48,068 is read off a chart (status R) and is the sum of the released layout; 85,888
#   and 70,272 are arithmetic on the released configurations (status D).
# - Choosing by bits: a radix select, known from sorting by digits; Knuth, *The Art of
#   Computer Programming*, volume 3.
#
# Next: [08 · Groups](08__groups.ipynb): keeping less.
