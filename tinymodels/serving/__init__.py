"""The memory in service: what is kept between requests, where, for how long, and what it is worth.

chain.py     a text in pieces, each named by a hash of itself and all before it
lru.py       who has to go when the budget is full
store.py     far rows as files: checksummed, renamed into place, refused when they are not whole
rows.py      rows of a `ModelCache` to bytes and back, bit for bit
windows.py   window rows, in memory alone, for as long as they are likely to be asked for
engine.py    requests to a tiny model: the longest stored prefix, the rest computed
day.py       a trace of an agent's day, and what of it is found again within a budget
"""
