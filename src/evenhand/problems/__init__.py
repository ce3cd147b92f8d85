"""Named instances of the problem: each factory turns a few readable parameters into a CoupledMDP.

machine_replacement and heterogeneous_machine_replacement, random_coupled, health_outreach, crew_maintenance; the
instances of the literature (three_states, eight_states, non_sa, non_indexable, equitable, three_machines,
bayesian_bandit); and the catalog, which finds them by name and reads their parameters from text (CATALOG, Entry,
Parameter, names, find, build).

Example:
    >>> import evenhand as eh
    >>> eh.problems.machine_replacement(num_arms=5)
    CoupledMDP(5 arms, identical, 1 resource, discount 0.95)
    >>> [parameter.name for parameter in eh.problems.find("crew-maintenance").parameters][:2]
    ['num_arms', 'num_states']
"""

from evenhand.problems.catalog import CATALOG, Entry, Parameter, build, find, names
from evenhand.problems.crew_and_parts import crew_maintenance
from evenhand.problems.health_outreach import health_outreach
from evenhand.problems.literature import (
    bayesian_bandit,
    eight_states,
    equitable,
    non_indexable,
    non_sa,
    three_machines,
    three_states,
)
from evenhand.problems.machine_replacement import heterogeneous_machine_replacement, machine_replacement
from evenhand.problems.random_arms import random_coupled

__all__ = [
    "CATALOG",
    "Entry",
    "Parameter",
    "bayesian_bandit",
    "build",
    "crew_maintenance",
    "eight_states",
    "equitable",
    "find",
    "health_outreach",
    "heterogeneous_machine_replacement",
    "machine_replacement",
    "names",
    "non_indexable",
    "non_sa",
    "random_coupled",
    "three_machines",
    "three_states",
]
