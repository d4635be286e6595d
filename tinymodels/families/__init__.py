"""config.json of released models -> `ModelConfig`: what is kept, by which layer, in which shape.

    fields.py       reads one field: present, of the right type, or the published default
    kv_formats.py   the format of cached values, where a file declares one
    plain.py        every layer alike: Llama and its kin, Qwen, Phi, GLM, OLMo, sliding or not
    kin.py          Llama's kin under names of their own: Yi, InternLM 1 and 3, dots.llm1, Ling
    cross_layer.py  Hunyuan, where neighbouring layers share
    early.py        names of their own: GPT-2, BLOOM, Falcon, MPT, ChatGLM, OLMo 1
    alternating.py  near and full layers take turns: Gemma, gpt-oss, Llama 4; some layers share
    deepseek.py     latents: DeepSeek V2, V3, V3.2, Kimi K2
    latent.py       latents elsewhere: GLM-5, Mistral 4, LongCat
    deepseek_v4.py  groups and sharing: DeepSeek V4 and V4.1
    hybrid.py       attention beside recurrent layers: Qwen3-Next, MiniMax, Kimi, Jamba, Nemotron-H
    unequal.py      values narrower than keys: MiMo V2 Flash
    searched.py     layers chosen one by one: Nemotron Super and Ultra

A reader is a function `(Fields) -> ModelConfig`. Each refuses rather than guesses: a missing
field with no default in the family's published configuration class is an error, and a default
that was taken is a note that `--explain` prints. Layers, heads and width are stated by every
released file, so there a default counts only inside a nested text_config, which is written
without what equals its class. No torch.
"""

from .load import READERS, config_from, load

__all__ = ["READERS", "config_from", "load"]
