# %% [markdown]
# # 12 · Serving
#
# *75 minutes.* A token of V4.1 leaves 890 bytes ([chapter 11](11__fp4.ipynb)). Who gains
# by that? This chapter puts the memory into service: rows stay between requests, on a
# disk, and whoever comes back with the same text finds them again. You see what is
# kept, what is rebuilt, what a crash may do, and how fewer bytes turn into money. You
# have built every row that is stored here (chapters 06 to 11) and the replay (chapter
# 09); what the whole course has cost in quality is weighed next, in chapter 13.
#
# **Objectives.** After this chapter you can
#
# - say how much of a prompt may be taken from storage, and why it is rounded down,
# - keep far rows as bytes, and bring windows back by running a few tokens again,
# - draw hits against memory, and say what a smaller row does to the curve,
# - work out the bill of a request, and say which of its prices is assumed,
# - check a claim about a cache: which bytes, of what, against what.
#
# > **bytes on disk per token = far rows alone**
# >
# > V4.1-Flash: (3 / 2 + 1) × (288 + 68) = **890**, and no window

# %%
import inspect
import tempfile
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from grading import predict
from tinymodels import ced, checkpoints, data, ledger
from tinymodels.cache import allocate
from tinymodels.dice import Dice
from tinymodels.published import get
from tinymodels.serving import chain, day, store
from tinymodels.serving.engine import Engine
from tinymodels.serving.rows import piece
from tinymodels.widgets import plot

# %% [markdown]
# ## The same text, again and again
#
# An agent is a model in a loop: it reads files, calls a tool, reads what the tool says,
# and goes on. Each turn sends **everything** again: the instructions, the files, all
# earlier turns, and a few new lines. Below is a made-up day of eight such agents. Each
# prompt is cut into pieces of 512 tokens, and each piece has a number of its own, the
# same wherever the same text comes again. Change `agents`, and look how much is new.

# %%
agents = 8

trace = day.agents_day(agents=agents)
sent = sum(r.input_length for r in trace)
different = {name for r in trace for name in r.hash_ids[: r.input_length // day.BLOCK]}
print(f"{len(trace):,} requests, {sent:,} tokens sent,")
print(f"but only {len(different) * day.BLOCK:,} in pieces of text that differ: "
      f"{len(different) * day.BLOCK / sent:.1%}")

# %% [markdown]
# Over 95 % has been read before. If its rows are kept, they need not be computed again.
# This is the **prefix cache**: rows kept *between* requests. Until now a cache lived as
# long as one answer.
#
# ## How does one know that it is the same?
#
# A row depends on its token and on every token before it. So a row may be used again
# only if the *whole* text up to there is the same. Nobody wants to compare whole texts.
# A *hash* is a fingerprint: a short number worked out from bytes, the same for the same
# bytes, and no two texts are known that share one (SHA-256). Each piece is named by the
# hash of the name before it and of its own tokens. Two equal names then mean two equal
# texts, from the first token on.

# %%
print(inspect.getsource(chain.names))

one, other = "the lamp is blue", "The lamp is blue"
for text in (one, other):
    tokens = list(text.encode())
    print(text, "->", [name[:6] for name in chain.names(tokens, 4, root="tiny")])

# %% [markdown]
# One capital letter, and all four names differ, although three of the pieces are equal.
#
# **Only whole groups.** With V4 an entry stands for a group of 4 or 128 tokens, with V4.1
# of 2 or 1 (chapter 08). A prefix that ends inside a group would end in half an entry. So
# it ends on a multiple of all these ratios, their least common multiple (lcm), and of
# the piece (in code: `block` is the piece one wishes for, `step` what becomes of it).
# And one token at least is always run: somebody has to say what comes next.
#
# (From here on *far rows* are all that is kept beyond the windows: rows of single
# tokens, entries of groups, and the indexer's keys.)

# %%
print(inspect.getsource(chain.usable))

for name in ("deepseek-v3", "deepseek-v4-flash", "deepseek-v4.1-flash"):
    step = chain.step_of(get(name).config, block=48)
    print(f"{name:20} pieces of 48 tokens become {step}")

# %% [markdown]
# **Before you run the next cell:** V4-Flash, pieces of 48 tokens as above. A prompt of
# 2,000 tokens, of which the first 1,200 are stored. How many of them need not be read
# again?

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
# writes its far rows as raw bytes, one file a piece, of 16 tokens here. (Each file names
# the model, its weights and the format of its rows. Rows of another model are worth
# nothing.)

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
print(f"{kept} bytes of rows for {engine.step} tokens: {kept / engine.step} a token; "
      f"ledger: {ledger.rate(model.config)}")
size = engine.store.path(name).stat().st_size
print(f"and {size - kept} bytes of names and checksum")

# %% [markdown]
# Two layers own rows, the other six borrow (chapter 10), so four blocks of bytes are all
# there is. Names and checksum are nearly as much again here. And at real size? We make
# room for 512 tokens of V4.1-Flash, all 40 layers of it, and store what a disk keeps.

# %%
real = allocate(get("deepseek-v4.1-flash").config, 512)
disk = store.RowStore(tempfile.mkdtemp(), "", budget=10**9)
disk.put("piece", piece(real, 0, 512))
size = disk.path("piece").stat().st_size
print(f"one file of {size:,} bytes: {512 * 890:,} of rows, that is 512 x 890, and "
      f"{size - 512 * 890:,} of names and checksum, {1 - 512 * 890 / size:.2%}")
print(f"not in it: windows, {real.bytes()['window']:,} bytes in memory")
disk.close()

# %% [markdown]
# Nothing but the 890. Of the windows more below.
#
# We close the small engine, start a new one on the same folder, and ask again. Nothing
# is left in memory now.

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
# the newest rows in full detail. Why not on the disk as well?
#
# **Before you run the next cell:** the windows of V4.1-Flash hold 128 tokens. The same
# bytes would hold the far rows of how many tokens? 100, 300, 1,000, 3,000?

# %% tags=["predict"]
guess = ...
predict("12-b", guess)

# %%
v4_1 = ledger.exact("deepseek-v4.1-flash", 128)
tokens = v4_1["window"] / ledger.rate("deepseek-v4.1-flash")
print(f"windows: 40 layers x 128 rows x 528 = {v4_1['window']:,} bytes, "
      f"far rows of {tokens:,.0f} tokens")
predict("12-b", guess, answer=round(tokens), unit="tokens")

# %% [markdown]
# Large, and out of date with the next word. So nobody writes them down. They stay in
# memory for a while: a *time to live*, TTL, here 300 seconds after their last use.
# Whoever comes back sooner goes on at once. For whoever comes later the last W tokens
# of the prefix are run again, for their windows alone (bounded replay, chapter 09). A
# replay reads far rows and writes none.

# %%
for seconds in (10, 200, 1000):
    now[0] += seconds
    served = engine.serve(text, new=1)
    print(f"{seconds:5} s later: {served.hit} found, {served.replayed} replayed, "
          f"exact: {served.exact}")

# %% [markdown]
# `exact` promises the answer of a run from nothing, a *cold* one. Why is it never True
# here? A replay is bounded: its first tokens see no window before them. And it leaves
# traces. The windows of the first two come from the replay after the restart, and stay
# what they are. So do far rows that are made after a replay; their files say so.
#
# Is the promise kept? In double precision, so that rounding says nothing. The clock is
# set by hand: 10 seconds after the first request the windows live, after 1,000 they
# do not.

# %%
double = checkpoints.load("tiny_v4_1-recall-seed0").double().requires_grad_(False)
fresh = double.new_cache(1, 200, "float64")
cold_V = double.prefill(torch.tensor([text]), fresh)[0]
clock = [0.0]
proof = Engine(double, tempfile.mkdtemp(), 10**7, storage="float64", ttl=300,
               clock=lambda: clock[0])
proof.serve(text, 1)
for seconds in (10.0, 1000.0):
    clock[0] = seconds
    served = proof.serve(text, 1)
    gap = (served.logits_V - cold_V).abs().max() / cold_V.abs().max()
    print(f"{served.replayed:2} replayed, exact: {served.exact!s:5} same to 1e-10: "
          f"{bool(gap < 1e-10)!s:5} farthest logit off by {gap:.1%} of the largest")

# %% [markdown]
# It is kept. The other case is defined just as sharply: a replay gives what a pass
# without any cache gives, if its windows are cut where the replay begins. The course's
# tests find the two equal to 1e-10, also for replays on top of replays.
#
# **And the next turn of a talk?** It is called not exact with V4.1, although nothing is
# replayed. Its far rows are those of a cold run. But the windows of its decoder were
# made where the earlier prompt ended, and word by word in the answer; a cold run begins
# the decoder anew, W tokens before the end (chapter 09). So the logits differ a little.
# They are those of a talk whose cache was never let go (tests, 1e-10).
#
# Does a replay do harm? One text cannot say. So 48 texts that no training saw, at four
# lengths each, through the model that learned to write: the word that it would write
# next, cold and after a hit with a replay.

# %%
def twice(model, tokens_BT, prefix):
    """Logits of what comes next: cold, and after a hit of `prefix` tokens, replayed."""
    stored = model.new_cache(*tokens_BT.shape, "float64")
    memory = model.new_cache(*tokens_BT.shape, "float64")
    cold_BV = model.prefill(tokens_BT, stored)
    memory.adopt(stored, prefix)  # far rows alone
    ced.resume(model, tokens_BT[:, :prefix], memory)
    return cold_BV, model.prefill(tokens_BT[:, prefix:], memory)


# %%
writer = checkpoints.load("tiny_v4_1-text-seed0").double().requires_grad_(False)
lines = data.batch("text", 0, 0, data.Stage(48, 160), held_out=True)
print("tokens  found  logits off: median  most   same word  loss, hit minus cold")
for length in (40, 70, 100, 130):
    prefix = (length - 1) // 16 * 16
    cold_BV, hit_BV = twice(writer, lines.tokens[:, :length], prefix)
    off = (hit_BV - cold_BV).abs().amax(1) / cold_BV.abs().amax(1)
    same = (hit_BV.argmax(1) == cold_BV.argmax(1)).double().mean()
    right = lines.targets[:, length - 1]
    hit_B, cold_B = (
        cross_entropy(v, right, reduction="none") for v in (hit_BV, cold_BV)
    )
    more, unsure = (hit_B - cold_B).mean(), (hit_B - cold_B).std() / 48**0.5
    print(f"{length:6} {prefix:6} {off.median():19.1%} {off.max():5.0%} {same:11.0%} "
          f"{more:+11.3f} ± {unsure:.3f}")

# %%
made = [data.recall(Dice("chapter 12", 0, i), 256, 48) for i in range(8)]
recalls, found = torch.tensor([one.tokens for one in made]), []
for at in made[0].answers[::4]:  # every fourth question, at the same place in each text
    both = twice(double, recalls[:, :at], (at - 1) // 16 * 16)
    found.append([(v.argmax(1) == recalls[:, at]).double().mean() for v in both])
cold, hit = (sum(column) / len(found) for column in zip(*found))
print(f"48 pairs in 256 tokens, {8 * len(found)} questions: cold {cold:.0%} right, "
      f"after a hit with a replay {hit:.0%}")

# %% [markdown]
# Single logits move, in some texts by a fifth of the largest and more. The word is nearly
# always the same. The loss moves both ways, by two standard errors at most (± is one,
# over the 48 texts). What was told long ago is found as before: it lies in the far rows,
# and those are exact. So here a replay costs nothing that we can tell from chance. These
# are one writer and one recaller, both tiny; for real size there is the report's word
# alone.
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
served = engine.serve(text, 1)
print("refused:", served.refused[0].partition(".rows ")[2])
print(f"{served.hit} found, {served.miss} read again and stored")

# %% [markdown]
# It is noticed, as each file is checked before it is used. Why are only 48 tokens found?
# The torn file was the fourth. The eight behind it are whole, but a prefix has no gaps:
# three pieces of 16 are left. What is refused is read again, so nobody gets a wrong
# answer. Still, the piece that was there is gone.
#
# The store does better: it writes under another name, waits for the disk (`fsync`), and
# then *renames*. A rename happens at once or not at all. Only then is the piece entered
# in a database, and from there on it counts.

# %%
print(inspect.getsource(store.RowStore._commit))

# %%
def power_cut(*_):
    raise KeyboardInterrupt("the power goes here")


before = len(engine.store.lru)
right, store.os.replace = store.os.replace, power_cut
try:
    engine.serve(text + text, 1)
except KeyboardInterrupt as cut:
    print(cut, "-> half files:", len(list(folder.glob("*.half"))))
store.os.replace = right
engine.close()

engine = Engine(model, folder, budget=10**6, block=16)
print(f"pieces before {before}, after the crash {len(engine.store.lru)};",
      "half files:", len(list(folder.glob("*.half"))))

# %% [markdown]
# No piece was lost, and the half file was swept away at the start.
#
# ## A smaller row, a smaller bill
#
# Memory is finite, so somebody has to go: whoever was not asked for the longest (least
# recently used, LRU). Send the day through memories of many sizes. A model has its say
# only through the bytes it keeps of a token. (An answer counts as read again when it
# comes back in the next prompt. Windows are left out; they are kept for minutes only.)
#
# **Before you run the next cell:** 100 MB for stored prefixes. V4-Flash finds 39 % of all
# tokens there. V4.1 keeps about a quarter of the bytes (890 against 3,514). How many
# percent does it find?

# %% tags=["predict"]
guess = ...
predict("12-c", guess)

# %%
from tinymodels.widgets.agents_day import MODELS, AgentsDay, pieces, record

recorded = record(trace, name=f"A made-up day, {agents} agents, seed 0")
share = recorded.hits("V4.1-Flash", 10**8) / sent
print(f"V4.1-Flash, 100 MB: {share:.1%} found")
predict("12-c", guess, answer=round(100 * share, 1), unit="percent")

# %% [markdown]
# **The bill.** A provider charges input that was found (a *hit*), input that was read (a
# *miss*), and output, each for a million tokens. For V4.1-Flash, off-peak (in the hours
# when few ask), the hit is 0.003 dollars and the output 0.6 (status C). Its price of a
# miss is not known here; the function insists on being told. We **assume** 0.14. That is
# what third parties report for V4-Flash (April 2026).

# %%
names = ("v4.1-flash", "v4-flash", "v4-pro")
new, v4, pro = (get(f"deepseek-{name}").price for name in names)
print("V4.1-Flash:", new)
print("V4-Flash:  ", v4)
assumed_miss = v4.miss


def dollars(hits):
    """What the day costs if so many of its tokens are found."""
    bill = ledger.bill(hits, sent - hits, recorded.written, hit_price=new.hit,
                       miss_price=assumed_miss, output_price=new.output)
    return bill.total


# %% [markdown]
# Now follow a row of this table from left to right. All models pay the same prices, so
# nothing differs but the bytes of a token.

# %%
print(f"no memory: 0.0% found, {dollars(0):.2f} dollars")
for budget in (10**8, 10**9):
    print(f"\n{plot.bytes_short(budget):10} bytes a token  tokens held  found  dollars "
          "(misses assumed)")
    for name, released in MODELS.items():
        held, hits = pieces(name, budget) * day.BLOCK, recorded.hits(name, budget)
        print(f"{name:10} {ledger.rate(released):13,} {held:12,} {hits / sent:6.1%} "
              f"{dollars(hits):8.2f}")

# %% [markdown]
# **A smaller row, more tokens held, more found, fewer dollars.** In 100 MB V4.1 pays less
# than a third of what V4-Flash pays, as misses are what costs. In 1 GB it saves five
# cents: V4-Flash has room for nearly everything there, too. (100 MB are for eight agents.
# A server for eight thousand needs about a thousand times that: 100 GB.) Which model
# pays least hangs on no price, as long as a miss costs more than a hit. How much, does.

# %%
AgentsDay(recorded, model="V4.1-Flash", budget=10**8)

# %% [markdown]
# Move *memory* and see who gains where. All curves have **one shape**: what is found
# depends only on how many tokens are held. A smaller row shifts the curve to the left. So
# the gain depends on where you stand: huge on the slope, nothing where everything fits
# anyway. How many tokens must be held to find 90 %?

# %%
few, many = 0, len(different)  # pieces: too few, and enough
while many - few > 1:
    middle = (few + many) // 2
    hits = day.replay(trace, 1, middle * day.BLOCK).hit  # 1 byte a token
    few, many = (few, middle) if hits >= 0.9 * sent else (middle, many)
print(f"{many * day.BLOCK:,} tokens held find 90 %")
for name, released in MODELS.items():
    print(f"{name:10} {plot.bytes_short(many * day.BLOCK * ledger.rate(released))}")

# %% [markdown]
# From V3 to V4.1 that is 70,272 / 890 = 79 times less memory, for the same hits.
#
# Now one request in which all is found, so no miss has to be assumed: a prompt of 100,000
# tokens, an answer of 1,000.

# %%
known = {"V4.1-Flash, off-peak": new, "V4-Pro": pro, "V4-Flash, third parties": v4}
for name, price in known.items():
    cost = ledger.bill(100_000, 0, 1000, hit_price=price.hit, miss_price=0,
                       output_price=price.output)
    print(f"{name:23} {cost.hit:.5f} + {cost.output:.5f} = {cost.total:.5f} dollars, "
          f"the answer {cost.output / cost.total:.0%}")

# %% [markdown]
# For each token that is written a hundred are read, and yet the one costs about half of
# the bill, or more. When everything is found, reading is nearly free. (V4-Flash is the
# cheapest here, by prices that are not its maker's.)
#
# **Your own day.** A trace is a file of JSON lines: time in milliseconds, lengths, and
# one id for each 512 tokens of the prompt. Mooncake, which serves the assistant Kimi, has
# published real ones in this form (see the sources). Put the name of yours in.
# (`AgentsDay(record(mine))` draws it.)

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
# V4.1's report says that its disk holds an eighth of what V4's holds, and that windows
# are about half of V4's disk (status C). Do the two sentences fit? If windows are one
# half, far rows are the other, and V4-Flash keeps 2 × 3,514.25 = 7,028.5 bytes a token.
# V4.1 keeps 890, and no window. 7,028.5 / 890 = 7.9. They fit.
#
# V4 writes all its windows down once every p tokens, so that a hit need not replay. How
# large p is, the report does not say. So ask the other way round: which p would make
# it an eighth? The windows of V4-Flash are 43 layers × 128 rows × 584 bytes = 3,214,336:
#
# ratio(p) = (3,514.25 + 3,214,336 / p) / 890

# %%
intervals = [128, 256, 512, 892, 1024, 2048, 4096, 8192, 16384]
ratios = [ledger.disk_rate("deepseek-v4-flash", p) / 890 for p in intervals]
fig, ax = plot.figure(6.4, 2.8)
ax.plot(intervals, ratios, "o-")
ax.axhline(8, color="black", linewidth=1)
ax.text(16384, 9, "an eighth", ha="right")
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
# A window written often makes the disk large; written never, 3.95 is left, the ratio of
# the far rows. An eighth comes out at p = 892 (exercise 12.5 solves for it), and there
# windows are 51 %. Still, p is *assumed*: any disk that also keeps something else would
# move it.
#
# ## Requests in the same memory
#
# On a card a request needs its far rows, its windows and its half-built groups. How many
# of 128,000 tokens fit into 100 GB that are free for caches? (V1, the 67B, was made for
# 4,096 tokens; here only its bytes are counted.)

# %%
print(f"{'':20} far rows of 128,000  windows, groups   fit")
for name in ("deepseek-67b", "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash",
             "deepseek-v4.1-flash"):
    held = ledger.exact(name, 128_000)
    rest = held["total"] - held["global"]
    print(f"{name:20} {held['global']:19,} {rest:15,} {10**11 // held['total']:5,}")

# %% [markdown]
# 857 against 214: four times as many, as the rows are. At this length far rows decide.
# With short prompts windows do: at 1,000 tokens V4.1 keeps three bytes of window for each
# byte of far rows.

# %% [markdown]
# ## True of what?
#
# When a model comes out, articles and posts praise it in round numbers. The sentences
# below are of that kind: in the right spirit, and wrong by a factor, because they do not
# say *which* bytes, *when*, or *against what*. You can now check them.
#
# **Before you run the next cell:** "V4.1 compresses the cache of V4-Flash to an eighth."
# That is the disk. How many times smaller are the bytes of a token in *memory*?

# %% tags=["predict"]
guess = ...
predict("12-d", guess)

# %%
rate, V4, V4_1 = ledger.rate, "deepseek-v4-flash", "deepseek-v4.1-flash"
print(f"{rate(V4):,} / {rate(V4_1)} = {rate(V4) / rate(V4_1):.2f}")
predict("12-d", guess, answer=round(rate(V4) / rate(V4_1), 2), unit="times")

# %%
disk, row = ledger.disk_rate(V4, 892) / rate(V4_1), 584 / 288
memory = rate(V4) / rate(V4_1)
reads, writes = (ledger.active(V4_1, phase) / 1e9 for phase in ("prefill", "decode"))
before, v2 = ledger.active(V4) / 1e9, rate("deepseek-v2")
v1 = rate("deepseek-67b")
six, eight = (rate("deepseek-v2", kv_bits=bits) for bits in (6, 8))
claims = [
    ("compressed to an eighth", f"the disk {disk:.1f}, memory {memory:.2f} times"),
    ("V4-Flash is 4 × 890", f"4 × 890 = {4 * 890:,}; it is {rate(V4):,}"),
    ("FP4 is a quarter of the bits", f"of bf16's; V4's row shrinks {row:.2f} times"),
    ("fewer active parameters than V4-Flash", f"reading {reads:.1f} < {before:.1f} "
     f"billion, writing {writes:.1f} > {before:.1f}"),
    ("V2's cache fell by over 90 %", f"{1 - v2 / v1:.0%} in bf16, {1 - eight / v1:.0%} "
     f"at 8 bits; the printed {1 - six / v1:.1%} only at 6"),
]
for said, counted in claims:
    print(f"{said:38} {counted}")

# %% [markdown]
# Each is true of one thing and told of another: of the disk and not of memory, against
# bf16 and not against V4, while reading and not while writing. Three more, of money, of
# parameters, and of a limit:

# %%
ffn = [ledger.ffn_share(name) for name in ("deepseek-67b", V4_1)]
claims = [
    ("an order of magnitude cheaper", f"hits {pro.hit / new.hit:.1f} times, output "
     f"{pro.output / new.output:.1f} times; Flash off-peak, Pro"),
    ("60-70 % of the parameters are FFN", f"V1 {ffn[0]:.0%}, V4.1 {ffn[1]:.1%}"),
    ("concurrency 500 -> 2500, so 5 times", f"bytes: {memory:.2f} times, against Pro "
     f"{rate('deepseek-v4-pro') / rate(V4_1):.2f}"),
]
for said, counted in claims:
    print(f"{said:38} {counted}")

# %% [markdown]
# The last is no ratio of bytes at all: somebody set a limit. (500 and 2,500 are the
# article's, status C. Bytes are those of far rows.) When you read such a sentence next
# time, ask: true of what?
#
# ## What it costs
#
# | what is saved | what it costs |
# |---|---|
# | reading a prompt again | a disk that is read before the first word |
# | windows on the disk | W tokens run again; loss moved by 0.02 at most above, either way |
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
#
# The last two rows show one number, weighed twice. Row 11 is storage in memory. Row 12 is
# the file from above, 512 tokens at real size, without its names and checksum. That they
# are equal is the news: the disk adds nothing to a token, and it holds no window.

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="12")

# %% [markdown]
# ## Sources
#
# - Prefix cache on disk, windows by replay, an eighth: DeepSeek-V4.1-Flash, [arXiv
#   2609.19969](https://arxiv.org/abs/2609.19969) (status C). The interval p of V4's
#   windows is in no source; it is assumed wherever it stands.
# - Prices and limits: named in an article on V4.1's release (status C); V4-Flash's
#   prices by third parties, April 2026; V4.1's price of a miss is assumed.
# - The form of a trace: Mooncake, [arXiv 2407.00079](https://arxiv.org/abs/2407.00079),
#   section 4; traces in [its repository](https://github.com/kvcache-ai/Mooncake), folder
#   `FAST25-release/traces`.
# - Pieces named by chained hashes are what serving engines such as vLLM do, beside
#   PagedAttention, [arXiv 2309.06180](https://arxiv.org/abs/2309.06180).
#
# Next: [13 · Capstone](13__capstone.ipynb): everything together.
