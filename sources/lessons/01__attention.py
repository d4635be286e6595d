# %% [markdown]
# # 01 · Attention and the cache
#
# *90 minutes.* You have met a model that writes, one token at a time ([chapter
# 00](00__start_here.ipynb)). Here you open it. You build attention from three tokens on
# paper, then the loop that writes text, first without a memory and then with one. Every
# later chapter makes that memory smaller.
#
# **Objectives.** After this chapter you can
#
# - compute attention for three tokens by hand,
# - say why scores are divided by the square root of the head dim, and what the mask
#   forbids,
# - write a decode loop that runs each token once,
# - count what the cache saves in arithmetic and what it costs in bytes,
# - read a small Triton kernel line by line,
# - derive the number of this chapter:
#
# > **bytes per token = 2 × layers × key-value heads × head dim × bytes per number**

# %%
import math

import torch
from grading import predict
from tinymodels import checkpoints, device, tokenizer
from tinymodels.widgets import plot

torch.manual_seed(0)
model = checkpoints.load("tiny_v1-text-seed0").to(device.pick()).requires_grad_(False)

# %% [markdown]
# ## Looking something up
#
# The model has read 100 tokens and is about to write number 101. It cannot go back and
# read the text again. It does something else: every earlier token has left a small card
# behind, and the newest token looks through the cards.
#
# - The **key** on a card says what the card is good for.
# - The **value** is what the card has to tell.
# - The newest token brings a **query**: what it would like to know.
#
# The query is compared with every key. Where they match well, much of the value is
# taken; where they do not, almost nothing. The result is a mixture of values. That is
# all of attention.
#
# A card is not written in words. Key, value and query are lists of numbers, and "match"
# is a dot product: multiply them pair by pair, add up.
#
# Where do the three come from? Inside the model each token is a list of numbers too, 64
# in the tiny one. Three matrices, found by training, are multiplied with that list: one
# makes the query of it, one the key, one the value. Here we take numbers that suit us.
#
# ## Three tokens on paper
#
# Three tokens have been read. Their keys and values have two numbers each, so that you
# can follow with a pencil.

# %%
keys = [[2.0, 0.0], [0.0, 2.0], [1.0, 1.0]]
values = [[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]]
query = [1.0, 0.0]

scores = [sum(q * k for q, k in zip(query, key)) / math.sqrt(2) for key in keys]
print("scores ", [round(s, 3) for s in scores])

# %% [markdown]
# The first key points the way the query points, so its score is the highest. The second
# has nothing in common with it.
#
# Scores become **weights** by the softmax: take e to the power of each score, then
# divide by the sum, so that the weights add up to 1.

# %%
powers = [math.exp(s) for s in scores]
weights = [p / sum(powers) for p in powers]
print("weights", [round(w, 3) for w in weights], " sum", round(sum(weights), 3))

output = [sum(w * v[i] for w, v in zip(weights, values)) for i in range(2)]
print("output ", [round(x, 3) for x in output])

# %% [markdown]
# More than half of the output comes from the first card. Change the query to `[0.0,
# 1.0]` above and run the three cells again: now the second card wins. With `[0.0, 0.0]`
# the query asks for nothing in particular, and every card counts the same.
#
# The same in three lines of torch. `@` is the matrix product.

# %%
q, k, v = (torch.tensor(x) for x in ([query], keys, values))

score = q @ k.T / math.sqrt(2)
weight = score.softmax(dim=-1)
print("output ", [round(x, 3) for x in (weight @ v)[0].tolist()])

# %% [markdown]
# ## Why divide by the square root of the dim?
#
# Two numbers a card is small; real models use 128. Take queries and keys that have
# nothing to do with each other, filled with random numbers of size 1. Their scores
# should be near
# 0. Are they?
#
# **Before you run the next cell:** the score of two random vectors with 256 numbers
# each is sometimes above zero and sometimes below. How far from zero is it, typically?
# Replace the dots.

# %% tags=["predict"]
guess = ...
predict("01-a", guess)

# %%
spreads = {}
for dim in (1, 4, 16, 64, 256, 1024):
    q, k = torch.randn(2, 4000, dim, generator=torch.Generator().manual_seed(dim))
    spreads[dim] = (q * k).sum(-1).std().item()
    spread, root = spreads[dim], dim**0.5
    print(f"dim {dim:5}: scores spread by {spread:5.1f}   square root {root:5.1f}")

predict("01-a", guess, answer=round(spreads[256]))

# %% [markdown]
# The spread is the square root of the dim. With 256 numbers a score of 16 or -16 is
# nothing special, and e¹⁶ is nine million. One card would take all the weight because
# of chance. Dividing by the square root brings the spread back to 1, whatever the dim.

# %%
dims, shares = [4, 16, 64, 256, 1024], {"as they are": [], "divided by √dim": []}
for dim in dims:
    q, k = torch.randn(2, 500, 1, dim, generator=torch.Generator().manual_seed(dim))
    k = torch.randn(500, 20, dim, generator=torch.Generator().manual_seed(dim + 1))
    raw = (q @ k.transpose(1, 2)).squeeze(1)
    for name, s in (("as they are", raw), ("divided by √dim", raw / dim**0.5)):
        shares[name].append(s.softmax(-1).amax(-1).mean().item())

fig, ax = plot.figure(6.4, 2.6)
for name, share in shares.items():
    ax.plot(dims, share, "o-", label=name)
ax.set(xscale="log", xticks=dims, xlabel="head dim", ylim=(0, 1))
ax.set_xticklabels(dims)
ax.set_title("Share that the best of 20 random cards takes")
ax.minorticks_off()
ax.legend()
plot.show(fig, alt="With scores as they are, the best of 20 random cards takes "
          f"{shares['as they are'][-1]:.0%} of the weight at dim 1024; divided by the "
          f"square root of the dim, {shares['divided by √dim'][-1]:.0%}.")

# %% [markdown]
# ## No looking ahead
#
# While a model writes, later tokens do not exist. While it *reads* a prompt they do:
# all tokens are run at once, because that is fast. So a **mask** must forbid each token
# to read the cards of later ones. A forbidden score is set to minus infinity, and e to
# the power of that is 0.
#
# Here is attention for a whole text, with a switch for the mask. The names in the code
# end with the letters of their axes: `score_TS` has one row for each of T new tokens and
# one column for each of S tokens in all, D is the numbers of a key. The key to all
# letters stands in `tinymodels/__init__.py`.

# %%
def attention(query_TD, key_SD, value_SD, masked=True):
    T, S = len(query_TD), len(key_SD)
    score_TS = query_TD @ key_SD.T / math.sqrt(query_TD.shape[-1])
    if masked:
        position_T1 = torch.arange(S - T, S)[:, None]  # the T newest of S tokens
        score_TS = score_TS.masked_fill(torch.arange(S) > position_T1, -torch.inf)
    return score_TS.softmax(dim=-1) @ value_SD

# %% [markdown]
# What does the mask do? Take a text of five tokens, change the last one, and see which
# outputs change.

# %%
draw = torch.Generator().manual_seed(3)
x = torch.randn(5, 6, generator=draw)
changed = x.clone()
changed[4] = torch.randn(6, generator=draw)  # another last token

for masked in (False, True):
    before = attention(x, x, x, masked)
    after = attention(changed, changed, changed, masked)
    differs = (before != after).any(dim=-1)
    print("with mask   " if masked else "without mask", "outputs that changed:",
          [t for t in range(5) if differs[t]])

# %% [markdown]
# Only the last token was changed. Without the mask, *every* output changed: the first
# tokens had read a token that was yet to come. A model trained like that would learn to
# peek, and would be helpless when it writes. With the mask only the last output
# changes.
#
# ## Heads
#
# One mixture for a whole token is little. A name in the text may matter for who is
# meant, for grammar, and for what will follow. So the numbers of a token are cut into
# **heads**, and each head looks things up on its own, with its own keys and its own
# weights.
#
# The trained model from chapter 00 has 4 layers with 4 heads each. It has read a
# question and is about to write the word after "Ada has the". Where do the heads of one
# layer look?

# %%
from tinymodels.attention.weights import attention_weights

text = "Ada has the key. Ben has the lamp.\nWhat does Ada have? Ada has the"
tokens_BT = torch.tensor([tokenizer.encode(text)], device=model.device)
pieces = tokenizer.pieces(tokens_BT[0].tolist())
looks = attention_weights(model, tokens_BT)  # per layer: [1, H, T, S]

# %%
def draw_heads(layer):
    fig, axes = plot.figure(8.4, 8.0, rows=2, columns=2)
    words = [piece.strip() or "↵" for piece in pieces]
    for head, ax in enumerate(axes.flat):
        ax.imshow(looks[layer][0, head].cpu(), cmap="Blues", vmin=0, vmax=1)
        ax.set_title(f"head {head}")
        ax.set_xticks(range(len(words)), words, rotation=90, fontsize=8)
        ax.set_yticks(range(len(words)), words, fontsize=8)
    return fig


layer = 2
best = [pieces[i] for i in looks[layer][0, :, -1].argmax(-1).tolist()]
alt = f"Attention weights of the four heads of layer {layer}. From the last token they"
plot.show(draw_heads(layer), alt=f"{alt} look most at {best}.")

# %% [markdown]
# Read one row from left to right: it belongs to one token, and the dark cells are the
# cards it took from. Everything above the diagonal is empty; that is the mask. (`<bos>`
# is where a head looks that has nothing to look for; "↵" is the new line.) Look at the
# last row: all four heads of layer 2 look straight back at "key", and not at "lamp".
# That is the answer being fetched.
#
# How could they know which of the two things is Ada's? Set `layer = 1` and run the cell
# again: there two heads look at "Ada". The model first finds out whom the sentence is
# about, and one layer later asks for what belongs to her.
#
# ## Where a token stands
#
# A dot product does not know which card is older. "Ben has the lamp" and "the lamp has
# Ben" would look alike. So before they are compared, query and key are **turned** by an
# angle that grows with their position (RoPE). Take two numbers as the point of a clock
# hand: at position 1 it is turned a little, at position 2 twice as much.
#
# What counts in a dot product is the angle *between* two hands. Move both by the same
# amount and nothing changes. So the score tells how far apart two tokens are, and
# nothing about where they stand.

# %%
from tinymodels.attention.rope import rotate
from tinymodels.config import Rope

rope = Rope(dim=2, theta=10_000.0)
q, k = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.8, 0.6]]])

print("query at   key at   apart   score")
for p, s in ((3, 1), (7, 5), (1007, 1005), (7, 1), (1007, 1001)):
    turned_q = rotate(q, rope, torch.tensor([p]))
    turned_k = rotate(k, rope, torch.tensor([s]))
    score = (turned_q * turned_k).sum().item()
    print(f"{p:8} {s:8} {p - s:7} {score:8.3f}")

# %% [markdown]
# Two apart gives one score, six apart another, wherever in the text. A head has many
# pairs; each turns at its own speed, the fast ones for near tokens, the slow ones for
# far ones. Values are not turned: they are what is said, not where.
#
# For the memory one thing matters: a key is turned once, to its own position, and never
# again. It can be kept as it is.
#
# ## Writing without a memory
#
# Now let the model write. The plain way: give it the text, take the likeliest next
# token, append it, give it the longer text. Every step runs every token again.
#
# **Before you run the next cell:** the prompt has 11 tokens and the model writes 40
# more. How many tokens does it run through its layers in all?

# %% tags=["predict"]
guess = ...
predict("01-b", guess)

# %%
prompt = tokenizer.encode("Ada has the key. Ben has the lamp.")
NEW = 40
ran = 0
tokens = list(prompt)
for _ in range(NEW):
    logits_BTV = model(torch.tensor([tokens], device=model.device))
    ran += len(tokens)
    tokens.append(logits_BTV[0, -1].argmax().item())

slow = tokens
print(f"{len(prompt)} tokens read, {NEW} written, {ran:,} run")
predict("01-b", guess, answer=ran, unit="tokens")

# %% [markdown]
# The text has only 50 tokens before the last one, and the model ran 1,220. Token 1 was
# run 40 times. Each time its keys and values came out the same, to the last digit: the
# mask forbids it to look at what follows, so nothing that follows can change it. See
# for yourself. Here are the keys of token 1 in the last layer, for three lengths of
# text.

# %%
for length in (5, 20, 50):
    cache = model.new_cache(batch=1, capacity=length, storage="float32")
    model(torch.tensor([slow[:length]], device=model.device), cache)
    key = cache.layers[-1].main.read()["key"][0, 1, :4]
    rounded = [round(x, 4) + 0.0 for x in key.tolist()]
    print(f"text of {length:2} tokens, key of token 1: {rounded}")

# %% [markdown]
# ## The cache
#
# So keep them. A **KV cache** holds the key and the value of every token that has been
# read, in every layer. A new token computes its own key and value, appends them, and
# lets its query look at all. This is how the model of this course does it; the two
# steps and what stands between them are all there is.

# %%
import inspect

from tinymodels.attention.mha import MHA

print(inspect.getsource(MHA.forward))

# %% [markdown]
# `project` multiplies with the three matrices: queries, keys and values of the new
# tokens. What one token leaves in the cache of one layer is its **row**. `extend`
# appends the rows of the new tokens and returns all rows so far. `attend` reads.
# Without a cache the new rows are all the rows, so training, reading a prompt and
# writing are the same lines.
#
# The loop with a cache runs the prompt once. From then on each step runs one token.

# %%
cache = model.new_cache(batch=1, capacity=len(prompt) + NEW, storage="float32")
ran = 0
tokens = list(prompt)
chunk = prompt
for _ in range(NEW):
    logits_BTV = model(torch.tensor([chunk], device=model.device), cache)
    ran += len(chunk)
    chunk = [logits_BTV[0, -1].argmax().item()]
    tokens += chunk

print(f"{ran} tokens run, the same text: {tokens == slow}")
print(tokenizer.decode(tokens))

# %% [markdown]
# 50 instead of 1,220, and the same text to the last token. It has to be the same:
# nothing was approximated.
#
# Here is that loop in slow motion. Step through it with the arrow keys: which rows are
# written, which are read, which would have been computed again.

# %%
from tinymodels.widgets import XRay, record

XRay(record(model, prompt, new=12))

# %% [markdown]
# ## What it saves
#
# A counter inside torch adds up the multiplications and additions (FLOPs) of every
# matrix product. We let it watch both ways of writing the *next* token, for longer and
# longer texts.

# %%
from torch.utils.flop_counter import FlopCounterMode


def ready(context):
    """A cache that holds all tokens but the newest. Zeros cost as much as real rows."""
    cache = model.new_cache(1, context, "float32")
    cache.advance(context - 1)
    return cache


def flops(tokens, cached):
    tokens_BT = torch.tensor([tokens], device=model.device)
    with FlopCounterMode(display=False) as counter:
        if cached:
            model(tokens_BT[:, -1:], ready(len(tokens)))
        else:
            model(tokens_BT)
    return counter.get_total_flops()

# %%
contexts = (1, 128, 512, 2048)
text = [prompt[i % len(prompt)] for i in range(2048)]
again, kept = ([flops(text[:n], c) for n in contexts] for c in (False, True))
for n, a, b in zip(contexts, again, kept):
    print(f"context {n:5,}: again {a:13,} FLOPs   cached {b:9,}   {a / b:6.0f} times")

# %%
fig, ax = plot.figure(6.4, 2.8)
ax.plot(contexts, again, "o-", label="run the whole text again")
ax.plot(contexts, kept, "o-", label="with the cache")
ax.set(xscale="log", yscale="log", xlabel="tokens of context",
       xticks=contexts, xticklabels=contexts)
ax.set_title("FLOPs to write one more token")
ax.minorticks_off()
ax.legend()
plot.show(fig, alt="At 2,048 tokens, running the text again takes "
          f"{again[-1]:,} FLOPs for one token, with the cache {kept[-1]:,}.")

# %% [markdown]
# Running everything again costs a fixed price for each of the n tokens, and attention
# compares each of them with all others: n × n. With the cache one token pays the fixed
# price, and compares itself with n cards. Over a whole text that is n² against n in the
# layers, and n³ against n² in attention.
#
# Arithmetic is not time. So measure time too: the time that the processor works, so that
# it matters little what else your machine is doing; the next cell takes the faster of
# two runs. The numbers depend on your machine. What should not is the direction: the
# longer the text, the more the cache gains.

# %% tags=["nbval-ignore-output"]
import time


def seconds(context, cached, repeats=2):
    tokens_BT = torch.tensor([text[:context]], device=model.device)
    took = []
    for _ in range(repeats):
        cache = ready(context) if cached else None
        start = time.process_time()
        model(tokens_BT[:, -1:] if cached else tokens_BT, cache)[0, -1, 0].item()
        took.append(time.process_time() - start)
    return min(took)


times = {n: (seconds(n, False), seconds(n, True)) for n in contexts[1:]}
for n, (a, b) in times.items():
    print(f"context {n:5,}: again {a * 1e3:7.2f} ms, cached {b * 1e3:5.2f} ms,"
          f" {a / b:5.1f} times")

# %% [markdown]
# ## Two kinds of work
#
# A model with a cache works in two ways, and they feel very different to a machine.
#
# - **Prefill** reads the prompt: many tokens at once. Each weight and each card that is
#   fetched from memory serves all of them.
# - **Decode** writes: one token at a time. All weights and the whole cache are fetched,
#   for a single token.
#
# Count it for one attention layer of the real DeepSeek 67B, over 4,096 tokens of
# context: what a kernel must read and write, and what it computes. These counts are
# checked in the tests against every load and store that the kernels really make.

# %%
from kernels import decode_attention, flash_attention

sizes = dict(heads=64, kv_heads=8, head_dim=128)
n = 4096
work = {
    "prefill, 4,096 tokens": flash_attention.traffic(tokens=n, entries=n, **sizes),
    "decode, 1 token": decode_attention.traffic(entries=n, **sizes),
}
for name, t in work.items():
    moved = t["bytes_read"] + t["bytes_written"]
    print(f"{name:22} {moved:13,} bytes moved {t['flops']:16,} FLOPs"
          f" {t['flops'] / moved:8.1f} FLOPs a byte")

# %% [markdown]
# A modern GPU can do some hundreds of FLOPs in the time in which it fetches one byte.
# Prefill keeps it busy with arithmetic. Decode leaves it waiting: its time is the time
# to read the cache. So the size of the cache is not only a question of room. **It
# decides how fast a model writes.**
#
# ## The bytes
#
# What does one more token add? A key and a value, for each key-value head, in each
# layer:
#
# > 2 × layers × key-value heads × head dim × bytes per number
#
# *Key-value heads*, because several heads may look through the same cards, each with a
# query of its own. The tiny model has 4 query heads and keeps cards for 2 (chapter 05
# says what that saves and costs). With numbers of 2 bytes (a format called bf16):

# %%
from tinymodels import ledger

a = model.config.layers[0].attention
by_hand = 2 * len(model.config.layers) * a.kv_heads * a.head_dim * 2
cache = model.new_cache(batch=1, capacity=64)
model(tokens_BT, cache)

print("by hand        ", by_hand, "bytes per token")
print("the ledger says", ledger.rate(model.config))
print("measured       ", cache.bytes()["global"], "bytes hold", cache.length, "tokens:",
      cache.bytes()["global"] / cache.length, "each")

# %% [markdown]
# *Measured* means: the size of the arrays in which the rows really lie. This agreement
# of formula and measurement comes back in every chapter. If the two ever differ, one of
# them is wrong.
#
# Now the real thing. The first DeepSeek, 67B, of January 2024, has 95 layers, 8
# key-value heads and a head dim of 128.
#
# **Before you run the next cell:** how many times the 512 bytes of the tiny model does
# one token of its memory take?

# %% tags=["predict"]
guess = ...
predict("01-c", guess)

# %%
from tinymodels.cache import allocate
from tinymodels.published import get

v1 = get("deepseek-67b").config
a = v1.layers[0].attention
print(len(v1.layers), "layers,", a.kv_heads, "kv heads of", a.head_dim)
formula = 2 * len(v1.layers) * a.kv_heads * a.head_dim * 2
print("by formula:", f"{formula:,} bytes per token")

memory = allocate("deepseek-67b", tokens=100)  # its cache, without its weights
held = memory.bytes()["global"]
print("measured:  ", f"{held / 100:,.0f} bytes per token,", plot.bytes_text(held),
      "for 100")
predict("01-c", guess, answer=formula // by_hand)

# %% [markdown]
# **389,120 bytes for one token.** Its layers and heads are stated in the released
# configuration; the sum is read off a published chart (status R) and agrees with it. A
# page of text is about 600 tokens, so a page takes 233 MB, and a novel of 130,000
# tokens 51 GB.
#
# Here is the formula with handles. Try to bring a model of your own under 10,000 bytes
# a token, and see which handle does most. Later chapters turn each of them.

# %%
from tinymodels.widgets import BytesExplorer

BytesExplorer()

# %% [markdown]
# ## Down to the kernel
#
# On a GPU attention is not a line of torch. It is a **kernel**: a small program that
# runs many times at once, each copy on its own piece of the data. The kernels of this
# course are written in Triton, which looks like Python. Without a GPU an interpreter
# runs the same source on your processor, one copy after another, so that you can look
# inside.
#
# Four steps lead to the real thing. Read each kernel, then change the sizes and run it
# again.
#
# **One: copy, with a mask.** Every copy of the program, called a *program*, asks for
# its number and works on its own block. Blocks have a fixed size, and the last one may
# reach beyond the end of the data: the mask says which numbers exist. A tensor arrives
# as the address of its first number, so `source + at` are the addresses of the block.
# `tl.constexpr` marks a size that is fixed when the kernel is compiled.

# %%
from kernels import first_kernels
from kernels.first_kernels import attend, copy, row_sum, softmax

print(inspect.getsource(first_kernels._copy.fn))
print(copy(torch.arange(11.0), block=4))

# %% [markdown]
# Three programs copied four, four and three numbers. Here is a kernel of your own, with
# a `print` in it: in the interpreter a program is ordinary Python, and you can watch it
# work. `double[(3,)]` starts it three times side by side, as programs 0, 1 and 2. Take
# the mask away from the `tl.load` and run it again: the check around the interpreter
# tells you which address lies outside.

# %%
from kernels import backend
from kernels.backend import tl, triton


@triton.jit
def double(source, target, length, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = at < length
    numbers = tl.load(source + at, mask=exists, other=0.0)
    print("program", tl.program_id(0), "numbers", numbers)
    tl.store(target + at, 2 * numbers, mask=exists)


numbers = torch.arange(11.0, device=device.pick())
doubled = torch.empty_like(numbers)
if backend.current().runs_triton:
    double[(3,)](numbers, doubled, len(numbers), BLOCK=4)
    print(doubled.cpu())

# %% [markdown]
# **Two: the sum of a row.** Many numbers go in, one comes out. What does not exist
# counts as 0.
#
# **Three: softmax.** A row is read once, stays in the fastest memory there is, and is
# written once. The largest score is taken away first, so that e to its power cannot
# overflow; this changes no weight.

# %%
print(inspect.getsource(first_kernels._row_sum.fn))
print(inspect.getsource(first_kernels._softmax.fn))

table = torch.tensor([[0.0, 1.0, 2.0], [1000.0, 1000.0, 1000.0]])
print("row sums", row_sum(table).tolist())
print("softmax ", [[round(w, 3) for w in row] for row in softmax(table).tolist()])

# %% [markdown]
# **Four: attention over blocks.** A long row of scores does not fit into fast memory.
# But the softmax needs the largest score and the sum of *all* powers before it can give
# any weight. Or so it seems.
#
# The way out: go block by block and keep three things, the highest score so far, the
# sum so far, and the output so far. When a block brings a higher score, what was summed
# up before is shrunk by the right factor. At the end it is as if the whole row had been
# seen at once. This is the idea of FlashAttention, and exercise 01.5.

# %%
print(inspect.getsource(first_kernels._attend.fn))

draw = torch.Generator().manual_seed(1)
q, k, v = (torch.randn(*size, generator=draw) for size in ((6,), (50, 6), (50, 6)))
in_blocks = attend(q, k, v, block=16)
at_once = attention(q[None], k, v)[0]
print("same as the formula:", torch.allclose(in_blocks, at_once, atol=1e-6))

# %% [markdown]
# The real kernel for decode, `kernels/decode_attention.py`, is this fourth one with two
# additions. All query heads that share a key are served together, so each key is read
# once. And a long cache is cut into parts that are worked on side by side, each with
# its own maximum and sum, merged at the end in the same way.
#
# It reads what it must and no more. In the interpreter every load can be counted. Here
# is the count beside the formula, for a small cache.

# %%
from kernels import bounds

B, S, H, K, D = 2, 300, 6, 2, 40
draw = torch.Generator().manual_seed(2)
shapes = (B, 1, H, D), (B, S, K, D), (B, S, K, D)
q, k, v = (torch.randn(*shape, generator=draw) for shape in shapes)
formula = decode_attention.traffic(batch=B, entries=S, heads=H, kv_heads=K, head_dim=D,
                                   itemsize=4)
print("formula:", f"{formula['bytes_read']:,} bytes read")
print("the cache itself holds", f"{k.nbytes + v.nbytes:,} bytes")

if backend.current().name == "interpret":
    with bounds.counting() as counted:
        decode_attention(q, k, v, splits=1, impl="triton")
    print("counted:", f"{counted.bytes_read:,} bytes read")

# %% [markdown]
# Nearly all of the traffic is the cache. One token is written, and the whole memory is
# read. That is why this course is about making it small.
#
# ## Exercises
#
# [Exercises 01](../exercises/01__attention.ipynb) let you build what you have read:
# causal attention that also works on a chunk, a cache that appends, a decode loop that
# runs each token once, and the byte count. Two more are optional: the online softmax,
# and two lines of a Triton kernel. About 60 minutes; each check tells you what it
# found.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("01")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="01")

# %% [markdown]
# ## What it costs
#
# The cache trades memory for arithmetic, and gives up nothing: the text is the same.
# The price is all in bytes. They grow with every token, for every conversation that is
# held at the same time, and each of them is read for each new token.
#
# | | without cache | with cache |
# |---|---|---|
# | tokens run to write n more | about n²/2 | n |
# | bytes kept per token | 0 | 389,120 (V1) |
# | bytes read per new token | the weights | the weights and the whole cache |
#
# Where does the 95 in that number come from, and why can layers not share one copy?
# That is chapter 02.
#
# ## Sources
#
# - Attention and its scaling: Vaswani et al. 2017, [arXiv
#   1706.03762](https://arxiv.org/abs/1706.03762), section 3.2.
# - RoPE: Su et al. 2021, [arXiv 2104.09864](https://arxiv.org/abs/2104.09864).
# - Online softmax: Milakov and Gimelshein 2018, [arXiv
#   1805.02867](https://arxiv.org/abs/1805.02867); FlashAttention: Dao et al. 2022,
#   [arXiv 2205.14135](https://arxiv.org/abs/2205.14135).
# - DeepSeek LLM 67B: [arXiv 2401.02954](https://arxiv.org/abs/2401.02954) and its
#   released configuration (95 layers, 8 kv heads, head dim 128); 389,120 bytes per
#   token: status R.
#
# Next: [02 · Layers](02__layers.ipynb): one such memory in every layer.
