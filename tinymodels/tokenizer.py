"""Text to tokens and back: 256 tokens at most, nothing to download.

A word that is frequent in the small world is one token and brings the space before it along. All
else is spelled, one token a character. At the start of a line there is no space to bring, and the
same token stands for the bare word; so `Ada` is the same token wherever she is named.

    encode("Ada meets Bo.")  ->  [bos]  "Ada"  " meets"  " "  "B"  "o"  "."
"""

import re
from collections.abc import Iterable

from tinymodels.world import WORDS

BOS = 0
CHARACTERS = ("\n", *map(chr, range(32, 127)))
UNKNOWN = "?"

_PIECES = ("<bos>", *CHARACTERS, *WORDS)
_FIRST_WORD = 1 + len(CHARACTERS)
_CHARACTER_ID = {character: 1 + i for i, character in enumerate(CHARACTERS)}
_WORD_ID = {word: _FIRST_WORD + i for i, word in enumerate(WORDS)}
_NEWLINE = _CHARACTER_ID["\n"]

# A run of letters with the one space before it, or any single character.
_SCAN = re.compile(r" ?[A-Za-z]+|.", re.DOTALL)

VOCABULARY = len(_PIECES)
"""How many tokens have a meaning; a model's `vocab` must be at least this."""


def encode(text: str, bos: bool = True, line_start: bool = True) -> list[int]:
    """Token ids of `text`, <bos> first unless `bos=False`.

    line_start: whether the text begins a line; False for one that goes on where another ended.
    Printable ASCII and line breaks survive the round trip exactly; any other character becomes
    `?`, which can be seen. Errors: ValueError when `text` is no string, or goes on after <bos>.
    """
    if not isinstance(text, str):
        raise ValueError(f"encode takes a string, not {type(text).__name__}")
    if bos and not line_start:
        raise ValueError("a text that goes on where another ended has no <bos>; pass bos=False")
    ids = [BOS] if bos else []
    for chunk in _SCAN.findall(text):
        # A word token says its space itself in mid-line and has none at the start of a line.
        word = chunk if line_start else chunk[1:] if chunk[0] == " " else ""
        if word in _WORD_ID:
            ids.append(_WORD_ID[word])
        else:
            ids += [_CHARACTER_ID.get(c, _CHARACTER_ID[UNKNOWN]) for c in chunk]
        line_start = chunk == "\n"
    return ids


def pieces(ids: Iterable[int], line_start: bool = True) -> list[str]:
    """What each token stands for in the text, in order; <bos> shows as `<bos>`.

    Joined without `<bos>` they are the text. `line_start=False`: the first token continues a line.
    Errors: ValueError for an id that is no token.
    """
    shown = []
    for token in map(int, ids):
        if not 0 <= token < VOCABULARY:
            raise ValueError(f"{token} is no token; ids go from 0 to {VOCABULARY - 1}")
        space = " " if token >= _FIRST_WORD and not line_start else ""
        shown.append(space + _PIECES[token])
        line_start = token in (BOS, _NEWLINE)
    return shown


def decode(ids: Iterable[int], line_start: bool = True) -> str:
    """The text of the tokens, <bos> left out: `decode(encode(text)) == text`."""
    kept = list(map(int, ids))
    return "".join(p for i, p in zip(kept, pieces(kept, line_start)) if i != BOS)


def word_id(word: str) -> int:
    """The token of a frequent word: `word_id("Ada")`. Errors: ValueError if it is spelled."""
    if word not in _WORD_ID:
        raise ValueError(f"{word!r} is no word of the small world, so it has no token of its own")
    return _WORD_ID[word]
