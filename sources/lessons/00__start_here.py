# %% [markdown]
# # 00 · Start here
#
# *20 minutes.* A language model is writing sentence 100. How does it still know
# sentence 1? And what does that memory cost?
#
# This course answers both. You need to know a little Python and nothing about language
# models. In this chapter you build nothing. You meet a small model that works, watch it
# write, and see the number that the whole course is about.
#
# **Objectives.** After this chapter you can
#
# - say what a token, a logit and a sample are,
# - watch a model choose its next token,
# - point at the place where it remembers,
# - say what one remembered token cost in January 2024, and what it costs now,
# - use the course's tools: predictions, exercises, the ledger.
#
# > **The number: 389,120 bytes per token in 2024, 890 in September 2026.**
#
# To run a cell, click it and press Shift + Enter. Change anything you like; nothing can
# break. To start over, choose *Kernel → Restart Kernel and Run All Cells*.

# %%
import torch
from grading import predict
from tinymodels import checkpoints, device, tokenizer
from tinymodels.generate import stream
from tinymodels.widgets import plot

# The model, on the graphics card if there is one; only used here, not trained.
model = checkpoints.load("tiny_v1-text-seed0").to(device.pick()).requires_grad_(False)

# %% [markdown]
# ## A model that writes
#
# This model is tiny: a quarter of a million numbers, its **parameters**, where a large
# one has hundreds of billions. They were found by training: the model read stories of a
# small world in which Ada, Ben and a few others meet, and put things into boxes, and
# its numbers were nudged until it guessed each next word well. It works exactly like
# its big relatives.
#
# Run the cell. Then change the prompt and run it again: give the key to `Ben`, ask for
# the lamp.

# %%
prompt = "Ada has the key. Ben has the lamp. Cora is tired.\nWho has the key?"


def write(prompt, new=12, **how):
    tokens_BT = torch.tensor([tokenizer.encode(prompt)], device=model.device)
    ids = [t.item() for t in stream(model, tokens_BT, new, **how)]
    return tokenizer.decode(ids, line_start=False).split("\n")[0]


print(prompt + write(prompt))

# %% [markdown]
# It answers with what stands in your prompt. Nobody told it beforehand who has the key.
# So, while it wrote, it must have looked back. Hold on to that; first the three words
# that you need.
#
# ## Tokens
#
# A model does not see letters. The text is cut into **tokens**, and each token is a
# number from a fixed list, the vocabulary. Frequent words are one token, all else is
# spelled.

# %%
ids = tokenizer.encode("Ada has the key.\nTarik has the kettle.")
for piece, number in zip(tokenizer.pieces(ids), ids):
    print(f"{number:4}  {piece!r}")

# %% [markdown]
# `<bos>` marks the beginning. "Ada" is one token; "Tarik" is a stranger and is spelled.
# Large models do the same with about 130,000 tokens, and a page of English has about
# 500 to 700 of them.
#
# ## Logits
#
# The model reads tokens and gives, for each place in the text, one number for every
# token of the vocabulary: how well that token would fit next. These numbers are
# **logits**. They have no unit; only their differences count.
#
# All numbers here lie in *tensors*, torch's arrays. The letters at the end of a name
# say what its axes are: `logits_BTV` has B texts (here one), T tokens, and V, one
# number for each token of the vocabulary.

# %%
tokens_BT = torch.tensor([tokenizer.encode(prompt)], device=model.device)
logits_BTV = model(tokens_BT)
print("one text, its tokens, one logit for each token of the vocabulary:",
      tuple(logits_BTV.shape))

best = logits_BTV[0, -1].topk(5)
for logit, token in zip(best.values.tolist(), best.indices.tolist()):
    print(f"{logit:6.1f}  {tokenizer.pieces([token], line_start=False)[0]!r}")

# %% [markdown]
# ## From logits to a choice
#
# Logits become **probabilities**: take e to the power of each, divide by the sum. Then
# a token is chosen, appended to the text, and the model is asked again. That is all
# writing is: one token at a time. The picture shows five choices, one after the other,
# behind "Ada meets Ben. She". Each panel has the four likeliest tokens and their
# probabilities; the chosen one is dark.

# %%
fig, axes = plot.figure(8.4, 2.3, columns=5)
start_BT = torch.tensor([tokenizer.encode("Ada meets Ben. She")], device=model.device)
text_BT = start_BT
for ax in axes:
    probabilities = model(text_BT)[0, -1].softmax(-1)
    share, token = probabilities.topk(4)
    pieces = tokenizer.pieces(token.tolist(), line_start=False)
    colours = [plot.LIGHT["accent"]] + [plot.LIGHT["soft"]] * 3
    ax.barh([p.strip() or repr(p) for p in pieces], share.cpu(), color=colours)
    ax.invert_yaxis()
    ax.set(xlim=(0, 1), xticks=[0, 0.5, 1])
    ax.set_title(f"after {text_BT.shape[1]} tokens", fontsize=9)
    text_BT = torch.cat([text_BT, token[None, :1]], dim=1)

chosen = tokenizer.pieces(text_BT[0, start_BT.shape[1] :].tolist(), line_start=False)
plot.show(fig, alt=f"The five tokens chosen one after the other: {chosen}.")

# %% [markdown]
# Always taking the likeliest token is called *greedy*. One can also draw: a token with
# probability 0.2 is taken one time in five. That is **sampling**. A `temperature` below
# 1 makes the model more careful, above 1 more daring. Change it and run the cell again.

# %%
temperature = 1.0

for seed in range(3):
    line = write("Ada meets Ben. She", new=20, temperature=temperature, seed=seed)
    print("Ada meets Ben. She" + line)

# %% [markdown]
# ## The question
#
# Here is a longer story. Its first sentence gives something away; a long time passes;
# at the end there is a question. The answer stands in sentence 1 and nowhere else.

# %%
from tinymodels.dice import Dice
from tinymodels.stories import long_story

hundred = list(long_story(Dice("start here", 12), sentences=100).sentences)
print(len(hundred), "sentences. The first three:", *hundred[:3])
print("The last three:", *hundred[-3:])
print("Sentences that say what Dan has:",
      [n for n, line in enumerate(hundred, start=1) if line.startswith("Dan has")])

# %% [markdown]
# Now ask. Then change sentence 1, and only sentence 1, and ask again.
#
# **Before you run the cell:** will the answer of the model change? Replace the dots by
# `"yes"` or `"no"`.

# %% tags=["predict"]
guess = ...
predict("00-a", guess)

# %%
answers = []
for thing in ("key", "drum", "cup"):
    hundred[0] = f"Dan has the {thing}."
    answer = write(" ".join(hundred) + "\nWhat does Dan have?")
    answers.append(answer)
    print(f"sentence 1: {hundred[0]:18} 99 sentences later, the model:{answer}")

predict("00-a", guess, answer="yes" if len(set(answers)) > 1 else "no")

# %% [markdown]
# Was that luck? When the model was trained, it was asked about many stories of each
# length. This is how often it was right, and how often it would have been by guessing
# among the things that the story names.

# %%
measured = checkpoints.describe("tiny_v1-text-seed0")["measured"]["given"]
for sentences, share in measured.items():
    print(f"{sentences:>4} sentences: {share['all']:6.1%} right,"
          f" by guessing {share['chance']:.0%}")

# %% [markdown]
# Sentence 1 is far away, and it decides the answer. The model keeps no summary and does
# not read the text again. It is built of **layers**, steps of computing that every
# token passes one after the other; this one has four. From every token it has read it
# keeps some numbers in every layer: a **key** and a **value**. Together they are the
# **KV cache**. When it writes, it looks at all of them.
#
# ## What the memory costs
#
# So the memory grows with every token. For the tiny model:

# %%
tokens = tokenizer.encode(" ".join(hundred))
cache = model.new_cache(batch=1, capacity=len(tokens))
for count in (1, 100, len(tokens)):
    cache.reset()
    model(torch.tensor([tokens[:count]], device=model.device), cache)
    held = cache.bytes()["global"]
    print(f"{count:4} tokens: {held:7,} bytes, {held // count} for each token")

# %% [markdown]
# 512 bytes a token is nothing. Now a real model: DeepSeek's first, 67 billion
# parameters, from January 2024. You read at the top what one token costs there.
#
# **Before you run the next cell:** how many GB does its memory of one novel take,
# 130,000 tokens? (A GB is 1,000,000,000 bytes.) Any guess is fine, it is only compared.

# %% tags=["predict"]
guess = ...
predict("00-b", guess)

# %%
from tinymodels import ledger

rate = ledger.rate("deepseek-67b")
predict("00-b", guess, answer=round(rate * 130_000 / 1e9), unit="GB")

# %%
lengths = {"a page": 600, "a novel": 130_000, "a million tokens": 1_000_000}
for name, length in lengths.items():
    print(f"{name:17} {length:9,} tokens  {plot.bytes_text(rate * length)}")

# %% [markdown]
# One token takes 389,120 bytes, as much as a small photo. A million tokens take
# 389 GB: that fills five graphics cards of 80 GB, for one conversation.
#
# Since then the same makers brought it down to 890 bytes, for a model eight times as
# large. No single trick did it. Switch them on one after the other and watch. The
# chapters named beside the steps build each of them.

# %%
from tinymodels.widgets import Ladder

Ladder()

# %% [markdown]
# ## How this course works
#
# **Predictions.** You have made two. Replace the dots before you run the answer. Being
# wrong is the point: what surprises you stays. At the end of a chapter you see what you
# misjudged.

# %% tags=["nbval-ignore-output"]
predict("00")

# %% [markdown]
# **Exercises.** Each chapter has a notebook of its own in `exercises/`. You write a
# function; a check tries it on inputs of its own and tells you *what* is wrong: "this
# is the answer without the scaling". `hint("00.1")` gives a hint, and another when you
# ask again. Try it now: [exercise 00](../exercises/00__start_here.ipynb) takes five
# minutes and counts nothing.
#
# **The ledger.** Every chapter ends with the same table, one row longer each time: the
# formula, what was measured in real memory, and what was published. They must agree to
# the byte. The letter says where the published number comes from:
#
# - **C**: stated by a source (a report, a configuration file),
# - **R**: read off a published chart,
# - **D**: derived here, from sourced numbers; nobody published the total.

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="00")

# %% [markdown]
# **Your machine.** Everything runs on a laptop. This cell says what the course found on
# yours.

# %% tags=["nbval-ignore-output"]
from kernels import backend

print(backend.report()["sentence"])

# %% [markdown]
# ## What it costs
#
# The ladder shows bytes alone. Each step also costs something: more computing, more
# complicated training, or a little of what the model can recall. The chapters measure
# that too. A memory of 0 bytes would be the smallest of all, and useless.
#
# ## Sources
#
# - DeepSeek LLM 67B: [arXiv 2401.02954](https://arxiv.org/abs/2401.02954) and its
#   released configuration: 95 layers, 8 key-value heads, head dim 128.
# - V4.1-Flash: [arXiv 2609.19969](https://arxiv.org/abs/2609.19969): 890 bytes per
#   token (C).
#
# Next: [01 · Attention and the cache](01__attention.ipynb).
