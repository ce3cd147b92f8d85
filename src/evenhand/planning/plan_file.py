"""Plan files: a policy as arrays, with the problem it was made for and a manifest, in one zip archive.

    manifest.json   format, schema, versions; the form of the policy; facts of its problem; facts of the plan; the
                    SHA-256 of every other member
    NAME.npy        one array each, never pickled
    model.npz       the problem, with its labels, criterion and groups; absent for a simulator
    arms.json       the names of its arms, if they have any

The form of a policy is its `kind`; a composite also has the forms of its `parts`, whose arrays have their number in
front of their names (`0.NAME`). A class of a user's own is known by its `kind` alone and must be given by the reader: a
file cannot ask for anything to be imported.

A file is not trusted. Sizes are checked before anything is unpacked, hashes before anything is parsed, nothing is
unpickled, and every policy checks its own arrays. A table plays the very problem that it was made for, under any
criterion; a network plays all problems with arms of the same shape.
"""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from evenhand._version import __version__
from evenhand.checks import check_memory, why_unreadable
from evenhand.errors import EvenhandError, InvalidInputError, NotApplicableError, PolicyError
from evenhand.model.composite import CompositePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.io import load, to_npz, write_atomically
from evenhand.model.policy import Policy, SavableKind, StatefulPolicy, capabilities
from evenhand.model.simulator import Problem, Simulator, needs_tables
from evenhand.policies import SAVABLE
from evenhand.policies.network import usage_of
from evenhand.typing import Array

FORMAT, SCHEMA = "evenhand-policy", 1
"""Name and version of the file format."""

MANIFEST, MODEL, ARMS = "manifest.json", "model.npz", "arms.json"

MOST_MANIFEST = 1_000_000
"""Bytes of the largest manifest: that of some ten thousand arrays."""

Source: TypeAlias = str | PathLike[str] | bytes | BinaryIO
"""A file by its name, its bytes, or a binary stream."""

Form: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, Array]

_KIND = re.compile(r"[a-z][a-z0-9-]{0,63}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_MEMBER = re.compile(rf"model\.npz|arms\.json|(\d{{1,5}}\.){{0,3}}{_NAME.pattern}\.npy")


class OtherDynamicsWarning(UserWarning):
    """A network plays arms with other transitions or rewards than those it was trained on."""


class PlanContents(NamedTuple):
    """Contents of a plan file."""

    policy: Policy | StatefulPolicy
    """The policy."""

    problem: CoupledMDP
    """The problem that it plays: by default the one that it was made for."""

    about: dict[str, Any]
    """Facts of the plan."""

    other_dynamics: bool
    """True for a network that was trained on arms with other transitions or rewards."""


# -- writing ---------------------------------------------------------------------------------------------------------


def save_policy(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    path: str | PathLike[str] | BinaryIO,
    about: dict[str, Any] | None = None,
) -> None:
    """Write a policy: a table, a trained network, or one of your own that is savable.

    Args:
        problem: the problem it was made for; the file carries it.
        policy: from `solve`; or of a class with a text `kind`, a method `to_arrays()` and a class method
            `from_arrays(problem, arrays)`, which `load_policy` then needs.
        path: a file name, replaced as a whole if it exists; or a binary stream.
        about: facts for the manifest, such as the method and the certificate.

    Example:
        >>> import evenhand as eh
        >>> problem = eh.problems.machine_replacement(num_arms=3)
        >>> eh.save_policy(problem, eh.policies.whittle(problem), "policy.zip")
        >>> eh.load_policy("policy.zip", problem)
        ExchangeablePriority(for 3 arms)
    """
    if not _transfers(policy):
        problem = needs_tables(problem, "a saved policy", "A trained network is saved without them.")
    form, arrays = _encode(policy)
    bodies = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
    if isinstance(problem, CoupledMDP):  # nothing is stored of a simulator, which is a user's function
        bodies[MODEL] = to_npz(problem)
        if problem.arm_names:
            bodies[ARMS] = json.dumps(list(problem.arm_names)).encode()
    manifest = json.dumps(
        {
            "format": FORMAT,
            "schema": SCHEMA,
            "versions": {"evenhand": __version__, "numpy": np.__version__},
            **form,
            "problem": _identity(problem, _transfers(policy)),
            "about": about or {},
            "sha256": {name: hashlib.sha256(body).hexdigest() for name, body in bodies.items()},
        },
        indent=1,
    ).encode()
    if len(manifest) > MOST_MANIFEST:
        raise NotApplicableError(f"a policy of {len(arrays)} arrays cannot be saved: its manifest would be too large")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, body in {MANIFEST: manifest, **bodies}.items():
            # A fixed date: the same contents are the same file.
            file.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), body, zipfile.ZIP_DEFLATED)
    if isinstance(path, (str, PathLike)):
        write_atomically(Path(path), archive.getvalue())
    else:
        path.write(archive.getvalue())


def _transfers(policy: object) -> bool:
    """Return whether a policy, or a class of policies, plays all problems with arms of the same shape."""
    return getattr(policy, "transfers", False) is True


def _encode(policy: Policy | StatefulPolicy) -> tuple[Form, Arrays]:
    """The form of a policy, and its arrays with those of its parts."""
    own, name = capabilities(policy).saves, type(policy).__name__
    if own is None or not callable(getattr(type(policy), "from_arrays", None)):
        raise NotApplicableError(
            f"a policy of type {name} cannot be saved: it needs a text `kind`, a method to_arrays() and a class method "
            "from_arrays(problem, arrays)"
        )
    if not isinstance(own.kind, str) or not _KIND.fullmatch(own.kind):
        raise NotApplicableError(f"{name}.kind: expected a text such as 'first-worn-out', got {own.kind!r}")
    given: object = own.to_arrays()
    if not isinstance(given, Mapping):
        raise NotApplicableError(f"{name}.to_arrays(): expected arrays by name, got {given!r}")
    arrays = {key: np.asarray(array) for key, array in given.items()}
    for key, array in arrays.items():
        if not isinstance(key, str) or not _NAME.fullmatch(key):
            raise NotApplicableError(f"{name}.to_arrays(): names consist of letters, digits and _, unlike {key!r}")
        if array.dtype.kind not in "biuf":
            raise NotApplicableError(f"{name}.to_arrays(): '{key}' must be numbers, and is {array.dtype}")
    form: Form = {"kind": own.kind}
    if isinstance(policy, CompositePolicy):
        encoded = [_encode(part) for part in policy.parts]
        form["parts"] = [inner for inner, _ in encoded]
        arrays |= {f"{i}.{key}": array for i, (_, part) in enumerate(encoded) for key, array in part.items()}
    return form, arrays


def _npy(array: Array) -> bytes:
    body = io.BytesIO()
    np.lib.format.write_array(body, np.asarray(array, order="C"), allow_pickle=False)
    return body.getvalue()


# -- reading ---------------------------------------------------------------------------------------------------------


def read_contents(source: Source, kinds: Sequence[SavableKind] = (), problem: Problem | None = None) -> PlanContents:
    """Read a policy for a problem.

    Args:
        source: the file.
        kinds: classes of policies of your own, if the file holds such.
        problem: the problem to play; by default the one that the file carries.

    Raises:
        PolicyError: the file is damaged or carries no problem, or the policy was made for another problem; says how
            they differ.
    """
    classes = _known_classes(kinds)
    name = str(source) if isinstance(source, (str, PathLike)) else str(getattr(source, "name", "the plan"))
    try:
        with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
            return _read(file, problem, classes)
    except Warning:  # if a user made them errors
        raise
    except EvenhandError as error:
        raise PolicyError(f"{name}: {error}") from None
    except OSError as error:
        raise PolicyError(f"{name}: cannot be read: {why_unreadable(Path(name), error)}") from None
    except MemoryError:
        raise PolicyError(f"{name}: cannot be read: there is not enough memory for it") from None
    except Exception:  # noqa: BLE001  # the file is not trusted, and libraries fail in many ways
        raise PolicyError(f"{name}: it is not a policy file, or it is damaged, encrypted or too deep") from None


def rebuilt(policy: Policy | StatefulPolicy, problem: CoupledMDP) -> Policy | StatefulPolicy:
    """Return the same policy for a problem that differs in rewards or transitions only, as if saved and loaded.

    Args:
        policy: a savable policy.
        problem: with the same types of arms.
    """
    form, arrays = _encode(policy)
    return _decode(form, problem, arrays, _known_classes(()))


def _known_classes(kinds: Sequence[SavableKind]) -> dict[str, Any]:
    if not isinstance(kinds, (list, tuple)):
        raise InvalidInputError(f"kinds: expected a list of classes, got {kinds!r}")
    found: dict[str, Any] = {each.kind: each for each in SAVABLE}
    for each in kinds:
        if not isinstance(getattr(each, "kind", None), str) or not callable(getattr(each, "from_arrays", None)):
            raise InvalidInputError(
                f"kinds: {each!r} needs a text `kind` and a class method from_arrays(problem, arrays)"
            )
        if found.setdefault(each.kind, each) is not each:
            raise InvalidInputError(f"kinds: two classes are of the kind '{each.kind}'")
    return found


def _read(file: zipfile.ZipFile, problem: Problem | None, classes: dict[str, Any]) -> PlanContents:
    manifest = _read_manifest(file)
    bodies = {name: _unpack(file, name) for name in manifest["sha256"]}
    for name, digest in manifest["sha256"].items():
        if hashlib.sha256(bodies[name]).hexdigest() != digest:
            raise PolicyError(f"its member {name} is not the one its manifest describes (hash differs)")
    arrays = {name.removesuffix(".npy"): _read_array(name, bodies[name]) for name in bodies if name.endswith(".npy")}
    made_for, same_dynamics = manifest["problem"], True
    here = _carried_problem(bodies) if problem is None else problem
    if _transfers(classes.get(manifest["kind"])):
        same_dynamics = _check_arm(made_for, here)
    else:
        if isinstance(here, Simulator):
            raise PolicyError("it is a table; only a trained network plays a simulator")
        # Types are cut by the objective: under another one, tables by type would be read wrongly.
        criterion, over = made_for.get("criterion"), made_for.get("over")
        if not isinstance(criterion, str) or not isinstance(over, str):
            raise PolicyError("its manifest does not say for which objective it was made")
        here = here.with_criterion(criterion, over)
        _check_same(made_for, here)
    policy, about = _decode(manifest, here, arrays, classes), manifest.get("about")
    return PlanContents(policy, here, about if isinstance(about, dict) else {}, not same_dynamics)  # type: ignore[arg-type]


def _read_manifest(file: zipfile.ZipFile) -> dict[str, Any]:
    """The manifest, if it is well-formed and lists exactly the members of the archive, which fit into memory."""
    if MANIFEST not in file.namelist():
        raise PolicyError("it is not an evenhand policy: it has no manifest")
    if file.getinfo(MANIFEST).file_size > MOST_MANIFEST:
        raise PolicyError("its manifest is too large")
    manifest = _parse(_unpack(file, MANIFEST), "manifest")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PolicyError("it is not an evenhand policy")
    if manifest.get("schema") != SCHEMA:
        raise PolicyError(f"its schema is {manifest.get('schema')}; this version reads {SCHEMA}")
    for key, kind in (("problem", dict), ("sha256", dict), ("kind", str)):
        if not isinstance(manifest.get(key), kind):
            raise PolicyError(f"its manifest lacks '{key}', or it is invalid")
    listed = manifest["sha256"]
    if not all(map(_MEMBER.fullmatch, listed)) or sorted(file.namelist()) != sorted([MANIFEST, *listed]):
        raise PolicyError("its members are not those its manifest lists")
    check_memory(3.0 * sum(entry.file_size for entry in file.infolist()), str(file.filename), "It is damaged.")
    return manifest


def _unpack(file: zipfile.ZipFile, name: str) -> bytes:
    """A member, unpacked no further than the size it claims, however long its stream is."""
    with file.open(name) as stream:
        return stream.read(file.getinfo(name).file_size + 1)


def _read_array(name: str, body: bytes) -> Array:
    try:
        array: Array = np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    except Exception:  # noqa: BLE001  # NumPy evaluates the header as a literal, which fails in many ways
        raise PolicyError(f"its array {name} is not a valid array file") from None
    if array.dtype.kind not in "biuf":
        raise PolicyError(f"its array {name} is not an array of numbers")
    return array


def _parse(body: bytes, what: str) -> Any:
    try:
        return json.loads(body)
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise PolicyError(f"its {what} is not valid JSON") from None


def _carried_problem(bodies: Mapping[str, bytes]) -> CoupledMDP:
    if MODEL not in bodies:
        raise PolicyError("it carries no model: it was made for a simulator. load_policy(path, problem) reads it")
    problem = load(io.BytesIO(bodies[MODEL]), "npz")
    if ARMS not in bodies:
        return problem
    names = _parse(bodies[ARMS], "list of arms")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PolicyError("its list of arms is not a list of names")
    return replace(problem, arm_names=names)


def _decode(form: Form, problem: Problem, arrays: Arrays, classes: dict[str, Any]) -> Policy | StatefulPolicy:
    """The policy of a form and its arrays."""
    kind, forms = form.get("kind"), form.get("parts", [])
    if not isinstance(kind, str) or kind not in classes:
        raise PolicyError(
            f"its policy is of the kind '{kind}', which is not known: if it is your own, "
            "load_plan(path, kinds=[...]) or load_policy(path, problem, kinds=[...]) reads it with its class"
        )
    maker = classes[kind]
    is_composite = isinstance(maker, type) and issubclass(maker, CompositePolicy)
    if not isinstance(forms, list) or not all(isinstance(one, dict) for one in forms) or is_composite != bool(forms):
        raise PolicyError(f"the parts of its policy of the kind '{kind}' are invalid")
    own: Arrays = {}
    inner: list[Arrays] = [{} for _ in forms]
    for path, array in arrays.items():
        place, _, name = path.partition(".") if "." in path else ("", "", path)
        if place and int(place) >= len(inner):
            raise PolicyError(f"its array {path} belongs to no part")
        (inner[int(place)] if place else own)[name] = array
    inside = maker.problem_of_parts(problem, own) if is_composite else problem
    parts = [_decode(one, inside, part, classes) for one, part in zip(forms, inner, strict=True)]
    try:
        policy = maker.from_arrays(problem, own, *([parts] if is_composite else []))
    except EvenhandError:
        raise
    except Exception as error:
        if maker in SAVABLE:
            raise
        reason = f"{type(error).__name__}: {error}"
        raise PolicyError(f"the class given for '{kind}' cannot read its arrays ({reason})") from error
    if not isinstance(policy, (Policy, StatefulPolicy)):
        raise PolicyError(f"the class given for '{kind}' returned {type(policy).__name__}, not a policy")
    return policy


# -- the problem that a policy was made for --------------------------------------------------------------------------


def _identity(problem: Problem, transfers: bool = False) -> dict[str, Any]:
    """Facts by which a problem is recognised; with `transfers`, those of its only type of arm."""
    facts: dict[str, Any] = {
        "num_arms": problem.num_arms,
        "budget": [float(b) for b in problem.budget],
        "discount": problem.discount,
    }
    if isinstance(problem, CoupledMDP):
        facts |= {
            "signature": problem.signature,
            "num_types": problem.num_types,
            # Equal numbers may be of another type under other groups or floors.
            "types": hashlib.sha256(problem.type_of_block.astype("<i4").tobytes()).hexdigest(),
            # A hundred are enough for a message; the signature decides.
            "num_states": [int(s) for s in problem.types.num_states[:100]],
            "num_actions": [int(a) for a in problem.types.num_actions[:100]],
            "criterion": problem.criterion.name,
            "over": problem.over,
            "max_wait": problem.max_waits.tolist() if problem.has_max_wait else None,
        }
    return facts | ({"arm": _arm_facts(problem)} if transfers else {})


def _arm_facts(problem: Problem) -> dict[str, Any]:
    usage = usage_of(problem)
    shape = {"num_states": usage.shape[0], "num_actions": usage.shape[1], "num_resources": usage.shape[2]}
    digest, states, actions = None, [], []
    if isinstance(problem, CoupledMDP):
        labels = problem.types.labels[0] if problem.types.labels else ("", (), ())
        digest, states, actions = problem.types.digests[0].hex(), list(labels[1]), list(labels[2])
    return {**shape, "states": states, "actions": actions, "usage": usage.tolist(), "digest": digest}


def _differences(made_for: dict[str, Any], here: dict[str, Any], names: Sequence[str]) -> str:
    pairs = [(name, made_for.get(name), here[name]) for name in names]
    return "; ".join(f"{name} was {then}, here {now}" for name, then, now in pairs if then != now)


def _check_same(made_for: dict[str, Any], problem: CoupledMDP) -> None:
    """Raise PolicyError if a policy was made for another problem."""
    here = _identity(problem)
    # A plan without promises may play a problem with some.
    if made_for.get("max_wait") is not None and _differences(made_for, here, ("max_wait",)):
        raise PolicyError("made for other promised waits; solve again")
    if _differences(made_for, here, ("signature", "num_types", "types")):
        facts = ("num_arms", "num_types", "num_states", "num_actions", "budget", "discount")
        others = "other transitions, rewards, usage, initial states, groups or floors"
        raise PolicyError(f"made for another problem ({_differences(made_for, here, facts) or others})")


def _check_arm(made_for: dict[str, Any], problem: Problem) -> bool:
    """Return whether a network was trained on the same dynamics; raise PolicyError if on arms of another shape."""
    trained_on, here = made_for.get("arm"), _arm_facts(problem)
    if not isinstance(trained_on, dict):
        raise PolicyError("its manifest does not say on which arms it was trained")
    # Labels need agree only if both sides have some.
    labels = [name for name in ("states", "actions") if trained_on.get(name) and here[name]]
    faults = _differences(trained_on, here, ("num_states", "num_actions", "num_resources", *labels))
    if faults or trained_on.get("usage") != here["usage"]:
        faults = faults or "actions use other amounts of the resources"
        raise PolicyError(f"trained for another kind of arm ({faults})")
    return not (trained_on.get("digest") and here["digest"] and trained_on["digest"] != here["digest"])
