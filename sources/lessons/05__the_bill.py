# %% [markdown]
# # 05 · The bill
#
# *60 minutes.* You know what one token costs ([chapter 01](01__attention.ipynb)), and
# what a model weighs ([chapter 04](04__ffn_and_experts.ipynb)). Now multiply. A model
# that writes for many people at once holds one cache for each of them, beside its
# weights, on cards of a fixed size. This chapter adds it up: what fits, how fast it can
# write, what is lost between the pieces, and where such sums go wrong. The later
# chapters bring its numbers down.
#
# **Objectives.** After this chapter you can
#
# - say what sharing keys and values between heads saves, and what it cost in a
#   measurement,
# - work out how many requests fit on a card,
# - say what writing a token waits for, and why a batch helps weights but not caches,
# - put a cache into pages, find a token in them, and count what is lost,
# - read the bytes off a `config.json`, and name three fields that simple sums overlook,
# - derive the number of this chapter:
#
# > **requests = (cards × memory − weights) / (bytes per token × context)**
# >
# > for V1, with its **389,120** bytes per token

# %%
import inspect

import torch
from grading import predict
from tinymodels import checkpoints, device, ledger, tokenizer
from tinymodels.published import PUBLISHED
from tinymodels.widgets import plot

v1 = PUBLISHED["deepseek-67b"].config
weights = ledger.weight_bytes(v1)

# %% [markdown]
# ## Copies times length
#
# Here is one text in DeepSeek-V1 67B, beside the weights of the same model. Change
# `context` and run the cell again. Try 100,000 and a million.

# %%
context = 4096

cache = ledger.rate(v1) * context
print("weights ", plot.bytes_text(weights))
print("cache   ", plot.bytes_text(cache), f"for {context:,} tokens")
print(f"the cache is {cache / weights:.1%} of the weights")

# %% [markdown]
# (V1 was made for 4,096 tokens. What it *would* hold beyond that is arithmetic, and the
# reason why later models look different.)
#
# **Before you run the next cell:** at how many tokens does one text's cache weigh as
# much as the whole model of 67 billion parameters?

# %% tags=["predict"]
guess = ...
predict("05-a", guess)

# %%
predict("05-a", guess, answer=round(weights / ledger.rate(v1)), unit="tokens")

# %%
contexts = [2**power for power in range(10, 21)]
fig, ax = plot.figure(6.8, 2.9)
for name, label in (("deepseek-67b", "V1"), ("deepseek-v3", "V3"),
                    ("deepseek-v4.1-flash", "V4.1-Flash")):
    ax.loglog(contexts, [ledger.exact(name, n)["total"] for n in contexts], label=label)
ax.axhline(weights, color="black", linewidth=1)
ax.text(contexts[0], weights * 1.2, "V1's weights, 135 GB")
ax.axhline(80e9, color="black", linewidth=1, linestyle=":")
ax.text(contexts[0], 80e9 / 2.6, "a card of 80 GB (dotted)")
ax.set_xticks([1024, 4096, 16384, 65536, 262144, 1048576],
              ["1K", "4K", "16K", "64K", "256K", "1M"])
ax.set_yticks([1e6, 1e8, 1e10, 1e12], ["1 MB", "100 MB", "10 GB", "1 TB"])
ax.set(xlabel="tokens of context", title="one text's cache")
ax.legend(loc="lower right")
million = ledger.rate(v1) * 1_000_000
plot.show(fig, alt=f"Cache against context. V1 reaches {plot.bytes_short(million)} at "
          "a million tokens, beyond its weights and four cards; V3 and V4.1-Flash stay "
          "below.")
print("a million tokens at V1's rate:", plot.bytes_text(million))

# %% [markdown]
# 95 layers × 4,096 bytes × 1,000,000. One reader with one long text needs three times
# the memory of the model itself. That is the bill this course brings down.
#
# ## Sharing between heads
#
# V1 already saves. Its 64 query heads do not each have a key and a value of their own:
# eight of them share one pair. The oldest form is **MHA** (multi-head attention): every
# query head has its own pair. **MQA** (multi-query attention) goes to the other end:
# one pair for all. **GQA** (grouped-query attention) lies between.
#
# In the maths nothing changes but an index: query head h reads kv head k = h // (H /
# K). The plain way to compute it is to repeat each key until there is one for every
# query head.

# %%
def repeated(query_BTHD, key_BSKD, value_BSKD):
    """Attention of the newest T tokens, with keys and values copied for each head."""
    shared = query_BTHD.shape[2] // key_BSKD.shape[2]
    key_BSHD = key_BSKD.repeat_interleave(shared, dim=2)
    value_BSHD = value_BSKD.repeat_interleave(shared, dim=2)
    score_BHTS = torch.einsum("bthd,bshd->bhts", query_BTHD, key_BSHD)
    T, S = score_BHTS.shape[-2:]
    seen_TS = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    score_BHTS = score_BHTS.masked_fill(~seen_TS, -torch.inf)
    weight_BHTS = (score_BHTS / query_BTHD.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bhts,bshd->bthd", weight_BHTS, value_BSHD), key_BSHD.nbytes

# %%
from kernels import decode_attention

draw = torch.Generator().manual_seed(0)
query = torch.randn(1, 1, 64, 128, generator=draw)
for kv_heads, name in ((64, "MHA"), (8, "GQA"), (1, "MQA")):
    key, value = torch.randn(2, 1, 200, kv_heads, 128, generator=draw)
    output, copied = repeated(query, key, value)
    same = torch.allclose(output, decode_attention(query, key, value), atol=1e-5)
    print(f"{name}: kept {2 * key.nbytes:10,} bytes, repeated {2 * copied:10,} bytes;",
          "same as the kernel:", same)

# %% [markdown]
# The repeated keys are as large as MHA's. Whoever computes like this has the small
# cache and the large traffic. The kernel never makes them: it lets the eight query
# heads of a group come to the key. You write that in exercise 05.1.
#
# **Before you run the next cell:** how many bytes a token would V1 take if each of its
# 64 query heads had its own keys and values?

# %% tags=["predict"]
guess = ...
predict("05-b", guess)

# %%
from dataclasses import replace

from tinymodels.cache import allocate


def with_kv_heads(config, kv_heads):
    layers = (replace(layer, attention=replace(layer.attention, kv_heads=kv_heads))
              for layer in config.layers)
    return config.with_(layers=tuple(layers))


for kv_heads, name in ((64, "MHA"), (8, "GQA, as released"), (1, "MQA")):
    config = with_kv_heads(v1, kv_heads)
    held = allocate(config, tokens=10).bytes()["global"] / 10
    print(f"V1 with {kv_heads:2} kv heads: {ledger.rate(config):9,} bytes a token by"
          f" formula, {held:11,.0f} measured  ({name})")
predict("05-b", guess, answer=ledger.rate(with_kv_heads(v1, 64)), unit="bytes")

# %% [markdown]
# Why not always MQA, then? Heads that share keys cannot look for different things with
# them; they can only ask different questions of the same cards. Does that hurt? Three
# tiny models were trained for this chapter, with 4, 2 and 1 kv heads for their 4 query
# heads. What the shared ones saved in weights they got back as a wider FFN, so all
# three are equally large. Each read the same recall texts in the same order, with three
# different seeds. (`python -m tinymodels.shared_heads` does it again.)

# %%
from tinymodels import shared_heads

trained = shared_heads.results()
names = {4: "MHA", 2: "GQA", 1: "MQA"}
by_heads = {k: [run for run in trained["runs"] if run["kv_heads"] == k] for k in names}
for k, runs in by_heads.items():
    losses = ", ".join(f"{run['loss']:.3f}" for run in runs)
    right = ", ".join(f"{run['right']['32']:.0%}" for run in runs)
    print(f"{names[k]}: {runs[0]['bytes_per_token']:5,} bytes a token,"
          f" {runs[0]['parameters']:,} parameters, loss {losses};"
          f" of 32 pairs remembered {right}")

# %%
fig, axes = plot.figure(8.4, 2.8, columns=2)
every = trained["every"]
steps = range(every, trained["steps"] + 1, every)
for (k, runs), colour in zip(by_heads.items(), plot.PALETTE):
    for seed, run in enumerate(runs):
        axes[0].plot(steps, run["curve"], color=colour, linewidth=1.2,
                     label=None if seed else names[k])
    axes[1].plot([runs[0]["bytes_per_token"]] * len(runs),
                 [run["loss"] for run in runs], "o", color=colour, label=names[k])
axes[0].set(xlabel="step", title="loss while training, a line for each seed")
axes[1].set(xlabel="bytes a token", title="loss on texts they have not seen",
            yscale="log", xlim=(0, None), ylim=(1e-4, 1))
axes[1].set_xticks([256, 512, 1024], ["256", "512", "1,024"])
for ax in axes:
    ax.legend()
plot.show(fig, alt="Left: loss of all nine runs falls to near 0 while training. Right: "
          "loss against bytes a token; the dots of MQA, GQA and MHA overlap.")

# %% [markdown]
# Look at the left first: with one kv head the lookup is found a little later, in all
# three seeds. (The bumps at 500 and 750 are where the texts become longer.) Then at the
# right: in the end no price shows. All nine models remember, and the dots of the three
# forms overlap. Which seed it was matters more than how many heads share. (Tests hold
# us to both sentences.)
#
# Two things to take from this. Sharing is cheap for what these texts ask: one kind of
# lookup, for which one key a token is enough. And a tiny model cannot tell what a large
# one would lose. The V2 report did it at size (appendix D.1, table 8, status C): three
# models of about 7 billion parameters, trained on the same 1.33 trillion tokens. On
# MMLU, a broad exam, MQA got 37.9, GQA with 8 groups 41.2, MHA 45.2. There the price is
# plain, and it is why V2 looked for something else (chapter 06).
#
# ## What fits
#
# A card holds the weights first. What is left is for caches:
#
# > requests = (cards × memory − weights) / (bytes per token × context)
#
# rounded down. Two common cards: the H100 with 80 GB, the H200 with 141 GB. (GB are
# 1,000,000,000 bytes here. Real servers also need room for intermediate results; a
# tenth is often set aside. We leave that out and say so.) V1's 135 GB of weights need
# at least two H100s. Take eight of them, the usual number in one machine.
#
# **Before you run the next cell:** how many requests of 4,096 tokens each can eight
# H100s hold beside V1?

# %% tags=["predict"]
guess = ...
predict("05-c", guess)

# %%
free = 8 * ledger.gpu("H100").memory - weights
print(f"8 x 80 GB - {plot.bytes_short(weights)} = {plot.bytes_short(free)} for caches;"
      f" one takes {plot.bytes_short(ledger.rate(v1) * 4096)}")
predict("05-c", guess, answer=free // (ledger.rate(v1) * 4096), unit="requests")

# %% [markdown]
# Now for four models, on eight cards, at three lengths. Weights are counted at two
# bytes a number for V1 and V2, which were released like that, and at one byte for V3,
# released in 8 bits, and for V4.1 (assumed; its Engram table of 196 billion numbers is
# left out, and with it the weights would not fit on eight H100s).

# %%
K, M = 1024, 1024 * 1024


def fits(name, card, context, bytes_each=2, cards=8):
    held = ledger.room(name, card, context, bytes_each * ledger.parameters(name), cards)
    if held.weight_bytes > cards * ledger.gpu(card).memory:
        return "weights do not fit"
    return f"{held.sequences:,}"


print(f"{'requests at once':34}{'4K':>10}{'128K':>10}{'1M':>10}")
for name, size in (("deepseek-67b", 2), ("deepseek-v2", 2), ("deepseek-v3", 1),
                   ("deepseek-v4.1-flash", 1)):
    for card in ("H100", "H200"):
        columns = [fits(name, card, n, size) for n in (4 * K, 128 * K, M)]
        if not columns[0][0].isdigit():
            columns = [columns[0], "", ""]
        print(f"{name:20} 8 x {card:9}", "".join(f"{text:>10}" for text in columns))

# %% [markdown]
# Look at V3 on H200s. Its weights take 671 GB, five times V1's. Yet two and a half
# times as many requests fit beside them. On eight H100s it does not fit at all. The
# weights decide *whether*, the cache decides *how many*.
#
# ## What a written token waits for
#
# A card does two things: it fetches bytes from its memory, and it computes. An H100
# fetches 3.35 TB a second and does 989 trillion operations (FLOPs) a second, says its
# data sheet. Divide: 295 operations in the time of one byte. Work that needs fewer
# operations a byte than that waits for memory. This is its **roofline**.

# %%
from tinymodels.roofline import SPEEDS

for name, speed in SPEEDS.items():
    print(f"{name:9} {speed.bandwidth / 1e12:5.2f} TB/s",
          f"{speed.flops / 1e12:6,.0f} TFLOP/s {speed.ridge:5.0f} FLOPs a byte")

# %% [markdown]
# Now the work. To write one token, every weight is fetched once and used for two
# operations, a product and a sum. At two bytes a weight that is *one* operation a byte.
# The cache: each number of a key is met by the 8 query heads of its group, two
# operations each. At two bytes a number that is *eight* a byte; with MHA it would be
# one. All far from 295.
#
# Let B requests write at the same time. The weights are fetched once for all of them,
# and used B times. But each request has its own cache. Nobody else can use it.

# %%
from tinymodels import roofline

attention = dict(heads=64, head_dim=128, entries=4096)
speed = SPEEDS["H100"]
work = {f"weights, batch {b}": (2 * b * 1e9, 2e9) for b in (1, 16, 256)}
for kv_heads, name in ((64, "MHA"), (8, "GQA"), (1, "MQA")):
    counted = decode_attention.traffic(kv_heads=kv_heads, **attention)
    work[f"cache, {name}, any batch"] = counted["flops"], counted["bytes_read"]

for name, (flops, moved) in work.items():
    reached = min(flops / moved * speed.bandwidth, speed.flops)
    print(f"{name:24} {flops / moved:6.1f} FLOPs a byte: at most"
          f" {reached / speed.flops:6.1%} of what an H100 could compute")

# %%
fig, ax = plot.figure(6.8, 3.0)
x = torch.logspace(-0.5, 3.2, 100)
ax.loglog(x, (x * speed.bandwidth).clamp(max=speed.flops) / 1e12, color="black")
for (name, (flops, moved)), colour in zip(work.items(), plot.PALETTE):
    each = flops / moved
    reached = min(each * speed.bandwidth, speed.flops)
    marker, size = ("s", 7) if "cache" in name else ("o", 11)
    ax.plot(each, reached / 1e12, marker, color=colour, markersize=size, label=name)
ax.set(xlabel="FLOPs for each byte fetched", ylabel="TFLOP/s",
       title="the roofline of an H100")
ax.legend(loc="lower right", fontsize=8)
plot.show(fig, alt="A roof that rises to 989 TFLOP/s at 295 FLOPs a byte. Weights "
          "climb it with the batch; caches stand at 1 for MHA, 8 for GQA, near 64 for "
          "MQA, whatever the batch.")

# %% [markdown]
# So sharing heads helps twice: fewer bytes to keep, and more use of each byte fetched.
#
# Per written token the weights become cheaper with the batch, and the cache does not.
# Take V1 with 4,096 tokens of context for each request.
#
# **Before you run the next cell:** 64 requests write together. Of all bytes that are
# fetched, how many percent are caches?

# %% tags=["predict"]
guess = ...
predict("05-d", guess)

# %%
batches = [2**power for power in range(0, 11)]
per_token = [weights / b for b in batches]
fig, ax = plot.figure(6.8, 2.8)
ax.loglog(batches, per_token, "o-", label="weights")
for n, style in ((4 * K, "-"), (128 * K, "--")):
    read = roofline.cache_read(v1, n)
    ax.loglog(batches, [read] * len(batches), style, color=plot.ORANGE,
              label=f"cache, {n // K}K tokens")
ax.set_yticks([1e8, 1e9, 1e10, 1e11], ["100 MB", "1 GB", "10 GB", "100 GB"])
ax.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1,024"])
ax.set(xlabel="requests that write together",
       title="V1: bytes fetched for one written token")
ax.legend()
plot.show(fig, alt="The weights' share of one token falls with the batch from 135 GB; "
          "the cache stays at 1.59 GB for 4K tokens and 51 GB for 128K.")

caches = 64 * roofline.cache_read(v1, 4096)
predict("05-d", guess, answer=round(100 * caches / (caches + weights)), unit="%")

# %% [markdown]
# With more requests the caches take over, and then a larger batch gains nothing more.
# And there is the other limit: the batch must *fit*. In seconds, on eight H100s, as a
# floor (nothing but fetching and computing):

# %%
print("V1 on 8 x H100      batch   tokens/s in all   for each   most of the time")
for n in (4 * K, 32 * K):
    most = ledger.room(v1, "H100", n, weights, cards=8).sequences
    for batch in (1, 8, most):
        step = roofline.decode(v1, n, batch, "H100", cards=8)
        print(f"{n // K:3}K of context {batch:10} {step.tokens_a_second:17,.0f}"
              f" {1 / step.seconds:10.0f}   {step.bound_by}")

# %% [markdown]
# A smaller cache lets more requests in, and each of them is read faster. It pays twice.
#
# Reading a *prompt* is another matter. All its tokens are there at once, so a weight
# that was fetched serves all of them, and a key serves many queries. The kernel for it
# (`kernels/flash_attention.py`) takes blocks of queries and walks over the keys. Here
# is one layer of V1, with each byte fetched once and the kernel's own count of FLOPs.
# Below 295 FLOPs a byte an H100 waits for memory.

# %%
from kernels import flash_attention

sizes = dict(entries=4096, heads=64, kv_heads=8, head_dim=128)
for tokens in (1, 16, 256, 4096):
    flops = flash_attention.traffic(tokens=tokens, **sizes)["flops"]
    # keys and values, queries and outputs
    moved = 2 * (2 * 4096 * 8 * 128 + 2 * tokens * 64 * 128)
    print(f"{tokens:5} new tokens: weights {tokens:5} FLOPs a byte, attention"
          f" {flops / moved:7.1f}")

# %% [markdown]
# (A real kernel asks for a key again with each block of queries. Most of that comes
# from a small fast memory on the chip.)
#
# Prefill waits for arithmetic, decode for memory. This is why they are often run on
# different machines, and why prices differ for tokens read and tokens written.
#
# ## Pages
#
# The sum above assumed that memory can be filled to the last byte. But requests come
# and go, and nobody knows how long an answer gets. The simple way reserves the longest
# that is allowed, in one piece. We count what that wastes, on a trace of 1,500 requests
# with prompts and answers of very different lengths, at most 2,048 tokens together.
# Memory has room for 16,384 tokens.

# %%
from tinymodels import paging

requests = paging.trace(1500)
fig, ax = plot.figure(6.8, 2.0)
ax.hist([r.total for r in requests], bins=64)
ax.set(xlabel="tokens of a request, prompt and answer", title="1,500 requests")
middle = sorted(r.total for r in requests)[750]
plot.show(fig, alt=f"Lengths of 1,500 requests: half of them under {middle} tokens, a "
          "few near 2,048.")

# %% [markdown]
# The cure is old; operating systems use it for programs. Cut the memory into **pages**
# of 16 tokens. A request takes one page more whenever its last is full, wherever one is
# free. A table keeps the order. Here is all there is to it:

# %%
print(inspect.getsource(paging.Pages.grow))
print(inspect.getsource(paging.Pages.leave))

# %%
ROWS = 16_384
memories = {
    "reserve 2,048": paging.Contiguous(ROWS, lambda r: 2048),
    "one piece, length known": paging.Contiguous(ROWS, lambda r: r.total),
    "pages of 256": paging.Pages(ROWS, 256),
    "pages of 64": paging.Pages(ROWS, 64),
    "pages of 16": paging.Pages(ROWS, 16),
    "pages of 1": paging.Pages(ROWS, 1),
}
used = {name: paging.serve(m, requests, steps=800) for name, m in memories.items()}
for name, u in used.items():
    print(f"{name:24} {u.requests:5.1f} requests at once, {u.filled:4.0%} filled,"
          f" {u.sent_back:4} sent back")

# %%
fig, ax = plot.figure(8.0, 2.8)
left = [0.0] * len(used)
for part, colour in (("filled", plot.BLUE), ("inside", plot.ORANGE),
                     ("between", plot.LIGHT["track"])):
    wide = [getattr(u, part) for u in used.values()]
    label = {"filled": "holds tokens", "inside": "given away, empty",
             "between": "free, but fits nobody"}[part]
    ax.barh(range(len(used)), wide, left=left, color=colour, label=label)
    left = [a + b for a, b in zip(left, wide)]
for row, u in enumerate(used.values()):
    ax.text(1.01, row, f"{u.requests:.1f} requests at once", va="center")
ax.set_yticks(range(len(used)), list(used))
ax.set_xticks([0, 0.5, 1], ["0", "50 %", "100 % of the memory"])
ax.set(xlim=(0, 1.3))
ax.grid(axis="y", visible=False)
ax.invert_yaxis()
ax.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.4, -0.12))
words = "; ".join(f"{name}: {u.filled:.0%} filled, {u.requests:.1f} requests"
                  for name, u in used.items())
plot.show(fig, alt=words)

# %% [markdown]
# Reserving for the longest fills a quarter of the memory (a fifth, on other traces of
# this kind). Pages of 16 fill nearly all of it and serve four times as many requests
# *on the same card*. Even knowing every length in advance would not help as much: in
# one piece, whoever leaves makes a hole that the next may not fit, and what an answer
# will need later lies empty until then.
#
# Smaller pages waste less. They also need longer tables, and a lookup for each. At 16
# tokens the empty rows at the ends are already down to a hundredth or two.
#
# (It has a price: when no page is free, somebody must go. The newest request is sent
# back to the queue and begins again; with pages of 16 that happened about once every
# six steps. Real servers keep a reserve, or move pages away.)
#
# ## Through the table
#
# Two texts grow at the same time and take pages in turn. Keys and values come from the
# trained model.

# %%
from kernels import backend
from tinymodels.step import Step

model = checkpoints.load("tiny_v1-text-seed0").to(device.pick()).requires_grad_(False)
texts = ["Ada has the key. Ben has the lamp. Ada lives in",
         "Tom has the cup. Mira is a"]


def kept_of(text):
    """Queries, keys and values of layer 1, a row a token."""
    tokens_BT = torch.tensor([tokenizer.encode(text)], device=model.device)
    x_BTX, _ = model.layers[0](model.embed(tokens_BT), Step(tokens_BT))
    layer = model.layers[1]
    query, rows = layer.attention.project(layer.attention_norm(x_BTX), Step(tokens_BT))
    return query[0], *(rows[n][0].unflatten(-1, (2, 16)) for n in ("key", "value"))


kept = [kept_of(text) for text in texts]
lengths = [len(query) for query, _, _ in kept]
print("tokens:", lengths)

# %%
P = 3
memory = paging.Pages(rows=30, page=P)
people = [paging.Request(b, 1, n) for b, n in enumerate(lengths)]
for request in people:
    memory.take(request, 1)
for length in range(2, max(lengths) + 1):
    for request in people:
        if length <= request.total:
            memory.grow(request, length)
for request in people:
    print(f"text {request.number}: {request.total} tokens, pages",
          memory.tables[request.number])

# %% [markdown]
# The row of token s lies at place s % P of page table[s // P]. We put every key and value
# where the table says, and leave the rest of the pool full of NaN, "not a number": if
# anyone reads a row that is not theirs, the answer is spoiled and we see it.

# %%
pool_key, pool_value = torch.full((2, 10, P, 2, 16), torch.nan, device=model.device)
longest = max(len(table) for table in memory.tables.values())
table_BJ = torch.full((2, longest), -1, dtype=torch.int32, device=model.device)
for b, (_, key, value) in enumerate(kept):
    pages = memory.tables[b]
    table_BJ[b, : len(pages)] = torch.tensor(pages)
    for s in range(lengths[b]):
        pool_key[pages[s // P], s % P] = key[s]
        pool_value[pages[s // P], s % P] = value[s]

newest = torch.stack([query[-1:] for query, _, _ in kept])
lengths_B = torch.tensor(lengths, device=model.device)
impl = "triton" if backend.current().runs_triton else "torch"
paged = decode_attention(newest, pool_key, pool_value, lengths=lengths_B,
                         block_table=table_BJ, impl=impl)
for b, (query, key, value) in enumerate(kept):
    alone = decode_attention(query[None, -1:], key[None], value[None], impl=impl)
    print(f"text {b}: through its pages as in one piece:",
          torch.allclose(paged[b], alone[0], atol=1e-5))

# %% [markdown]
# That is the kernel of this chapter: decode, with a page's number fetched before its
# rows. What does the table cost? Counted by the interpreter, for one layer of a larger
# shape, with the same rows in one piece and in pages of 16.

# %%
from kernels import bounds
from kernels.pages import in_pages

S = 480
q = torch.randn(2, 1, 6, 40, generator=draw)
k, v = torch.randn(2, 2, S, 2, 40, generator=draw)
(pages_k, table), (pages_v, _) = in_pages(k, 16), in_pages(v, 16)
calls = {"in one piece": dict(key=k, value=v, table=None),
         "pages of 16": dict(key=pages_k, value=pages_v, table=table)}

# %%
for name, c in calls.items():
    size = 0 if c["table"] is None else 4
    formula = decode_attention.traffic(
        batch=2, entries=S, heads=6, kv_heads=2, head_dim=40, itemsize=4,
        table_itemsize=size)["bytes_read"]
    told = f"{formula:,} bytes read by formula"
    if backend.current().name == "interpret":
        with bounds.counting() as counted:
            decode_attention(q, c["key"], c["value"], block_table=c["table"], splits=1,
                             impl="triton")
        told += f", {counted.bytes_read:,} counted"
    print(f"{name:13}", told)

# %% [markdown]
# A little over one percent. You write the lookup in exercise 05.4.
#
# ## The whole bill
#
# Model, context, requests, number formats, cards: move them and see what fits, and what
# writing a token waits for.

# %%
from tinymodels.widgets.bill import Bill

Bill("DeepSeek 67B (V1)", card="H100", cards=8)

# %% [markdown]
# Things to find: the context at which V1's batch of 16 stops fitting. Where "reading
# the weights" turns into "reading the caches". A model whose bill does not move with
# the context at all. What a cache in 8 bits changes, and what it does not.
#
# Your own model: `Bill(mine="folder/config.json", parameters=8.03e9)` reads any of
# more than a hundred families. (How many parameters a model has, its config.json does not
# say.)
#
# ## Memory that stops growing
#
# Some models keep their cache small by forgetting. In a layer with a **sliding window**
# a token sees the last W tokens and no others; older rows are dropped. In a **hybrid**
# model most layers keep no rows at all but a *state* of fixed size, which each token
# changes. Both are bounded. A few full layers in between are not.

# %%
from tinymodels.released import RELEASED

bounded = ("Llama 3.1 8B", "Gemma 3 27B", "gpt-oss 20B", "Mistral 7B v0.1",
           "Qwen3-Next 80B", "Jamba 1.5 Mini")
print(f"{'at 128K':16} {'rows':>10}{'windows':>10}{'states':>10}   bytes for one more")
for name in bounded:
    config = RELEASED[name].config(name)
    parts = ledger.exact(config, 131_072)
    columns = parts["global"], parts["window"], ledger.constant(config)
    print(f"{name:16}", "".join(f"{plot.bytes_short(x):>10}" for x in columns),
          f"{ledger.rate(config):12,}")

# %%
fig, ax = plot.figure(7.4, 3.2)
for name in bounded:
    config = RELEASED[name].config(name)
    held = [ledger.exact(config, n)["total"] for n in contexts]
    ax.loglog(contexts, held, "--" if "Next" in name else "-", label=name)
ax.set_xticks([1024, 16384, 131072, 1048576], ["1K", "16K", "128K", "1M"])
ax.set_yticks([1e7, 1e8, 1e9, 1e10, 1e11],
              ["10 MB", "100 MB", "1 GB", "10 GB", "100 GB"])
ax.set(xlabel="tokens of context", title="one text's cache, in 16 bits a number")
ax.legend(fontsize=8)
plot.show(fig, alt="Llama grows in a straight line. Mistral stops at 537 MB once its "
          "window of 4,096 is full. The others grow slower than Llama, from their few "
          "full layers.")

# %% [markdown]
# Mistral's first model has nothing but windows: its bill never exceeds 537 MB. The
# others keep some full layers, because what no layer keeps cannot be looked up. Those
# few decide the slope.
#
# ## Where simple sums go wrong
#
# Most calculators on the web do this:
#
# > 2 × layers × kv heads × (hidden size / heads) × 2 bytes × context
#
# It is right for Llama. Let us see for whom else, at 128K. ("52 of 62 windows": so many
# layers have one. "States": layers that keep no rows.)

# %%
def naive(values, context):
    c = values.get("text_config", values)
    kv_heads = c.get("num_key_value_heads", c["num_attention_heads"])
    head_dim = c["hidden_size"] / c["num_attention_heads"]
    return 2 * c["num_hidden_layers"] * kv_heads * head_dim * 2 * context


V3_FILE = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
           "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
           "qk_rope_head_dim": 64}
why = {
    "Gemma 3 27B": "head_dim 128, not 168; 52 of 62 windows",
    "gpt-oss 20B": "head_dim 64, not 45; 12 of 24 windows",
    "Mistral 7B v0.1": "32 of 32 windows",
    "Gemma 4 E2B": "20 of 35 layers share; 2 head dims; windows",
    "Qwen3-Next 80B": "head_dim 256, not 128; 36 of 48 states",
    "Jamba 1.5 Mini": "28 of 32 states",
}

# %%
n = 131_072
for name, released in RELEASED.items():
    right = ledger.exact(released.config(name), n)["total"]
    times = naive(released.values, n) / right
    print(f"{name:16} {plot.bytes_short(right):>8}, naive x {times:5.2f} ",
          why.get(name, ""))
right = ledger.exact("deepseek-v3", n)["total"]
print(f"{'DeepSeek-V3':16} {plot.bytes_short(right):>8}, naive x"
      f" {naive(V3_FILE, n) / right:5.2f}  one latent for all heads (chapter 06)")

# %% [markdown]
# Three questions catch most of it. Is `head_dim` stated? Then dividing is wrong. Do all
# layers keep everything? Look for `sliding_window`, `layer_types` and layers that
# share. Is it keys and values that are kept at all? You write a reader that asks them
# in exercise 05.2.
#
# The sums go wrong in a second way: they stop at the cache. Weights in another format,
# pages, a reserve for the engine, batches that fill up at different times. An answer
# should say what it left out. Ours left out: intermediate results, the network between
# cards, and the copies of small weights that every card keeps.
#
# ## Exercises
#
# [Exercises 05](../exercises/05__the_bill.ipynb): grouped heads without copying, the
# bytes of a given config.json, how many requests fit, and the page table lookup. About
# 75 minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("05")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="05")

# %% [markdown]
# ## What it costs
#
# | way to a smaller bill | saves | costs |
# |---|---|---|
# | share heads | H / K times the bytes and fetches | heads that look for different things |
# | a window | all that is older | what is older cannot be looked up |
# | a state instead of rows | everything that grows | looking up at all, in that layer |
# | fewer bits | 2 or 4 times | exactness (chapter 11) |
# | pages | three quarters of the memory, here | a table, and someone to send back |
# | a larger batch | weights' share of each token | room for its caches, and patience |
#
# Sharing heads was the first answer. Taken to its end, one key for all, it has nowhere
# left to go. The next chapter asks another question: must it be keys and values that we
# keep?
#
# ## Sources
#
# - MQA: Shazeer 2019, [arXiv 1911.02150](https://arxiv.org/abs/1911.02150). GQA:
#   Ainslie et al. 2023, [arXiv 2305.13245](https://arxiv.org/abs/2305.13245).
# - Pages: Kwon et al. 2023, PagedAttention, [arXiv
#   2309.06180](https://arxiv.org/abs/2309.06180).
# - The roofline: Williams, Waterman and Patterson 2009, Communications of the ACM
#   52(4).
# - V1: [arXiv 2401.02954](https://arxiv.org/abs/2401.02954). Its rate of 389,120 bytes
#   is read off a published chart (R) and computed from its released shapes (D).
# - Cards: the vendors' data sheets, dense 16-bit products. Other models: the fields of
#   their released configurations (`tinymodels/released.py`).
#
# Next: [06 · MLA](06__mla.ipynb): one small row in place of all heads.
