"""What learners do to the cells of a notebook: each function edits a solved one in place.

Called as `edit(cells, n)`: the list of cells, and the number of the exercise it is about.
"""


def place(cells, n, role="exercise"):
    """Where the cell of exercise 90.n stands."""
    return next(
        i for i, cell in enumerate(cells)
        if cell["metadata"].get("exercise_id") == f"90.{n}" and role in cell["metadata"]["tags"]
    )  # fmt: skip


def code_cell(source, role="given", exercise_id=None, cell_id="own"):
    metadata = {"exercise_id": exercise_id} if exercise_id else {}
    if role != "given":
        metadata["tags"] = [role]
    return {"cell_type": "code", "id": cell_id, "source": source, "metadata": metadata,
            "outputs": [], "execution_count": None}  # fmt: skip


def deleted(cells, n):
    del cells[place(cells, n)]


def emptied(cells, n):
    cells[place(cells, n)]["source"] = ""


def split_in_two(cells, n):
    """JupyterLab copies the metadata to both halves."""
    at = place(cells, n)
    head = cells[at]["source"].split("    return")[0]
    cells[at]["source"] = head + "    number = number + number\n"
    cells.insert(at + 1, code_cell("    return number", "exercise", f"90.{n}", "half"))


def copied_below(cells, n):
    at = place(cells, n)
    right = cells[at]["source"]
    cells[at]["source"] = right.replace("2 * number", "7")
    cells.insert(at + 1, code_cell(right, "exercise", f"90.{n}", "copy"))


def merged_with_its_check(cells, n):
    cells[place(cells, n)]["source"] += f"\ncheck('90.{n}', double_{n})"
    del cells[place(cells, n, "check")]


def merged_with_the_next(cells, n):
    cells[place(cells, n)]["source"] += "\n\n" + cells[place(cells, n + 1)]["source"]
    del cells[place(cells, n + 1)]


def turned_into_text(cells, n):
    cells[place(cells, n)]["cell_type"] = "markdown"


def moved_to_the_end(cells, n):
    cells.append(cells.pop(place(cells, n)))


def metadata_removed(cells, n):
    cells[place(cells, n)]["metadata"] = {}


def check_deleted(cells, n):
    del cells[place(cells, n, "check")]


def check_edited(cells, n):
    cells[place(cells, n)]["source"] = f"def double_{n}(number):\n    return 1000"
    cells[place(cells, n, "check")]["source"] = "print('passed (1 of 1 points)')"


def helper_added(cells, n):
    at = place(cells, n)
    cells[at]["source"] = f"def double_{n}(number):\n    return times(number, 2)"
    cells.insert(at, code_cell("def times(a, b):\n    return a * b"))


def import_added_to_the_setup(cells, n):
    cells[0]["source"] += "\nimport math"
    cells[place(cells, n)]["source"] = f"def double_{n}(number):\n    return math.floor(number) * 2"


def half_a_character(cells, n):
    """A smiley that was cut in two; in the file it stands as an escape."""
    cells.insert(place(cells, n), code_cell("# well done \ud83d"))


def ask_in_the_cell(cells, n):
    cells.insert(place(cells, n), code_cell("name = input('Your name? ')"))
