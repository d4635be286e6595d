"""Pages and pieces: nobody's row is another's, and what is counted adds up."""

import pytest

from tinymodels.paging import Contiguous, Pages, Request, serve, trace


def rows_of(memory, number):
    """All rows that a request has been given."""
    if isinstance(memory, Contiguous):
        return set(range(*memory.pieces[number]))
    pages = memory.tables[number]
    return {page * memory.page + row for page in pages for row in range(memory.page)}


@pytest.mark.parametrize("page", [1, 3, 7])
def test_pages_come_one_by_one_and_belong_to_one(page):
    memory = Pages(rows=50, page=page)
    one, two = Request(0, 2, 20), Request(1, 5, 11)
    assert memory.take(one, 2) and memory.take(two, 5)
    for length in range(3, 12):
        assert memory.grow(one, length)
        assert len(memory.tables[0]) == -(-length // page)
        assert memory.held() == page * (len(memory.tables[0]) + len(memory.tables[1]))
        assert not rows_of(memory, 0) & rows_of(memory, 1)
    memory.leave(one)
    assert len(memory.free) == 50 // page - len(memory.tables[1])
    memory.leave(two)
    assert sorted(memory.free) == list(range(50 // page))


def test_no_page_no_room():
    memory = Pages(rows=10, page=4)  # two pages
    assert not memory.take(Request(0, 9, 9), 9) and memory.tables == {}
    assert memory.take(Request(1, 7, 9), 8) and not memory.grow(Request(1, 7, 9), 9)
    assert len(memory.tables[1]) == 2


def test_a_hole_is_used_where_it_is_large_enough():
    memory = Contiguous(30, lambda r: r.total)
    a, b, c = (Request(i, 1, 10) for i in range(3))
    assert all(memory.take(r, 1) for r in (a, b, c))
    assert not memory.take(Request(3, 1, 1), 1)
    memory.leave(a)
    memory.leave(c)
    assert not memory.take(Request(4, 1, 11), 1)  # 20 rows free, in two pieces
    assert memory.take(Request(5, 1, 10), 1) and memory.pieces[5] == (0, 10)


def test_a_trace_is_the_same_each_time_and_varied():
    requests = trace(400, longest=900)
    assert requests == trace(400, longest=900) != trace(400, longest=900, seed=1)
    assert all(1 <= r.prompt < r.total <= 900 for r in requests)
    lengths = sorted(r.total for r in requests)
    assert lengths[380] > 3 * lengths[20]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shares_add_up_and_pages_serve_more(seed):
    requests = trace(900, longest=600, seed=seed)
    rows = 4100
    used = [
        serve(memory, requests, 500)
        for memory in (
            Contiguous(rows, lambda r: 600),
            Contiguous(rows, lambda r: r.total),
            Pages(rows, 150),
            Pages(rows, 10),
            Pages(rows, 1),
        )
    ]
    for u in used:
        assert u.filled + u.inside + u.between == pytest.approx(1)
    reserve, known, large, small, single = used
    assert small.requests > 1.6 * reserve.requests and small.filled > known.filled + 0.1
    assert small.filled > large.filled + 0.1
    assert single.inside == 0 and reserve.sent_back == known.sent_back == 0
    assert reserve.requests == pytest.approx(rows // 600)


def test_waste_in_pages_is_under_one_page_a_request():
    requests = trace(900, longest=600, seed=4)
    for page in (5, 30):
        u = serve(Pages(3000, page), requests, 400)
        assert 0 < u.inside * 3000 < u.requests * page


def test_a_queue_that_runs_dry_is_named():
    with pytest.raises(ValueError, match="too few"):
        serve(Pages(3000, 5), trace(5), 100)
