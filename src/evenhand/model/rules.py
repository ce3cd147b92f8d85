"""The rules by which scores of cells become an allocation, by name. Light: `--help` reads it.

    greedy              cells are served by falling score, as many arms as fit (`kernels.copies`)
    priority-sampling   the paper's Algorithm 1: arms are drawn by priority (`kernels.priorities`)

The array that comes of it, how many arms of a state get an action, is an `allocation`; the rule is an `AllocationRule`.
"""

from typing import Literal, get_args

AllocationRule = Literal["greedy", "priority-sampling"]

ALLOCATION_RULES: tuple[AllocationRule, ...] = get_args(AllocationRule)
