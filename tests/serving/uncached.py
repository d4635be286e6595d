"""A server that stores nothing: it runs each request's whole history again, in the same pieces.

V4.1's decoder runs once after each prompt and then at every word of an answer, so what it has
seen depends on where prompts ended, and not on the text alone. This keeps, for each place where
the engine keeps windows, the list of what was run to get there.
"""

import torch

READ, ASK, WRITE = "read", "ask", "write"  # a prompt's pieces, its end, a word of the answer


class Uncached:
    def __init__(self, model, step):
        self.model, self.step, self.ways = model, step, {}

    def serve(self, prompt, new, hit):
        """Logits of the first token, and the answer; begun where `hit` tokens had been run."""
        text, way = list(prompt), self.ways[tuple(prompt[:hit])] if hit else ()
        memory = self.model.new_cache(1, len(text) + new, "float64")
        for kind, tokens in way:
            self._run(memory, kind, tokens)
        whole = (len(text) - 1) // self.step * self.step
        if hit < whole:
            way = self._go(memory, way, READ, text[hit:whole])
            self.ways[tuple(text[:whole])] = way
        way = self._go(memory, way, ASK, text[whole:])
        first_V = self.logits_V
        answer = [int(first_V.argmax())]
        self._keep(text, way)
        for _ in range(new - 1):
            way = self._go(memory, way, WRITE, answer[-1:])
            text.append(answer[-1])
            answer.append(int(self.logits_V.argmax()))
            if len(text) == (len(prompt) + new - 1) // self.step * self.step:
                self._keep(text, way)
        return first_V, tuple(answer)

    def _keep(self, text, way):
        if len(text) % self.step == 0:
            self.ways[tuple(text)] = way

    def _go(self, memory, way, kind, tokens):
        self._run(memory, kind, tokens)
        return (*way, (kind, tokens))

    def _run(self, memory, kind, tokens):
        tokens = torch.tensor([tokens])
        if kind == WRITE:
            self.logits_V = self.model(tokens, memory)[0, -1]
        elif kind == ASK:
            self.logits_V = self.model.prefill(tokens, memory)[0]
        else:
            self.model.prefill(tokens, memory, last=False)
