"""Two moments in the import of triton that the course must not miss.

Triton reads TRITON_INTERPRET while it is being imported: `tl.max` and its like are
decorated then. So the backend has to be chosen *before* triton runs, and the bounds
checker put in *after* triton's interpreter has been loaded, no matter whether a
kernel of ours or a cell of the reader's imports triton first.
"""

import importlib.abc
import importlib.machinery
import sys

TRITON = "triton"
INTERPRETER = "triton.runtime.interpreter"


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader would, with one step before or after."""

    def __init__(self, inner, before=None, after=None):
        self.inner, self.before, self.after = inner, before, after

    def create_module(self, spec):
        return self.inner.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.inner
        if self.before:
            self.before()
        self.inner.exec_module(module)
        if self.after:
            self.after()


class _Watch(importlib.abc.MetaPathFinder):
    """Finds triton where Python would find it, and wraps the loader."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in (TRITON, INTERPRETER):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        if fullname == TRITON:
            spec.loader = _Loader(spec.loader, before=_choose_backend)
        else:
            spec.loader = _Loader(spec.loader, after=_install_checks)
        return spec


def _choose_backend():
    from kernels import backend

    backend.current()


def _install_checks():
    from kernels import interpreter

    interpreter.install()


def watch():
    """Start watching for triton's import. Calling it again changes nothing."""
    if not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())
    if INTERPRETER in sys.modules:  # triton was imported in interpreter mode before us
        _install_checks()
