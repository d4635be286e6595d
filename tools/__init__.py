"""From percent sources to notebooks and back, and the lints that keep them honest.

    sources/lessons/NN__topic.py    -> notebooks/NN__topic.ipynb   executed, outputs stored
    sources/exercises/NN__topic.py  -> exercises/NN__topic.ipynb   solutions cut, no outputs
                                    -> solutions/NN__topic.ipynb   solved, executed

    python -m tools build [STEM ...] [--force]   rebuild what is stale (all: --force)
    python -m tools check                        staleness and lints, nothing is executed
    python -m tools back NOTEBOOK ...            edits made in JupyterLab -> the source
    python -m tools time [STEM ...]              CPU seconds against the budgets, nothing written
    python -m tools site [--out DIR]             the course as web pages
    python -m tools colab --repository URL --out DIR   copies of the notebooks for Colab
    python -m tools new chapter | exercise | model     begin one, and say what comes next

A source is jupytext's percent format. A cell starts with a header line:

    # %% [markdown]
    # %%
    # %% tags=["nbval-ignore-output"]
    # %% exercise_id="01.1" points=3 tags=["exercise"]
    # %% exercise_id="01.1" tags=["check"]

Only the keys tags, exercise_id, points, editable and deletable are known. Check cells are
locked (editable and deletable false) whether or not the source says so.

**An exercise** is three or more cells, in this order:

1. Markdown with its header: the id, a title, `difficulty n/5`, `importance n/5`, minutes.
2. One code cell tagged `exercise`, with `exercise_id` and `points`. Every line between
   `### BEGIN SOLUTION` and `### END SOLUTION` is the solution; the exercise notebook has one
   line `...` in its place, at the indentation of the BEGIN line. A function then holds its
   signature, its docstring and `...`. The solution notebook has the lines without the markers.
3. A code cell tagged `check` with the same `exercise_id`: `check("01.1", my_function)`.

Cells tagged `predict`, plain code cells (the setup: `from grading import check, hint, predict`)
and markdown may stand anywhere. Hints in text are folds: `<details><summary>Hint</summary>`.

**A lesson** begins with `# title`, says how long it takes (minutes or hours) and has a heading
or line that says "objectives", followed by at most six list items, before its first code cell.

**Bytes are the same on each build**: no timing or widget metadata, one kernelspec, and cell
ids made from the cell (its text, or its exercise id), so that they stay when others change.
"""
