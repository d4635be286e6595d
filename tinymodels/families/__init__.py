"""config.json of released models -> `ModelConfig`: what is kept, by which layer, in which shape.

    fields.py       reads one field: present, of the right type, or the published default
    plain.py        Llama and its kin: one kind of attention, sliding or not
    alternating.py  Gemma, gpt-oss: sliding and full layers take turns, some share
    falcon.py       Falcon and its older names
    deepseek.py     latents: DeepSeek V2, V3, V3.2, Kimi K2
    deepseek_v4.py  groups and sharing: DeepSeek V4 and V4.1
    hybrid.py       attention beside recurrent layers: Qwen3-Next, MiniMax, Jamba

A reader is a function `(Fields) -> ModelConfig`. Each refuses rather than guesses: a missing
field with no default in the family's published configuration class is an error, and a default
that was taken is a note that `--explain` prints. No torch.
"""

from .load import READERS, config_from, load

__all__ = ["READERS", "config_from", "load"]
