"""Policies as files: arrays and a manifest in one zip archive, nothing that could run.

    manifest.json   format, schema, kind, the problem's signature, shape and objective, what made it, and of every array
                    its shape, dtype and SHA-256
    NAME.npy        one array each, never pickled
    model.npz       the problem it was made for, and perhaps arms.json, the names of its arms (`carried`)

A policy by steps has the `kind` of its parts and their number; its arrays are those of the parts, stacked, or one after
the other where their lengths differ. A mixture has its parts one by one, each with arrays of its own, and their shares.

A policy of someone's own (`kind`, `arrays()`) has the kind `own`, what its class is called, and the names of its
arrays. It is read only by who has that class and gives it: a file cannot ask for anything to be imported or run.

A file is read only if its manifest is understood, every array is the one the manifest describes, and the policy was
made for the very problem it is asked to play. It plays that problem under any criterion. Trained networks have files of
their own kind (`networks`).
"""

import hashlib
import io
import tokenize
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from evenhand._version import __version__
from evenhand.errors import NotApplicable, PolicyError
from evenhand.kernels.lattice import lattice_index, lattice_points
from evenhand.model.composite import BySteps, Mixture
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import MOST_STEPS
from evenhand.model.policy import Policy, SavableKind, Starting, capabilities
from evenhand.model.simulator import Simulator, needs_tables
from evenhand.planning import carried, networks
from evenhand.planning.archives import (
    check_parts,
    check_size,
    guarded,
    read_facts,
    read_manifest,
    read_part,
    write_archive,
)
from evenhand.planning.own_kinds import MOST_AXES, OWN, Kinds, build_own, own_names, read_kinds, take_own_apart
from evenhand.planning.solution import Solution
from evenhand.policies.baselines import random_feasible
from evenhand.policies.fluid import OccupancyPriority, Resolving
from evenhand.policies.network import CountNetworkPolicy, JointNetworkPolicy
from evenhand.policies.priority import ExchangeablePriority
from evenhand.policies.round_robin import RoundRobin
from evenhand.reductions.counts import CountChoices, Counts, CountTable, TypedChoices
from evenhand.reductions.joint import Joint, JointTable
from evenhand.typing import Array

FORMAT = "evenhand-policy"
SCHEMA = 1

MOST_VALUES = 10_000
"""Values that a manifest has room for; of more types there are none in it."""


# -- out -------------------------------------------------------------------------------------------------------------


def save_policy(
    policy: Policy | Starting, problem: CoupledMDP, path: str | Path, about: dict[str, Any] | None = None
) -> None:
    """Write a policy that is a table, a trained network, or one of one's own that gives itself as arrays.

    Args:
        policy: from `solve`; or of a class with a text `kind`, a method `arrays()` and a class method
            `from_arrays(problem, arrays)`, which `load_policy` is then given.
        problem: what it was made for; the file carries it.
        path: where to; an existing file is replaced as a whole.
        about: facts for the manifest, such as the method and the certificate.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_policy(eh.policies.whittle(problem), problem, "policy.zip")
        >>> eh.load_policy("policy.zip", problem)
        ExchangeablePriority(for 3 arms)
    """
    # Networks are tensors, and have a format of their own.
    if isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy)):
        networks.save_network(policy, path, about)
        return
    problem = needs_tables(problem, "a saved policy", "A trained network is saved without them.")
    carries, carried_bodies = carried.pack(problem)
    form, arrays = _take_apart(policy)
    bodies = {name: _npy(array) for name, array in arrays.items()}
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "evenhand": __version__,
        **form,
        "problem": _identity(problem),
        "about": about or {},
        "carries": carries,
        "arrays": {name: _facts(arrays[name], bodies[name]) for name in arrays},
    }
    write_archive(Path(path), manifest, {f"{name}.npy": body for name, body in bodies.items()} | carried_bodies)


def save_solution(solution: Solution, path: str | Path, asked: Sequence[str] = ()) -> None:
    """Write a solution's policy, with its certificate in the manifest: a plan, for `load_plan`.

    Args:
        solution: from `solve`.
        path: where to; an existing file is replaced as a whole.
        asked: the model and the options that it was solved with, as words of a command line; they are told in the file.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_solution(eh.solve(problem), "plan.zip")
        >>> eh.load_policy("plan.zip", problem)
        CountChoices(for 3 arms)
    """
    save_policy(solution.policy, solution.problem, path, facts_of(solution, asked))


def facts_of(solution: Solution, asked: Sequence[str] = ()) -> dict[str, Any]:
    """What a plan tells of itself.

    Args:
        solution: the solution.
        asked: the model and the options that it was solved with, as words of a command line.
    """
    # Millions of arms have no place in a manifest that people may read.
    few = len(solution.unit_values) <= MOST_VALUES
    return {
        "method": solution.method,
        "welfare": solution.objective.welfare.name,
        "criterion": solution.problem.criterion.name,
        "over": solution.problem.over,
        "value": solution.welfare,
        "upper_bound": solution.upper_bound,
        "gap": solution.gap,
        "stderr": solution.welfare_stderr,
        "parts": [{"policy": part.name, "share": part.share} for part in solution.parts],
        "optimism": solution.optimism,
        "kept_welfare": solution.kept_welfare,
        "prices": solution.prices,
        "by": "type" if solution.by_type else "arm",
        "values": solution.unit_values.tolist() if few else None,
        "asked": list(asked),
    }


def load_policy(
    path: str | Path, problem: CoupledMDP | Simulator, kinds: Sequence[SavableKind] = ()
) -> Policy | Starting:
    """Read a policy for a problem.

    A table plays the very problem it was made for. A trained network plays any number of such arms, with any budget.

    Args:
        path: from `save_policy`, `save_solution`, `Training.save`, or the command line.
        problem: what it is to play.
        kinds: classes of policies of one's own (`kind`, `from_arrays`), if the file holds such.

    Raises:
        PolicyError: the file is not sound, or the policy was made for another problem; says how they differ.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_solution(eh.solve(problem), "plan.zip")
        >>> round(eh.evaluate(eh.load_policy("plan.zip", problem), problem).welfare, 4)
        14.0793
    """
    known = read_kinds(kinds)
    found: tuple[Policy | Starting, bool] = guarded(Path(path), lambda file: _read(file, problem, known))
    policy, strange = found
    if strange:
        told = "this network was trained on arms with other transitions, rewards or first states"
        warnings.warn(told, networks.OtherDynamics, stacklevel=2)
    return policy


def load_carried(
    path: str | Path, kinds: Sequence[SavableKind] = ()
) -> tuple[Policy | Starting, CoupledMDP, dict[str, Any]]:
    """A policy, the problem that its file carries, and what the file tells of itself.

    Args:
        path: the file.
        kinds: see `load_policy`.

    Raises:
        PolicyError: the file is not sound, or carries no problem.
    """
    known = read_kinds(kinds)
    found: tuple[Policy | Starting, CoupledMDP, dict[str, Any]] = guarded(
        Path(path), lambda file: _read_carried(file, known)
    )
    return found


# -- in --------------------------------------------------------------------------------------------------------------


def _read_carried(file: zipfile.ZipFile, kinds: Kinds) -> tuple[Policy | Starting, CoupledMDP, dict[str, Any]]:
    manifest = read_manifest(file, (FORMAT, networks.FORMAT), SCHEMA)
    check_size(file)  # the model is unpacked before anything says which parts there should be
    problem = carried.unpack(file, manifest)
    about = manifest.get("about")
    return _read(file, problem, kinds)[0], problem, about if isinstance(about, dict) else {}


def rebuilt(policy: Policy | Starting, problem: CoupledMDP) -> Policy | Starting:
    """The same policy for a problem that differs in rewards or transitions only, as if it was saved and read.

    Args:
        policy: one that can be saved.
        problem: with the same types of arms.
    """
    # What the file would hold is enough to build it again, whatever it was made for.
    form, arrays = _take_apart(policy)
    return _build(form, problem, arrays, {})


# -- taking a policy apart -------------------------------------------------------------------------------------------


def _take_apart(policy: Policy | Starting) -> tuple[dict[str, Any], dict[str, Array]]:
    """What the manifest says of a policy's form, and its arrays."""
    # Policies made of others first; then those of users' own; then the tables of the library.
    if isinstance(policy, BySteps):
        return _take_steps_apart(policy)
    if isinstance(policy, Mixture):
        if any(isinstance(part, Mixture) for part in policy.parts):
            raise NotApplicable("a mixture of mixtures cannot be saved; mix their parts themselves")
        parts = [_take_apart(part) for part in policy.parts]
        arrays = {f"{i}.{name}": array for i, (_, own) in enumerate(parts) for name, array in own.items()}
        form: dict[str, Any] = {"kind": "mixture", "parts": [form for form, _ in parts]}
        # Absent means drawn once: files of old have no such key.
        if policy.rotate is not None:
            form["rotate"] = policy.rotate
        return form, {"shares": policy.shares, **arrays}
    if (own := capabilities(policy).saves) is not None:
        return take_own_apart(own)
    kind, arrays = _arrays_of(policy)
    return {"kind": kind}, arrays


def _take_steps_apart(policy: BySteps) -> tuple[dict[str, Any], dict[str, Array]]:
    if any(capabilities(part).saves is not None for part in policy.parts):
        raise NotApplicable("steps of a kind of your own cannot be saved one by one; let one policy have all steps")
    parts = [_arrays_of(part) for part in policy.parts]
    # One kind for all steps: it stands in the manifest once.
    kinds = {kind for kind, _ in parts}
    if len(kinds) > 1:
        raise NotApplicable(f"a policy whose steps are of several kinds ({', '.join(sorted(kinds))}) cannot be saved")
    form = {"kind": "by-steps", "part": parts[0][0], "steps": len(parts)}
    stacked: dict[str, Array] = {}
    for name in parts[0][1]:
        pieces = [arrays[name] for _, arrays in parts]
        # Lengths differ only for tables, which list pairs of positive probability: these go one after the other.
        if name in _RAGGED:
            stacked["lengths"] = np.array([len(piece) for piece in pieces])
            stacked[name] = np.concatenate(pieces)
        else:
            stacked[name] = np.stack(pieces)
    return form, stacked


def _arrays_of(policy: Policy | Starting) -> tuple[str, dict[str, Array]]:
    """The kind and the arrays of a policy that is not made of others."""
    if isinstance(policy, CountChoices):
        return "count-choices", {"cells": policy.cells, "base": policy.base, "amounts": policy.amounts}
    if isinstance(policy, TypedChoices):
        # A byte is enough for most allocations, and there are many.
        narrow = policy.allocations.astype(np.min_scalar_type(int(policy.allocations.max())))
        return "typed-choices", {"allocations": narrow, "picks": policy.picks}
    if (table := capabilities(policy).table) is not None:
        # Only pairs that have a chance: most have none.
        pairs = np.flatnonzero(table.probabilities)
        kind = "count-table" if isinstance(table.reduction, Counts) else "joint-table"
        return kind, {"pairs": pairs, "probabilities": table.probabilities[pairs]}
    if isinstance(policy, (CountNetworkPolicy, JointNetworkPolicy)):
        return "network", {"archive": _archive_of(policy)}
    if isinstance(policy, RoundRobin):
        return "round-robin", {}
    # Before the general one: it ranks nothing, and its scores would be read as ranks.
    if isinstance(policy, ExchangeablePriority) and policy.stop:
        return "random", {}
    if isinstance(policy, ExchangeablePriority):
        return "priority", {"scores": policy.scores, "threshold": np.array(policy.threshold)}
    if isinstance(policy, OccupancyPriority):
        return "drawn-priority", {"laws": policy.laws, "scores": policy.scores}
    if isinstance(policy, Resolving):
        pay = {} if policy.floor_prices is None else {"floor_prices": policy.floor_prices}
        steps = {"every": np.array(policy.every), "points": np.array(policy.points)}
        return "re-solving", {"weights": policy.weights, "prices": policy.prices, **pay, **steps}
    raise NotApplicable(
        f"a policy of type {type(policy).__name__} is not a table and cannot be saved. Use its name; or, if it is your "
        "own, let it give itself as arrays: a text kind, arrays(), and a class method from_arrays(problem, arrays)"
    )


def _archive_of(network: CountNetworkPolicy | JointNetworkPolicy) -> Array:
    """A network's own file, byte by byte: as part of a mixture."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "network.zip"
        networks.save_network(network, path, carry=False)
        return np.frombuffer(path.read_bytes(), dtype=np.uint8)


def _build_network(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    try:
        file = zipfile.ZipFile(io.BytesIO(arrays["archive"].astype(np.uint8).tobytes()))
    except zipfile.BadZipFile as error:
        raise PolicyError("one of its parts is said to be a network and is not") from error
    with file:
        return networks.read_network(file, read_manifest(file, (networks.FORMAT,), SCHEMA), problem)


def _npy(array: Array) -> bytes:
    body = io.BytesIO()
    # `allow_pickle=False`, here and in reading: an array of objects could run code.
    np.lib.format.write_array(body, np.asarray(array, order="C"), allow_pickle=False)
    return body.getvalue()


def _facts(array: Array, body: bytes) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": array.dtype.str, "sha256": hashlib.sha256(body).hexdigest()}


# -- is it the same problem? -----------------------------------------------------------------------------------------

DIFFERENCES = {
    "num_arms": "it is for {} arms, and here are {}",
    "num_types": "its arms are of {} types, and here of {}",
    "num_states": "its arms have {} states, and here {}",
    "num_actions": "its arms have {} actions, and here {}",
    "budget": "its budget is {}, and here {}",
    "discount": "its discount is {}, and here {}",
}
"""How a problem differs from the one that a policy was made for, in words."""


def _identity(problem: CoupledMDP) -> dict[str, Any]:
    return {
        "signature": problem.signature,
        "num_arms": problem.num_arms,
        "num_types": problem.num_types,
        # Equal numbers may be of another type under other groups or floors.
        "types": hashlib.sha256(problem.type_of_block.astype("<i4").tobytes()).hexdigest(),
        # A hundred are enough to tell how problems differ; the signature decides.
        "num_states": [int(s) for s in problem.types.num_states[:100]],
        "num_actions": [int(a) for a in problem.types.num_actions[:100]],
        "budget": [float(b) for b in problem.budget],
        "discount": problem.discount,
        "criterion": problem.criterion.name,
        "over": problem.over,
    }


def _made_for(facts: dict[str, Any], problem: CoupledMDP) -> CoupledMDP:
    """The problem under the objective that a policy was made for; files of old have none, and mean the problem's own.

    Types are cut at groups where welfare is over groups, so tables by type are read in the same way.
    """
    criterion, over = facts.get("criterion"), facts.get("over")
    if not all(fact is None or isinstance(fact, str) for fact in (criterion, over)):
        raise PolicyError("its manifest does not say what it was made for")
    return problem.with_criterion(criterion, over)


def _check_identity(made_for: dict[str, Any], problem: CoupledMDP) -> None:
    here = _identity(problem)
    # The signature has all numbers; the number of types tells whether they are cut alike.
    if all(made_for.get(name) == here[name] for name in ("signature", "num_types")):
        if made_for.get("types", here["types"]) == here["types"]:  # files of old do not say
            return
        raise PolicyError("made for another problem (other groups or floors tell its arms apart in another way)")
    differing = [name for name in DIFFERENCES if made_for.get(name) != here[name]]
    details = "; ".join(DIFFERENCES[name].format(_told(made_for.get(name)), _told(here[name])) for name in differing)
    raise PolicyError(f"made for another problem ({details or 'other transitions, rewards, usage or initial states'})")


def _told(fact: Any) -> str:
    """A fact of a problem, as it stands in a sentence."""
    if isinstance(fact, list):
        return " and ".join(map(_told, dict.fromkeys(fact))) if fact else "none"
    return f"{fact:.10g}" if isinstance(fact, (int, float)) and not isinstance(fact, bool) else str(fact)


# -- reading, with nothing taken on trust ----------------------------------------------------------------------------


def _read(file: zipfile.ZipFile, problem: CoupledMDP | Simulator, kinds: Kinds) -> tuple[Policy | Starting, bool]:
    """The policy, and whether it is a network that meets dynamics which it was not trained on."""
    manifest = read_manifest(file, (FORMAT, networks.FORMAT), SCHEMA)
    if manifest["format"] == networks.FORMAT:
        return networks.read_network(file, manifest, problem), networks.other_dynamics(manifest, problem)
    if isinstance(problem, Simulator):
        raise PolicyError("it is a table; only a trained network plays a simulator")
    arrays = _read_arrays(file, manifest)
    # Types are cut by the objective: under another one tables by type would be read wrongly.
    same = _made_for(manifest["problem"], problem)
    _check_identity(manifest["problem"], same)
    return _build(manifest, same, arrays, kinds), False


def _read_arrays(file: zipfile.ZipFile, manifest: dict[str, Any]) -> dict[str, Array]:
    # Which arrays there should be follows from the form alone; the file must have just these.
    described, expected = manifest.get("arrays"), _expected(manifest)
    needed = {name for name, spec in expected.items() if not spec.optional}
    if not isinstance(described, dict) or not needed <= set(described) <= set(expected):
        raise PolicyError(f"a policy of kind {manifest['kind']} has the arrays {', '.join(expected)}")
    check_parts(file, [*(f"{name}.npy" for name in described), *carried.parts_of(manifest)])
    carried.check(file, manifest)
    arrays = {name: _read_array(file, name, read_facts(described, name, {"sha256": str})) for name in described}
    for name, array in arrays.items():
        if array.dtype.kind not in expected[name].letters or array.ndim not in expected[name].axes:
            raise PolicyError(f"its array {name} is not of the right type and shape")
    return arrays


def _expected(form: dict[str, Any], depth: int = 0) -> dict[str, "_Spec"]:
    """The arrays that a form has."""
    kind = form.get("kind")
    # At depth 0 only: a mixture of mixtures is not written, and nesting could go on without end.
    if kind == "mixture" and depth == 0:
        parts = form.get("parts")
        if not isinstance(parts, list) or not 1 <= len(parts) <= MOST_PARTS:
            raise PolicyError("it does not say what it is a mixture of")
        if not all(isinstance(part, dict) for part in parts):
            raise PolicyError("it does not say what its parts are")
        own = {f"{i}.{name}": spec for i, part in enumerate(parts) for name, spec in _expected(part, 1).items()}
        rotate = form.get("rotate")
        if rotate is not None and (not isinstance(rotate, int) or isinstance(rotate, bool) or rotate < 1):
            raise PolicyError("it does not say after how many steps it draws anew")
        return {"shares": _Spec("f", (1,)), **own}
    if kind == "by-steps":
        part, steps = form.get("part"), form.get("steps")
        if part not in _ARRAYS or not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
            raise PolicyError("it does not say what its steps are")
        # Arrays that are stacked have one axis more; ragged ones stay as they are, and have lengths.
        own = {name: spec if name in _RAGGED else spec.stacked for name, spec in _ARRAYS[part].items()}
        return own | ({"lengths": _Spec("iu", (1,))} if set(own) & set(_RAGGED) else {})
    if kind == OWN:
        return {name: _Spec("biuf", tuple(range(MOST_AXES + 1))) for name in own_names(form)}
    if kind not in _ARRAYS or (kind == "network" and depth == 0):  # by itself it has a file of its own kind
        raise PolicyError(f"its kind {kind!r} is not known to this version")
    return dict(_ARRAYS[kind])


# -- building it again -----------------------------------------------------------------------------------------------


def _build(form: dict[str, Any], problem: CoupledMDP, arrays: dict[str, Array], kinds: Kinds) -> Policy | Starting:
    """The policy of a form and its arrays."""
    if form["kind"] == OWN:
        return build_own(form, problem, arrays, kinds)
    if form["kind"] == "mixture":
        parts = []
        for i, part in enumerate(form["parts"]):
            own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{i}.")}
            parts.append(_build(part, problem, own, kinds))
        return Mixture(parts, arrays["shares"], form.get("rotate"))
    if form["kind"] == "by-steps":
        built = [_BUILDERS[form["part"]](problem, own) for own in _step_arrays(form["steps"], arrays)]
        return BySteps([part for part in built if isinstance(part, Policy)])
    return _BUILDERS[form["kind"]](problem, arrays)


def _step_arrays(steps: int, arrays: dict[str, Array]) -> list[dict[str, Array]]:
    """The arrays of each step."""
    found: list[dict[str, Array]] = [{} for _ in range(steps)]
    for name, array in arrays.items():
        if name == "lengths":
            continue
        pieces: Sequence[Array] = list(array)
        if name in _RAGGED:
            lengths = arrays["lengths"]
            # Lengths come from a file: they must add up before anything is cut by them.
            if len(lengths) != steps or lengths.min() < 0 or lengths.sum() != len(array):
                raise PolicyError("the lengths of its steps are not those of its arrays")
            # Cut where the lengths say.
            pieces = np.split(array, np.cumsum(lengths)[:-1])
        if len(pieces) != steps:
            raise PolicyError(f"its array {name} has {len(pieces)} steps, not {steps}")
        for own, piece in zip(found, pieces, strict=True):
            own[name] = np.asarray(piece)
    return found


def _read_array(file: zipfile.ZipFile, name: str, facts: dict[str, Any]) -> Array:
    body = read_part(file, f"{name}.npy", facts["sha256"], f"array {name}")
    try:
        array: Array = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    except (ValueError, EOFError, TypeError, SyntaxError, UnicodeDecodeError, OverflowError, tokenize.TokenError):
        raise PolicyError(f"its array {name} is not an array of numbers as NumPy writes it") from None
    if list(array.shape) != facts.get("shape") or array.dtype.str != facts.get("dtype"):
        raise PolicyError(f"its array {name} has another shape or type than its manifest says")
    return array


# -- tables must fit the problem: compiled code will look things up in them ------------------------------------------


def _build_choices(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    cells, base, amounts = arrays["cells"], arrays["base"], arrays["amounts"]
    if not problem.is_symmetric:
        raise PolicyError("it is for identical arms")
    S, A = problem.types.valid.shape[1:]
    fits = (
        cells.shape == (amounts.shape[1], 2)
        and base.shape == (S,)
        and amounts.shape[0] == Counts(problem).num_states
        and (cells >= 0).all()
        and (cells < (S, A)).all()
        and ((base >= 0) & (base < A)).all()
        and (amounts >= 0).all()
        and (amounts <= problem.num_arms).all()
    )
    if not fits:
        raise PolicyError("its tables do not fit the problem")
    # Unsigned 64-bit numbers do not mix with signed ones.
    amounts = amounts if np.can_cast(amounts.dtype, np.int64) else amounts.astype(np.int64)
    _check_choices(problem, cells, amounts)
    return CountChoices(problem, cells, base, amounts)


def _check_choices(problem: CoupledMDP, cells: Array, amounts: Array) -> None:
    """Refuse choices of more arms than there are in a state; the budget is checked where they are played.

    Args:
        problem: a symmetric problem.
        cells: (cell, 2) state and action.
        amounts: (count state, cell) how many arms get each cell.
    """
    points = lattice_points(problem.num_arms, int(problem.types.num_states[0]))
    # Of each state, no more arms than it has at that point of the lattice.
    for state in np.unique(cells[:, 0]):
        if (amounts[:, cells[:, 0] == state].sum(axis=1, dtype=np.int64) > points[:, state]).any():
            raise PolicyError("it chooses more arms in a state than there are")


def _build_typed(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    allocations, picks, space = arrays["allocations"], arrays["picks"], Counts(problem)
    fits = (
        allocations.shape[1:] == problem.types.valid.shape[1:]
        and picks.shape == (space.num_states, problem.num_types)
        and ((allocations >= 0) & (allocations <= problem.num_arms)).all()
        and ((picks >= 0) & (picks < len(allocations))).all()
    )
    if not fits:
        raise PolicyError("its tables do not fit the problem")
    wide = allocations.astype(np.int64)
    for t, (arms, states) in enumerate(zip(problem.type_counts, problem.types.num_states, strict=True)):
        used, number = np.unique(picks[:, t], return_inverse=True)
        # Arms in each state, and all arms within real pairs: what stands in padding would be lost.
        counts, whole = wide[used].sum(axis=2), wide[used][:, problem.types.real[t]].sum(axis=1)
        # The type's own part of the number of a count state.
        point = (np.arange(space.num_states) // space.strides[t]) % space.sizes[t]
        if (whole != arms).any() or (counts.sum(axis=1) != arms).any():
            raise PolicyError("it allocates more or fewer arms than a type has")
        if (lattice_index(counts[:, :states])[number.reshape(-1)] != point).any():
            raise PolicyError("it allocates arms that are not in that state")
    return TypedChoices(problem, wide, picks)


def _build_table(space: Counts | Joint, arrays: dict[str, Array]) -> Policy:
    pairs, chances = arrays["pairs"], arrays["probabilities"]
    probabilities = np.zeros(space.mdp.num_pairs)
    if pairs.shape != chances.shape or pairs.min(initial=0) < 0 or pairs.max(initial=0) >= len(probabilities):
        raise PolicyError("its pairs do not exist in this problem")
    probabilities[pairs] = chances
    return CountTable(space, probabilities) if isinstance(space, Counts) else JointTable(space, probabilities)


def _build_priority(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    return ExchangeablePriority(problem, arrays["scores"], float(arrays["threshold"]))


def _build_from_occupancy(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    """As it was written before there were other criteria."""
    return OccupancyPriority(problem, arrays["occupancy"], arrays["weights"], arrays["prices"])


def _build_drawn(problem: CoupledMDP, arrays: dict[str, Array]) -> Policy:
    laws, scores = arrays["laws"], arrays["scores"]
    if laws.shape != problem.types.valid.shape or scores.shape != laws.shape:
        raise PolicyError("its tables do not fit the problem")
    # Padding may hold anything; real states have laws.
    sums = np.where(problem.types.real, laws, 0.0).sum(axis=2)
    real = problem.types.real.any(axis=2)
    if not (np.isfinite(scores).all() and (laws >= 0).all() and (np.abs(sums[real] - 1) <= 1e-8).all()):
        raise PolicyError("its laws are no probabilities, or its scores no numbers")
    return OccupancyPriority.of_tables(problem, laws, scores)


def _build_resolving(problem: CoupledMDP, arrays: dict[str, Array]) -> Starting:
    steps = int(arrays["every"]), int(arrays["points"])
    given = [arrays[name] for name in ("weights", "prices", "floor_prices") if name in arrays]
    if not 1 <= steps[1] <= MOST_POINTS or not all(np.isfinite(array).all() for array in given):
        raise PolicyError("its weights and prices are no numbers, or more prices are tried than ever were")
    return Resolving(problem, arrays["weights"], arrays["prices"], *steps, arrays.get("floor_prices"))


class _Spec(NamedTuple):
    """What an array is like."""

    letters: str
    """Of the dtype."""

    axes: tuple[int, ...]
    """How many axes there may be."""

    optional: bool = False

    @property
    def stacked(self) -> "_Spec":
        """The same with a step in front."""
        return self._replace(axes=tuple(number + 1 for number in self.axes))


MOST_POINTS = 10_000
"""Prices that a re-solving policy tries for one resource, at the most; ours try far fewer."""

MOST_PARTS = 1000
"""Parts of the largest mixture that is read."""

_RAGGED = ("pairs", "probabilities")
"""Arrays whose length may differ from step to step."""

_TABLE = {"pairs": _Spec("iu", (1,)), "probabilities": _Spec("f", (1,))}
_ARRAYS: dict[str, dict[str, _Spec]] = {
    "count-choices": {"cells": _Spec("iu", (2,)), "base": _Spec("iu", (1,)), "amounts": _Spec("iu", (2,))},
    "typed-choices": {"allocations": _Spec("iu", (3,)), "picks": _Spec("iu", (2,))},
    "count-table": _TABLE,
    "joint-table": _TABLE,
    "priority": {"scores": _Spec("f", (3,)), "threshold": _Spec("f", (0,))},
    "drawn-priority": {"laws": _Spec("f", (3,)), "scores": _Spec("f", (3,))},
    "occupancy-priority": {"occupancy": _Spec("f", (3,)), "weights": _Spec("f", (1,)), "prices": _Spec("f", (1,))},
    "re-solving": {
        "weights": _Spec("f", (1,)),
        "prices": _Spec("f", (1, 2)),
        "floor_prices": _Spec("f", (1,), optional=True),
        "every": _Spec("iu", (0,)),
        "points": _Spec("iu", (0,)),
    },
    "round-robin": {},
    "random": {},
    "network": {"archive": _Spec("u", (1,))},
}
"""The arrays of each kind."""

_BUILDERS: dict[str, Callable[[CoupledMDP, dict[str, Array]], Policy | Starting]] = {
    "count-choices": _build_choices,
    "typed-choices": _build_typed,
    "count-table": lambda problem, arrays: _build_table(Counts(problem), arrays),
    "joint-table": lambda problem, arrays: _build_table(Joint(problem), arrays),
    "priority": _build_priority,
    "drawn-priority": _build_drawn,
    "occupancy-priority": _build_from_occupancy,
    "re-solving": _build_resolving,
    "network": _build_network,
    "round-robin": lambda problem, arrays: RoundRobin(problem),
    "random": lambda problem, arrays: random_feasible(problem),
}
