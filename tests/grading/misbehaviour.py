"""The table *what a learner did -> status -> points*, as data.

The tests run it, and `grading/README.md` shows it. Every exercise here asks for twice a number
and has one point. Order counts: a fixture stands in the notebook where it stands here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.grading.editing import (
    ask_in_the_cell,
    check_deleted,
    check_edited,
    copied_below,
    deleted,
    emptied,
    half_a_character,
    helper_added,
    import_added_to_the_setup,
    merged_with_its_check,
    merged_with_the_next,
    metadata_removed,
    moved_to_the_end,
    split_in_two,
    turned_into_text,
)

RIGHT = "    return 2 * number"
LOOP = "    while True:\n        try:\n            while True: pass\n"


@dataclass(frozen=True)
class Fixture:
    """`body` stands in the function, or `cell` in place of the exercise's cell, or `edit`
    changes the solved notebook's cells."""

    name: str
    status: str
    points: int
    words: str = ""
    body: str = ""
    cell: str = ""
    edit: Callable | None = None


IN_THE_FUNCTION = (
    Fixture("a right answer", "passed", 1, body=RIGHT),
    Fixture("a mistake that has a name", "wrong", 0, "This is the square.",
            body="    return number ** 2"),
    Fixture("the untouched placeholder", "not_attempted", 0, body="    ..."),
    Fixture("a loop without end", "timeout", 0, "never ends", body="    while True: pass"),
    Fixture("a loop that swallows interrupts (`except BaseException`)", "timeout", 0,
            "no answer after", body=LOOP + "        except BaseException: pass"),
    Fixture("a loop that ignores the signals", "timeout", 0, "no answer after",
            body="    import signal\n    for s in (signal.SIGINT, signal.SIGALRM):\n"
                 "        signal.signal(s, signal.SIG_IGN)\n    while True: pass"),
    Fixture("recursion without end", "error", 0, "RecursionError",
            body="    def again(n): return again(n + 1)\n    return again(number)"),
    Fixture("an exception", "error", 0, "ZeroDivisionError", body="    return number / 0"),
    Fixture("an exception with a message of 100 MB", "error", 0, "ValueError: xxx",
            body="    raise ValueError('x' * 100_000_000)"),
    Fixture("sys.exit", "error", 0, "SystemExit", body="    import sys; sys.exit(1)"),
    Fixture("exit() as notebooks have it", "error", 0, "SystemExit", body="    exit()"),
    Fixture("os._exit", "died", 0, "exit code 3", body="    import os; os._exit(3)"),
    Fixture("a segmentation fault", "died", 0, "SIGSEGV",
            body="    import ctypes; ctypes.string_at(0)"),
    Fixture("a kill of the process it runs in", "died", 0, "SIGKILL",
            body="    import os; os.kill(os.getpid(), 9)"),
    Fixture("a kill of the grader's process", "died", 0, "",
            body="    import os; os.kill(os.getppid(), 9)"),
    Fixture("an allocation of 12 GB", "error", 0, "MemoryError",
            body="    return len(bytearray(12 * 2**30))"),
    Fixture("an array of 12 GB", "error", 0, "allocate",
            body="    import numpy\n    return numpy.ones((12, 2**27))"),
    Fixture("a file of 2 GB", "error", 0, "OSError",
            body="    with open('f', 'wb') as f:\n        f.seek(2**31)\n        f.write(b'x')"),
    Fixture("3 GB of output", "passed", 1,
            body="    for _ in range(35): print('x' * 10_000_000)\n" + RIGHT),
    Fixture("200 MB of output around Python", "passed", 1,
            body="    import os\n    for _ in range(70): os.write(1, b'x' * 1_000_000)\n" + RIGHT),
    Fixture("input()", "error", 0, "StdinNotImplementedError", body="    return input()"),
    Fixture("a child left running", "passed", 1,
            body="    import os, time\n    if os.fork() == 0:\n        time.sleep(600)\n"
                 "        os._exit(0)\n" + RIGHT),
    Fixture("a child that returns as well", "passed", 1,
            body="    import os; os.fork()\n" + RIGHT),
    Fixture("a child that has cut itself loose", "passed", 1,
            body="    import os, time\n    if os.fork() == 0:\n        os.setsid()\n"
                 "        if os.fork() == 0:\n            time.sleep(600)\n"
                 "        os._exit(0)\n" + RIGHT),
    Fixture("a thread left waiting", "passed", 1,
            body="    import threading, time\n"
                 "    threading.Thread(target=time.sleep, args=(600,)).start()\n" + RIGHT),
    Fixture("an object whose `__eq__` is always true", "wrong", 0, "type Yes came back",
            body="    class Yes:\n        def __eq__(self, other): return True\n"
                 "    return Yes()"),
    Fixture("a float whose `__eq__` is always true", "wrong", 0, "is expected",
            body="    class Yes(float):\n        def __eq__(self, other): return True\n"
                 "        __hash__ = float.__hash__\n    return Yes(0)"),
    Fixture("printing a pass token", "wrong", 0, "is expected",
            body="    print('{\"token\": \"x\", \"status\": \"passed\", \"earned\": 1}')\n"
                 "    return 0"),
    Fixture("a thread left computing and printing", "passed", 1,
            body="    import threading\n    def on():\n        while True: print('x' * 1000)\n"
                 "    threading.Thread(target=on, daemon=True).start()\n" + RIGHT),
)  # fmt: skip

IN_THE_CELL = (
    Fixture("a loop without end in the cell", "timeout", 0, "did not run to its end",
            cell="while True: pass"),
    Fixture("os._exit in the cell", "died", 0, "did not run to its end",
            cell="import os; os._exit(1)"),
    Fixture("exit() in the cell", "error", 0, "did not run to its end", cell="exit()"),
    Fixture("input() in the cell", "error", 0, "StdinNotImplementedError", cell="input()"),
    Fixture("a syntax error", "error", 0, "SyntaxError", cell="def double_{n}(number) return 2"),
    Fixture("an error below a right function", "passed", 1,
            cell="def double_{n}(number):\n" + RIGHT + "\nassert False"),
    Fixture("the check called, and its result used, above the function", "passed", 1,
            cell="assert check('90.1', 3).status == 'error'\ndef double_{n}(number):\n" + RIGHT),
    Fixture("a check of one's own that says `passed`", "wrong", 0, "is expected",
            cell="check = lambda *a: 'passed'\ndef double_{n}(number):\n    return 98"),
    Fixture("the check's modules patched", "wrong", 0, "is expected",
            cell="import grading.graded, grading.verdict, grading.judge, grading.result\n"
                 "grading.verdict.failures = grading.judge.failures = lambda *a: []\n"
                 "grading.verdict.assess = lambda *a: 'passed'\n"
                 "def double_{n}(number):\n    return 97"),
    Fixture("numpy and json patched", "wrong", 0, "is expected",
            cell="import numpy, json\nnumpy.abs = lambda x: x * 0\n"
                 "numpy.allclose = numpy.array_equal = lambda *a, **k: True\n"
                 "json.dumps = lambda *a, **k: 'passed'\n"
                 "def double_{n}(number):\n    return 96"),
    Fixture("sys.stdout closed, then None", "passed", 1,
            cell="import sys\nsys.stdout.close()\nsys.stdout = None\nsys.stderr.close()\n"
                 "def double_{n}(number):\n" + RIGHT),
    Fixture("reading solutions/", "error", 0, "closed while a notebook is graded",
            cell="import grading, pathlib\n"
                 "root = pathlib.Path(grading.__file__).parents[1]\n"
                 "exec((root / 'solutions' / '01__attention.ipynb').read_text())\n"
                 "def double_{n}(number):\n" + RIGHT),
)  # fmt: skip

IN_THE_NOTEBOOK = (
    Fixture("the cell deleted", "not_attempted", 0, "missing", edit=deleted),
    Fixture("the cell emptied", "not_attempted", 0, "empty", edit=emptied),
    Fixture("the cell split in two", "passed", 1, "joined in order", edit=split_in_two),
    Fixture("the cell copied, the copy below being right", "passed", 1, "joined in order",
            edit=copied_below),
    Fixture("the cell merged with its check", "passed", 1, edit=merged_with_its_check),
    Fixture("the cell merged with the next exercise's", "passed", 1, edit=merged_with_the_next),
    Fixture("the exercise merged into the one above", "passed", 1, "missing"),
    Fixture("the cell turned into Markdown", "passed", 1, "turned into text",
            edit=turned_into_text),
    Fixture("the cell moved to the end", "passed", 1, edit=moved_to_the_end),
    Fixture("the cell's metadata removed", "passed", 1, edit=metadata_removed),
    Fixture("the check deleted", "passed", 1, edit=check_deleted),
    Fixture("a wrong answer, and the check made to print `passed`", "wrong", 0, "is expected",
            edit=check_edited),
    Fixture("a helper in a cell of the learner's own", "passed", 1, edit=helper_added),
    Fixture("an import added to the first cell", "passed", 1, edit=import_added_to_the_setup),
    Fixture("a question to the keyboard in a cell of the learner's own", "passed", 1,
            edit=ask_in_the_cell),
    Fixture("half a character in a cell of the learner's own", "passed", 1,
            edit=half_a_character),
)  # fmt: skip

FIXTURES = (*IN_THE_FUNCTION, *IN_THE_CELL, *IN_THE_NOTEBOOK)

# What happens to a whole file: the same for every exercise in it.
OF_THE_FILE = (
    ("a renamed file", "graded as ever", "as earned"),
    ("a file without any metadata, or renamed as well", "graded as ever", "as earned"),
    ("an older version: an exercise is missing from it", "not_attempted", "0"),
    ("an older version: an exercise that is no more", "left aside", "-"),
    ("broken JSON, an empty file", "error", "0"),
    ("a file in the format of 2014", "error", "0"),
    ("with a module, or data, in a file beside it", "graded as ever", "as earned"),
    ("torch or tinymodels patched, the answer wrong", "wrong", "0"),
    ("torch or tinymodels patched, the answer right", "passed", "full"),
    ("needs triton, and there is none", "unavailable", "left out"),
)
