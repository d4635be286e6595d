"""Named wrong answers, one module a chapter: each is an answer that runs."""
