"""The course as web pages: `python3 course.py site [--out DIR]`.

    chapters.py    the chapters: titles, what each stands on, minutes, its number
    words.py       markdown -> HTML, links between notebooks -> links between pages
    cells.py       one notebook -> the HTML of its cells, its sections, its pictures
    dark.py        a picture's twin for the dark theme
    glossary.py    a place for each term, and all its names
    search.py      what the search knows; find.js ranks it in the browser
    live.py        two widgets that move without a kernel, from numbers that Python wrote
    pages.py       what stands around: head, navigation, the front page
    write.py       all of it into a folder, whole or not at all

The pages need no server and no network: a folder that opens from a disk. A notebook's outputs
are shown as they are stored; nothing is executed here.
"""
