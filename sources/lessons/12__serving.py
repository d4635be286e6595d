# %% [markdown]
# # 12 · Serving
#
# *75 minutes.* A token of V4.1 leaves 890 bytes ([chapter 11](11__fp4.ipynb)). Who gains
# by that? This chapter puts the memory into service: rows stay between requests, on a
# disk, and whoever comes back with the same text finds them again. You see what is
# kept, what is rebuilt, what a crash may do, and how fewer bytes turn into money.
#
# **Objectives.** After this chapter you can
#
# - say how much of a prompt may be taken from storage, and why it is rounded down,
# - keep far rows as bytes, and bring windows back by running a few tokens again,
# - draw hits against memory, and say what a smaller row does to the curve,
# - make out the bill of a request, and say which of its prices is assumed,
# - replace each loose claim about V4.1 by an exact one.
#
# > **bytes on disk per token = far rows alone**
# >
# > V4.1-Flash: (3 / 2 + 1) × (288 + 68) = **890**, and no window

# %%
import inspect
import tempfile
from pathlib import Path

import torch
from grading import predict
from tinymodels import checkpoints, ledger
from tinymodels.published import get
from tinymodels.serving import chain, day, store
from tinymodels.serving.engine import Engine
from tinymodels.widgets import plot

# %% [markdown]
# ## The same text, again and again
#
# An agent is a model in a loop: it reads files, calls a tool, reads what the tool says,
# and goes on. Each turn sends **everything** again: the instructions, the files, all
# earlier turns, and a few new lines. Below is a made-up day of eight such agents. Change
# `agents`, and look how much of the day is new.

# %%
agents = 8

trace = day.agents_day(agents=agents)
sent = sum(r.input_length for r in trace)
different = {name for r in trace for name in r.hash_ids[: r.input_length // day.BLOCK]}
print(f"{len(trace):,} requests, {sent:,} tokens sent,")
print(f"but only {len(different) * day.BLOCK:,} in pieces of text that differ: "
      f"{len(different) * day.BLOCK / sent:.1%}")

# %% [markdown]
# Over 95 % has been read before. Whoever keeps the rows of all that need not compute
# them again. This is the **prefix cache**: rows kept *between* requests. Until now a
# cache lived as long as one answer.
#
# ## How does one know that it is the same?
#
# A row depends on its token and on every token before it. So a row may be used again
# only if the *whole* text up to there is the same. The text is cut into pieces, and each
# piece is named by a hash of the name before and of its own tokens. Two equal names
# then mean two equal texts, from the first token on.

# %%
print(inspect.getsource(chain.names))

one, other = "the lamp is blue", "The lamp is blue"
for text in (one, other):
    tokens = list(text.encode())
    print(text, "->", [name[:6] for name in chain.names(tokens, 4, root="tiny")])

# %% [markdown]
# One capital letter, and all four names differ, although three of the pieces are equal.
#
# **Why multiples.** Groups are kept whole (chapter 08): with V4 a row stands for 4 or
# 128 tokens, with V4.1 for 2 or 1. A prefix that ends inside a group would end in half
# a row. So it ends on a multiple of all ratios, their least common multiple (lcm), and
# of the piece. And one token at least is always run: somebody has to say what comes
# next.

# %%
print(inspect.getsource(chain.usable))

for name in ("deepseek-v3", "deepseek-v4-flash", "deepseek-v4.1-flash"):
    step = chain.step_of(get(name).config, block=48)
    print(f"{name:20} pieces of 48 tokens become {step}")

# %% [markdown]
# **Before you run the next cell:** V4-Flash, pieces of 48 tokens as above. A prompt of
# 2,000 tokens, of which the first 1,200 are stored. How many need not be read again?

# %% tags=["predict"]
guess = ...
predict("12-a", guess)

# %%
answer = chain.usable(2000, 1200, chain.step_of(get("deepseek-v4-flash").config, 48))
print("usable:", answer, "of 1200")
predict("12-a", guess, answer=answer, unit="tokens")

# %% [markdown]
# ## On the disk, bit for bit
#
# Now a real engine around a tiny model: trained V4.1, eight layers, packed FP4 rows. It
# writes its far rows as raw bytes, one file a piece. (Each file names the model, its
# weights and the format of its rows. Rows of another model are worth nothing.)

# %%
model = checkpoints.load("tiny_v4_1-recall-seed0").requires_grad_(False)
folder = Path(tempfile.mkdtemp())
now = [0.0]  # a clock of our own, in seconds
engine = Engine(model, folder, budget=10**6, block=16, ttl=300, clock=lambda: now[0])

draw = torch.Generator().manual_seed(3)
text = torch.randint(256, (200,), generator=draw).tolist()
first = engine.serve(text, new=4)
print(f"first: {first.hit} found, {first.miss} read; answer {first.tokens}")
print(f"{len(engine.store.lru)} files, {engine.store.lru.used:,} bytes")

# %%
name = chain.names(text, engine.step, engine.root)[3]
rows = engine.store.get(name)
print({key: list(value.shape) for key, value in rows.items()})
kept = sum(value.nbytes for value in rows.values())
print(f"{kept} bytes for {engine.step} tokens: {kept / engine.step} a token; "
      f"ledger: {ledger.rate(model.config)}")

# %% [markdown]
# Two layers own rows, the other six borrow (chapter 10), so four blocks of bytes are all
# there is. The file's head (names, checksum) comes on top; at real size it is nothing.
#
# We close the engine, start a new one on the same folder, and ask again. Nothing is left
# in memory now.

# %%
engine.close()
engine = Engine(model, folder, budget=10**6, block=16, ttl=300, clock=lambda: now[0])
again = engine.store.get(name)
print("bit for bit the same:", all((again[k] == rows[k]).all() for k in rows))

second = engine.serve(text, new=4)
print(f"second: {second.hit} found, {second.miss} read, {second.replayed} replayed")

# %% [markdown]
# ## The window is not there
#
# `replayed`: what is that? Beside its far rows every layer of V4.1 keeps a **window**,
# the newest rows in full detail. How large would windows be on the disk?
#
# **Before you run the next cell:** a full set of V4.1's real windows (40 layers, 128
# rows of 528 bytes). As many bytes as the far rows of how many tokens?

# %% tags=["predict"]
guess = ...
predict("12-b", guess)

# %%
v4_1 = ledger.exact("deepseek-v4.1-flash", 128)
tokens = v4_1["window"] / ledger.rate("deepseek-v4.1-flash")
print(f"windows: {v4_1['window']:,} bytes = far rows of {tokens:,.0f} tokens")
predict("12-b", guess, answer=round(tokens), unit="tokens")

# %% [markdown]
# So nobody writes them down. They stay in memory for a while: a *time to live*, TTL.
# Whoever comes back sooner goes on at once. For whoever comes later the last W tokens
# of the prefix are run again, for their windows alone (bounded replay, chapter 09). Far
# rows are read and never written in it.

# %%
for seconds in (10, 200, 1000):
    now[0] += seconds
    served = engine.serve(text, new=1)
    print(f"{seconds:5} s later: {served.hit} found, {served.replayed} replayed")

# %% [markdown]
# A replay is bounded, so it is not exact: its first tokens see no window before them.
# How far off is the answer? With windows alive it is the cold answer; after a replay,
# an approximation. In double precision, so that rounding says nothing:

# %%
double = checkpoints.load("tiny_v4_1-recall-seed0").double().requires_grad_(False)
fresh = double.new_cache(1, 200, "float64")
cold_V = double.prefill(torch.tensor([text]), fresh)[0]
clock = [0.0]
proof = Engine(double, tempfile.mkdtemp(), 10**7, storage="float64", ttl=300,
               clock=lambda: clock[0])
proof.serve(text, 1)
for clock[0] in (10.0, 1000.0):
    served = proof.serve(text, 1)
    gap = (served.logits_V - cold_V).abs().max().item()
    size = cold_V.abs().max().item()
    same = int(served.logits_V.argmax()) == int(cold_V.argmax())
    print(f"{served.replayed:2} replayed: same to 1e-10: {gap < 1e-10}, "
          f"largest logit off by {gap / size:.1%}, same token: {same}")

# %% [markdown]
# Without a replay it is the same number for number. (The package's tests compare a
# replay with an uncached pass whose window mask is cut at the replay's start: equal to
# 1e-10.) That is a random text to a tiny model; how good a replay is at real size is
# the report's word, not shown here.
#
# ## A crash in the middle of a write
#
# A disk does not write a file at once. We stop a writer in the middle, where a power cut
# could. Two ways to write. First the careless one: straight to the final name.

# %%
whole = (engine.store.path(name)).read_bytes()
half = whole[: len(whole) * 2 // 3]

careless = engine.store.path(name)
careless.write_bytes(half)  # the power goes here
try:
    engine.store.get(name)
except store.Refused as why:
    print("refused:", str(why)[:10], "...", str(why)[70:84])
served = engine.serve(text, 1)
print(f"then: {served.hit} found, {served.miss} read again and stored")

# %% [markdown]
# It is noticed, as each file is checked before it is used. But the old entry is gone.
# The store does better: it writes under another name, waits for the disk, and then
# *renames*. A rename happens at once or not at all. Only then is the entry put down in
# the database.

# %%
source = inspect.getsource(store.RowStore.put)
print(source[source.index("        half =") :])

# %%
def power_cut(*_):
    raise KeyboardInterrupt("the power goes here")


before = len(engine.store.lru)
right, store.os.replace = store.os.replace, power_cut
try:
    engine.serve(text + text, 1)
except KeyboardInterrupt as cut:
    print(cut, "-> files:", sorted({p.suffix for p in folder.iterdir()}))
store.os.replace = right
engine.close()

engine = Engine(model, folder, budget=10**6, block=16)
print(f"entries before {before}, after the crash {len(engine.store.lru)};",
      "half files:", len(list(folder.glob("*.half"))))

# %% [markdown]
# No entry was lost, and the half file was swept away at the start. The tests kill a
# writing process at a hundred random lines and look each time.
#
# ## Budget, hits, money
#
# Memory is finite, so somebody has to go: whoever was not asked for the longest (least
# recently used, LRU). Send the day through memories of many sizes. A model has its say
# only through the bytes it keeps of a token. (What an answer says is counted as
# read again when it comes back in the next prompt; windows are left out, as they are
# kept for minutes only.)
#
# **Before you run the next cell:** 1 GB for stored prefixes. V3 finds about a quarter of
# the tokens there. How many percent does V4.1 find?

# %% tags=["predict"]
guess = ...
predict("12-c", guess)

# %%
from tinymodels.widgets.agents_day import BUDGETS, MODELS, AgentsDay, record

recorded = record(trace)
AgentsDay(recorded, model="V3", budget=10**9)

# %%
print("memory    " + "".join(f"{name:>12}" for name in MODELS))
for budget in BUDGETS[::2]:
    shares = [recorded.hits(name, budget) / recorded.sent for name in MODELS]
    print(f"{plot.bytes_short(budget):10}" + "".join(f"{s:12.1%}" for s in shares))
share = recorded.hits("V4.1-Flash", 10**9) / recorded.sent
predict("12-c", guess, answer=round(100 * share), unit="percent")

# %% [markdown]
# Move *memory* in the widget, then change the model. All curves have **one shape**: what
# is found depends only on how many tokens are held. A smaller row shifts the curve to
# the left, here by a factor of 79 from V3 to V4.1. So the gain depends on where you
# stand: huge on the slope, nothing where everything fits anyway.

# %%
def needed(name, share):
    """The smallest of the budgets that finds this share, or None."""
    enough = (b for b in BUDGETS if recorded.hits(name, b) >= share * recorded.sent)
    return next(enough, None)


for name in MODELS:
    found = needed(name, 0.9)
    print(f"{name:11} finds 90 % with {plot.bytes_short(found)}")

# %% [markdown]
# **The bill.** A provider charges input that was found (a *hit*), input that was read (a
# *miss*), and output, each for a million tokens. For V4.1-Flash, off-peak, the hit is
# 0.003 dollars and the output 0.6 (status C). Its price of a miss is not known here. We
# **assume** 0.14, which third parties report for V4-Flash; the function insists on being
# told.

# %%
assumed_miss = 0.14  # assumed
for name in MODELS:
    hits = recorded.hits(name, 10**9)
    cost = ledger.bill(hits, recorded.sent - hits, recorded.written, hit_price=0.003,
                       miss_price=assumed_miss, output_price=0.6)
    print(f"{name:11} hits {cost.hit:5.2f} + misses {cost.miss:5.2f} + answers "
          f"{cost.output:5.2f} = {cost.total:5.2f} dollars")

# %% [markdown]
# The same prices for all four: what differs is only what 1 GB can hold. That is the
# economic point of a small row. Misses are what costs, and they are what it saves.
#
# One request, with published prices of two models and misses left out (all of 100,000
# tokens found, 1,000 written):

# %%
published = {"V4.1-Flash, off-peak": (0.003, 0.6), "V4-Pro": (0.022, 1.98)}
for name, (hit, output) in published.items():
    cost = ledger.bill(100_000, 0, 1000, hit_price=hit, miss_price=0,
                       output_price=output)
    print(f"{name:21} {cost.hit:.6f} + {cost.output:.6f} = {cost.total:.6f} dollars")

# %% [markdown]
# **Your own day.** A trace is a file of JSON lines, in the form of Mooncake's published
# traces: time, lengths, and one id for each 512 tokens of the prompt. Put the name of
# yours in.

# %%
own = None  # for example "my_day.jsonl"

if own is None:
    day.save(trace[:2000], folder / "day.jsonl")
    print((folder / "day.jsonl").read_text().splitlines()[0][:100], "...")
mine = day.load(own or folder / "day.jsonl")
for name in ("V3", "V4.1-Flash"):
    found = day.replay(mine, ledger.rate(MODELS[name]), 10**9)
    print(f"{name:11} {found.hit_rate:.1%} found")

# %% [markdown]
# ## On the disk: an eighth
#
# V4 keeps windows on its disk too, once every p tokens, so that a hit need not replay
# (status C; p itself is not published). V4.1 keeps none. How much smaller is its disk?
# That depends on p:
#
# ratio(p) = (3,514.25 + 3,214,336 / p) / 890

# %%
intervals = [128, 256, 512, 892, 1024, 2048, 4096, 8192, 16384]
ratios = [ledger.disk_rate("deepseek-v4-flash", p) / 890 for p in intervals]
fig, ax = plot.figure(6.4, 2.8)
ax.plot(intervals, ratios, "o-")
ax.axhline(8, color="black", linewidth=1)
ax.set(xscale="log", xlabel="p, tokens between two stored windows (assumed)",
       ylim=(0, 34), title="V4-Flash's disk over V4.1's")
ax.set_xticks([128, 892, 4096, 16384], ["128", "892", "4,096", "16,384"])
plot.show(fig, alt="The ratio falls from 32 at p = 128 over 8.0 at p = 892 to 4.8 at"
          " p = 4,096, and towards 3.95.")
for p in (128, 892, 4096):
    far = ledger.rate("deepseek-v4-flash")
    ratio = ledger.disk_rate("deepseek-v4-flash", p)
    print(f"p = {p:5,}: {ratio / 890:4.1f}, windows {1 - far / ratio:.0%} of V4's disk")

# %% [markdown]
# The report says two things: windows are about half of V4's disk, and the total falls to
# an eighth (status C). An eighth comes out at p = 892, and there windows are 51 %, just about half.
# The two fit together. Still, p is *assumed*.
#
# ## Requests in the same memory
#
# On a card a request needs its far rows, its windows and its half-built groups. How many
# of 128,000 tokens fit into 100 GB that are free for caches?

# %%
for name in ("deepseek-67b", "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash",
             "deepseek-v4.1-flash"):
    held = ledger.exact(name, 128_000)["total"]
    print(f"{name:20} {plot.bytes_short(held):>8} a request: {10**11 // held:5,} fit")

# %% [markdown]
# ## What is said loosely, exactly
#
# An article about V4.1 can be right in spirit and wrong by a factor. Each claim, with
# its sum:

# %%
rate, v4, new = ledger.rate, "deepseek-v4-flash", "deepseek-v4.1-flash"
print('"compressed to an eighth": the disk,')
print(f"  {ledger.disk_rate(v4, 892) / 890:.1f} times at an assumed p of 892;",
      f"memory is {rate(v4) / 890:.2f} times smaller")

fp4, fp8, bf16 = 288, 584, 512 * 2
print('"FP4 is a quarter of the bits":')
print(f"  {bf16 / 256:.0f} times less than bf16, scales left out;",
      f"the row went {fp8} -> {fp4}, {fp8 / fp4:.2f} times")

read, written = (ledger.active(new, phase) / 1e9 for phase in ("prefill", "decode"))
before = ledger.active(v4) / 1e9
print('"fewer active parameters than V4-Flash":')
print(f"  reading {read:.1f} < {before:.1f} billion,",
      f"writing {written:.1f} > {before:.1f}")

# %%
print(f'"an order of magnitude cheaper": hits {0.022 / 0.003:.1f} times, output '
      f"{1.98 / 0.6:.1f} times; Flash off-peak against Pro")

shares = [ledger.ffn_share(name) for name in ("deepseek-67b", "deepseek-v4.1-flash")]
print(f'"60-70 % of the parameters are in the FFN": V1 {shares[0]:.0%}, '
      f"V4.1 {shares[1]:.1%}")

v1, v2 = rate("deepseek-67b"), "deepseek-v2"
print(f'"V2\'s cache fell by over 90 %": {1 - rate(v2) / v1:.0%} in bf16, '
      f"{1 - rate(v2, kv_bits=6) / v1:.1%} at 6 bits")

print(f'"concurrency 500 -> 2500": {2500 / 500:.0f} times, a limit that somebody set;')
print(f"  bytes allow {rate(v4) / 890:.2f} times, and against Pro "
      f"{rate('deepseek-v4-pro') / 890:.2f}")

# %% [markdown]
# (Bytes of rows count the far part; the 500 and 2,500 are the article's, status C.)
#
# ## What it costs
#
# | what is saved | what it costs |
# |---|---|
# | reading a prompt again | a disk that is read before the first word |
# | windows on the disk | W tokens run again, and an answer that is close, not equal |
# | memory, by LRU | a text that comes back late is read again |
# | a lost write | another name, two waits for the disk, a rename |
#
# No quality is lost by the disk itself: rows come back bit for bit. What a row holds
# was decided when the model was trained; chapter 13 weighs that.
#
# ## Exercises
#
# [Exercises 12](../exercises/12__serving.ipynb): the longest usable prefix, the window
# rebuilt, an LRU with a TTL, the bill, and the disk. About 85 minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("12")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="12")

# %% [markdown]
# ## Sources
#
# - Prefix cache on disk, windows by replay, an eighth: DeepSeek-V4.1-Flash, [arXiv
#   2609.19969](https://arxiv.org/abs/2609.19969) (status C). The interval p of V4's
#   windows is in no source; it is assumed wherever it stands.
# - Prices and limits: named in an article on V4.1's release (status C); V4-Flash's price
#   of a miss by third parties, April 2026; V4.1's is assumed.
# - The form of a trace: Mooncake, [arXiv 2407.00079](https://arxiv.org/abs/2407.00079).
# - Pieces named by chained hashes are what serving engines such as vLLM do, beside
#   PagedAttention, [arXiv 2309.06180](https://arxiv.org/abs/2309.06180).
