"""The rules by which scores of cells become an allocation, by name. Light: `--help` reads it.

    greedy              cells are served by falling score, as many arms as fit (`kernels.env_step`)
    priority-sampling   the paper's Algorithm 1: arms are drawn by priority (`kernels.priorities`)

In code an `allocation` is the resulting array, the number of arms of a state that get each action, and the rule is a
`rule`. As a setting of training and in files, the rule is called `allocation`.
"""

from typing import Literal, get_args

AllocationRule = Literal["greedy", "priority-sampling"]

ALLOCATION_RULES: tuple[AllocationRule, ...] = get_args(AllocationRule)
