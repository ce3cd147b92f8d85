"""Compiled loops survive a fork: in a forked process one thread does all of a parallel loop.

A fork copies memory and not threads. GNU OpenMP, which Numba's loops use on Linux, ends a process that enters a loop
after the fork of a parent that has entered one, and `multiprocessing.Pool` then starts another in its place, without
end. Numba calls its threads through one symbol, `numba_parallel_for`. Before any loop is linked, that symbol is bound
to a door, some lines of machine code made here:

    alone(process, threads)   if the process is not the one that made the door, or one thread is asked for
        kernel(arguments, dimensions, steps, data)      the whole loop, by who calls
    otherwise
        Numba's own parallel_for(...)

The code of a loop is the same behind the door and before it, so results are the same to the last bit. A process that is
spawned, and not forked, makes a door of its own and has all threads.
"""

import os
import struct
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import Lock
from typing import Any

_SYMBOL = "numba_parallel_for"
_POINTERS, _NUMBERS = 5, 3
"""What it takes: kernel, arguments, dimensions, steps and data; inner dimensions, arrays and threads."""

_kept: list[Any] = []
_maker: list[int] = []
_in_turn = Lock()


@cache
def start_threads() -> None:
    """Start Numba's threads, once, behind the door."""
    from numba import get_num_threads
    from numba.core.compiler_lock import global_compiler_lock

    with global_compiler_lock:
        get_num_threads()  # the first call starts them
        if hasattr(os, "fork") and not _maker:
            _make_door()


def forked() -> bool:
    """Whether this process was forked from one that had started its threads: then one thread does all work."""
    return bool(_maker) and _maker[0] != os.getpid()


def one_at_a_time() -> AbstractContextManager[object]:
    """A lock for who wants several threads, where Numba's threads cannot serve two callers at once."""
    import numba

    return _in_turn if numba.threading_layer() == "workqueue" else nullcontext()  # type: ignore[attr-defined]


def _make_door() -> None:
    import llvmlite.binding as llvm
    from numba.core.registry import cpu_target

    threads = llvm.address_of_symbol(_SYMBOL)
    if threads is None:  # a Numba that names it otherwise: its loops are left as they are
        return
    library = cpu_target.target_context.codegen().create_library("evenhand.forks")
    library.add_ir_module(_door(library.create_ir_module("evenhand.forks"), threads))
    library.finalize()
    llvm.add_symbol(_SYMBOL, library.get_pointer_to_function("evenhand_parallel_for"))
    _kept.append(library)
    _maker.append(os.getpid())


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
