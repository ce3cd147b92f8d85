"""Compiled loops survive a fork: in a forked process one thread does all of a parallel loop.

A fork copies memory and not threads. GNU OpenMP, which Numba's loops use on Linux, ends a process that enters a loop
after the fork of a parent that has entered one, and `multiprocessing.Pool` then starts another in its place, without
end. Numba calls its threads through one symbol, `numba_parallel_for`. Before any loop is linked, that symbol is bound
to a door, some lines of machine code made here:

    alone(process, threads)   if the process is not the one that made the door, or one thread is requested
        kernel(arguments, dimensions, steps, data)      the whole loop, by who calls
    otherwise
        Numba's own parallel_for(...)

The code of a loop is the same behind the door and before it, so results are the same to the last bit. A process that is
spawned, and not forked, makes a door of its own and has all threads.

The door fits what Numba does since 0.60. How a Numba calls its threads is read in its own sources; one that does so in
another way, or does not let a door be made, gets none. Its loops are then compiled for one thread (`jit`): such a Numba
costs speed, and nothing else, and it is said in one line.
"""

import inspect
import os
import re
import struct
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

from evenhand.errors import OneThread

_SYMBOL = "numba_parallel_for"
_POINTERS, _NUMBERS = 5, 3
"""Numbers of its pointers (kernel, arguments, dimensions, steps, data) and integers (inner dimensions, arrays,
threads)."""

_FORM = (
    "ir.FunctionType(ir.VoidType(),[byte_ptr_t]*5+[intp_t,]*3)",
    "mod,parallel_for_ty,'numba_parallel_for'",
    "[args,dimensions,steps,data]",
    "builder.call(parallel_for,[fnptr]+innerargs+[intp_t(x)forxin(inner_ndim,array_count)]+[num_threads])",
)
"""The call of threads in Numba's `build_gufunc_kernel`, without white space."""

_kept: list[Any] = []
_maker: list[int] = []
_in_turn = Lock()


@cache
def start_threads() -> bool:
    """Start Numba's threads, once, behind the door. Whether compiled loops may use them."""
    import numba

    with _while_nothing_compiles():
        numba.get_num_threads()  # the first call starts them
        if not hasattr(os, "fork"):
            return True
        made = _make_door_if_it_fits()
        _maker.append(os.getpid())
    if not made:
        words = f"compiled loops use one thread: how Numba {numba.__version__} calls its threads is not known here"
        warnings.warn_explicit(words, OneThread, "evenhand", 0)
    return made


def forked() -> bool:
    """True if this process was forked from one that had started its threads: then one thread does all work."""
    return bool(_maker) and _maker[0] != os.getpid()


def one_at_a_time() -> AbstractContextManager[object]:
    """A lock for who wants several threads, where Numba's threads cannot serve two callers at once."""
    import numba

    layer = numba.threading_layer()  # type: ignore[attr-defined,unused-ignore]
    return _in_turn if layer == "workqueue" else nullcontext()


def _while_nothing_compiles() -> AbstractContextManager[object]:
    """Numba's lock of its compiler."""
    try:
        from numba.core.compiler_lock import global_compiler_lock
    except ImportError:
        return nullcontext()
    return global_compiler_lock


def _make_door_if_it_fits() -> bool:
    """Make the door if Numba has the expected form; True if there is a door now."""
    try:
        return _fits() and _make_door()
    except Exception:  # noqa: BLE001  # whatever a new Numba or LLVM refuses, its loops can do without threads
        return False


def _fits() -> bool:
    """True if Numba calls its threads as the door does."""
    # By its source text: no version or interface shows it.
    from numba.np.ufunc import parallel

    source = re.sub(r"\s", "", inspect.getsource(parallel.build_gufunc_kernel)).replace('"', "'")
    return all(form in source for form in _FORM)


def _make_door() -> bool:
    import llvmlite.binding as llvm
    from numba.core.registry import cpu_target

    # Numba's own, before the name is bound to the door.
    threads = llvm.address_of_symbol(_SYMBOL)
    if threads is None:
        return False
    library = cpu_target.target_context.codegen().create_library("evenhand.forks")
    library.add_ir_module(_door(library.create_ir_module("evenhand.forks"), threads))
    library.finalize()
    llvm.add_symbol(_SYMBOL, library.get_pointer_to_function("evenhand_parallel_for"))
    # The library must live as long as loops may call it.
    _kept.append(library)
    return True


def _door(module: Any, threads: int) -> Any:
    """The module with the door in it.

    Args:
        module: of LLVM's intermediate language, empty.
        threads: the address of Numba's own.
    """
    from llvmlite import ir

    nothing, pointer, number, process = (
        ir.VoidType(),
        ir.PointerType(ir.IntType(8)),
        ir.IntType(8 * struct.calcsize("P")),
        ir.IntType(32),
    )
    signature = ir.FunctionType(nothing, [pointer] * _POINTERS + [number] * _NUMBERS)
    kernel_signature = ir.FunctionType(nothing, [pointer] * (_POINTERS - 1))
    door = ir.Function(module, signature, name="evenhand_parallel_for")
    who = ir.Function(module, ir.FunctionType(process, []), name="getpid")
    build = ir.IRBuilder(door.append_basic_block("door"))
    # Forked: the number of this process is not the one that is written into the code.
    same = build.icmp_signed("==", build.call(who, []), ir.Constant(process, os.getpid()))
    several = build.icmp_signed(">", build.trunc(door.args[-1], process), ir.Constant(process, 1))
    with build.if_else(build.and_(same, several)) as (together, alone):
        with together:
            address = ir.Constant(number, threads)
            build.call(build.inttoptr(address, ir.PointerType(signature)), door.args)
        with alone:
            kernel = build.bitcast(door.args[0], ir.PointerType(kernel_signature))
            build.call(kernel, door.args[1:_POINTERS])
    build.ret_void()
    return module
