"""Triton's interpreter, with bounds, counts, right casts and less overhead.

The interpreter runs a kernel as Python on numpy arrays. This file extends two of its
classes: the builder, which carries out each operation, and the grid executor, which runs
one launch. They are private to triton; `kernels.backend` uses the interpreter only in
the versions that were read (3.7 to 3.9). `kernels.first_import` calls `install()` as
soon as the interpreter is loaded, so a reader's own kernel is checked as well.
"""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernels import bounds
from kernels.interpreter_casts import CastingBuilder, CastingReduce, CastingScan


class CheckedBuilder(CastingBuilder):
    """Looks at every address before it is used."""

    launch = None  # the arguments of the launch that is running
    patches = 0  # how many times the language is patched now

    # A pointer remembers the argument it was made from, through every step of arithmetic.
    def create_addptr(self, ptr, offset):
        return _inherit(super().create_addptr(ptr, offset), ptr)

    def create_splat(self, *args):
        return _inherit(super().create_splat(*args), *args)

    def create_unsplat(self, arg):
        return _inherit(super().create_unsplat(arg), arg)

    def create_broadcast(self, arg, shape):
        return _inherit(super().create_broadcast(arg, shape), arg)

    def create_expand_dims(self, arg, axis):
        return _inherit(super().create_expand_dims(arg, axis), arg)

    def create_reshape(self, arg, *rest):
        return _inherit(super().create_reshape(arg, *rest), arg)

    def create_trans(self, arg, perm):
        return _inherit(super().create_trans(arg, perm), arg)

    def create_bitcast(self, src, dst_type):
        return _inherit(super().create_bitcast(src, dst_type), src)

    def create_masked_load(self, ptrs, mask, *rest):
        self._visit("load", ptrs, mask)
        return super().create_masked_load(ptrs, mask, *rest)

    def create_masked_store(self, ptrs, value, mask, *rest):
        self._visit("store", ptrs, mask)
        return super().create_masked_store(ptrs, value, mask, *rest)

    def create_atomic_rmw(self, operation, ptr, val, mask, *rest):
        self._visit("load", ptr, mask, shown="atomic")
        self._visit("store", ptr, mask, shown="atomic")
        return super().create_atomic_rmw(operation, ptr, val, mask, *rest)

    def create_atomic_cas(self, ptr, *rest):
        self._visit("load", ptr, None, shown="atomic_cas")
        self._visit("store", ptr, None, shown="atomic_cas")
        return super().create_atomic_cas(ptr, *rest)

    def _visit(self, what, ptrs, mask, shown=None):
        launch = self.launch
        if launch is None:
            return
        addresses = ptrs.data
        chosen = np.broadcast_to(np.bool_(True) if mask is None else mask.data, addresses.shape)
        elements = int(np.count_nonzero(chosen))
        if not elements:
            return
        size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
        argument = ptrs.attr.get("argument")
        if argument is None:
            argument = bounds.owner(addresses, chosen, launch.arguments, size)
            wrong = argument is None
        else:
            wrong = bounds.outside(addresses, chosen, argument, size).any()
        if wrong:
            raise IndexError(bounds.complaint(shown or what, launch.kernel, self.grid_idx,
                                              addresses, chosen, argument, launch.arguments))
        for counts in bounds.listeners():
            counts.note(launch.kernel, argument.name, what, elements, elements * size)


def _inherit(result, *sources):
    """Hand the argument a pointer stems from on to a pointer computed from it."""
    for source in sources:
        argument = getattr(source, "attr", {}).get("argument")
        if argument is not None:
            result.attr["argument"] = argument
            break
    return result


@dataclasses.dataclass(frozen=True)
class Launch:
    """The kernel that is running, and the tensors it was given."""

    kernel: str
    arguments: tuple[bounds.Argument, ...]
    by_tensor: dict[int, bounds.Argument]  # id of the host tensor -> its argument


class CheckedExecutor(stock.GridExecutor):
    """One launch: knows its tensors, copies nothing on a CPU, raises what was raised."""

    def _init_args_hst(self, args_dev, kwargs):
        args, named = super()._init_args_hst(args_dev, kwargs)
        arguments, by_tensor = [], {}
        for name, value in [*zip(self.arg_names, args), *named.items()]:
            for label, tensor in _tensors(name, value):
                argument = bounds.Argument.of(label, stock._unwrap_tensor(tensor))
                arguments.append(argument)
                by_tensor[id(tensor)] = argument
        builder = stock.interpreter_builder
        builder.launch = Launch(self.fn.__name__, tuple(arguments), by_tensor)
        return args, named

    def _restore_args_dev(self, args_dev, args_hst, kwargs, kwargs_hst):
        """Results go back to the device. On a CPU they are where they belong already."""
        pairs = [*zip(args_dev, args_hst), *((kwargs[name], kwargs_hst[name]) for name in kwargs)]
        moved = [pair for pair in pairs if not _same_memory(*pair)]
        if moved:
            super()._restore_args_dev([a for a, _ in moved], [b for _, b in moved], {}, {})

    def __call__(self, *args, **kwargs):
        builder = stock.interpreter_builder
        before = builder.launch, builder.options
        checked = bounds.overflow_is_checked()
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=checked,
                                              debug=checked)
        try:
            result = super().__call__(*args, **kwargs)
        except stock.InterpreterError as error:
            raise _first_cause(error, builder) from None
        finally:
            builder.launch, builder.options = before
        for counts in bounds.listeners():
            counts.launches += 1
            counts.programs += int(np.prod(builder.grid_dim))
        return result


def _tensors(name, value):
    """The tensors in one argument, each with the name a message should use."""
    if isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _tensors(f"{name}[{index}]", item)
    elif hasattr(value, "block_shape") and hasattr(value, "base"):  # a tensor descriptor
        yield from _tensors(name, value.base)
    elif hasattr(value, "data_ptr"):
        yield name, value


def _same_memory(on_device, on_host) -> bool:
    if not hasattr(on_device, "data_ptr"):
        return False
    return on_device.data_ptr() == on_host.data_ptr()


def _first_cause(error, builder) -> Exception:
    """The exception the kernel itself raised, under triton's layers of InterpreterError."""
    cause = error
    while isinstance(cause, stock.InterpreterError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, AssertionError) and "overflow" in str(cause):
        program = tuple(int(i) for i in builder.grid_idx)
        return OverflowError(
            f"kernel {builder.launch.kernel}, program {program}: {cause}."
            " Multiply in 64 bits: offset.to(tl.int64) * stride").with_traceback(
                cause.__traceback__)
    return cause


class _Patched:
    """The language patched once for a launch, however many functions it calls."""

    def __init__(self, scope):
        self.scope = scope

    def restore(self):
        if self.scope is not None:
            self.scope.restore()
            stock.interpreter_builder.patches -= 1


def _patch_once(patch):
    namespace = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})

    def patch_lang(_function):
        builder = stock.interpreter_builder
        if builder.patches:
            return _Patched(None)
        scope = patch(namespace)
        builder.patches += 1
        return _Patched(scope)

    return patch_lang


def _tag_pointers(convert):
    def implicit_cvt(arg):
        value = convert(arg)
        launch = stock.interpreter_builder.launch
        if launch is not None and id(arg) in launch.by_tensor:
            value.handle.attr["argument"] = launch.by_tensor[id(arg)]
        return value

    return implicit_cvt


def install() -> None:
    """Put the checks into triton's interpreter. Calling it again changes nothing."""
    if isinstance(stock.interpreter_builder, CheckedBuilder):
        return
    stock.interpreter_builder.__class__ = CheckedBuilder
    stock.GridExecutor = CheckedExecutor
    stock.ReduceOps, stock.ScanOps = CastingReduce, CastingScan
    stock._patch_lang = _patch_once(stock._patch_lang)
    stock._implicit_cvt = _tag_pointers(stock._implicit_cvt)
