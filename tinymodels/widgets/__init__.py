"""The pictures one can move: each a pure function of its settings, plus a thin shell.

    explorer.py       layers, heads, bytes, context -> bytes a token and in all
    ladder.py         from 389,120 bytes a token to 890, one idea at a time
    xray.py           a decode, step by step: rows written, read, reused
    ledger_table.py   every chapter's number: formula, measured, published

`plot.py` sets the look of every figure, live or still; `base.py` is the shell.
"""
