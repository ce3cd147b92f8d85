"""Plan files: a policy as arrays, with the problem it was made for and a manifest, in one zip archive.

    manifest.json   format, schema, versions; the form of the policy; facts of its problem; facts of the plan; of every
                    array its shape, dtype and SHA-256; SHA-256 of the other parts
    NAME.npy        one array each, never pickled
    model.npz       the problem, with its labels, criterion and groups; absent for a simulator
    arms.json       the names of its arms, if they have any

The form of a policy is its `kind`; a composite also has the forms of its parts. Arrays of parts that agree in form are
stacked, or concatenated with their lengths (`part.NAME`); those of other parts are numbered (`0.NAME`). A class of a
user's own is known by its `kind` alone and must be given by the reader: a file cannot ask for anything to be imported.

A file is not trusted. Sizes are checked before anything is unpacked, hashes before anything is parsed, headers before
anything is allocated, and every policy checks its own arrays. A table plays the very problem that it was made for,
under any criterion; a network plays all problems with arms of the same shape.
"""

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

import numpy as np

from evenhand._version import __version__
from evenhand.checks import check_memory, why_unreadable
from evenhand.errors import EvenhandError, InvalidInputError, NotApplicableError, PolicyError
from evenhand.model.composite import CompositePolicy
from evenhand.model.coupled import CoupledMDP
from evenhand.model.criterion import MOST_STEPS
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
"""Bytes of the largest manifest."""

MOST_ARRAYS, MOST_AXES, MOST_DEPTH = 1000, 8, 3
"""Arrays of one policy, axes of an array, and composites within composites."""

Source: TypeAlias = str | PathLike[str] | bytes | BinaryIO
"""A file by its name, its bytes, or a binary stream."""

Form: TypeAlias = dict[str, Any]
Arrays: TypeAlias = dict[str, Array]
Found = TypeVar("Found")

_KIND = re.compile(r"[a-z][a-z0-9-]{0,63}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_PATH = re.compile(r"((part|\d{1,4})\.){0,3}[A-Za-z][A-Za-z0-9_]{0,63}(\.lengths){0,3}")


class OtherDynamicsWarning(UserWarning):
    """A network plays arms with other transitions or rewards than those it was trained on."""


class PlanContents(NamedTuple):
    """Contents of a plan file."""

    policy: Policy | StatefulPolicy
    """The policy."""

    problem: CoupledMDP
    """The problem that it was made for."""

    about: dict[str, Any]
    """Facts of the plan."""


# -- writing ---------------------------------------------------------------------------------------------------------


def save_policy(
    problem: Problem,
    policy: Policy | StatefulPolicy,
    path: str | PathLike[str] | BinaryIO,
    about: dict[str, Any] | None = None,
) -> None:
    """Write a policy: a table, a trained network, or one of your own that is savable.

    Args:
        policy: from `solve`; or of a class with a text `kind`, a method `to_arrays()` and a class method
            `from_arrays(problem, arrays)`, which `load_policy` then needs.
        problem: the problem it was made for; the file carries it.
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
    bodies = {f"{name}.npy": _npy(array) for name, array in arrays.items()} | _carried(problem)
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "versions": {"evenhand": __version__, "numpy": np.__version__},
        **form,
        "problem": _identity(problem, _transfers(policy)),
        "about": about or {},
        "carries": {name: _digest(bodies[name]) for name in (MODEL, ARMS) if name in bodies},
        "arrays": {
            name: {"shape": list(array.shape), "dtype": array.dtype.str, "sha256": _digest(bodies[f"{name}.npy"])}
            for name, array in arrays.items()
        },
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in {MANIFEST: json.dumps(manifest, indent=1).encode(), **bodies}.items():
            # A fixed date: the same contents are the same file.
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, body)
    if isinstance(path, (str, PathLike)):
        write_atomically(Path(path), archive.getvalue())
    else:
        path.write(archive.getvalue())


def _carried(problem: Problem) -> dict[str, bytes]:
    """The problem and the names of its arms; nothing of a simulator, which is a user's function."""
    if isinstance(problem, Simulator):
        return {}
    names = {ARMS: json.dumps(list(problem.arm_names)).encode()} if problem.arm_names else {}
    return {MODEL: to_npz(problem)} | names


def _transfers(policy: object) -> bool:
    """Return whether a policy, or a class of policies, plays all problems with arms of the same shape."""
    return getattr(policy, "transfers", False) is True


def _encode(policy: Policy | StatefulPolicy) -> tuple[Form, Arrays]:
    """The form of a policy, and its arrays."""
    own, name = capabilities(policy).saves, type(policy).__name__
    if own is None or not callable(getattr(type(policy), "from_arrays", None)):
        raise NotApplicableError(
            f"a policy of type {name} cannot be saved: it needs a text `kind`, a method to_arrays() and a class method "
            "from_arrays(problem, arrays)"
        )
    if not isinstance(own.kind, str) or not _KIND.fullmatch(own.kind):
        raise NotApplicableError(f"{name}.kind: expected a text such as 'first-worn-out', got {own.kind!r}")
    form: Form = {"kind": own.kind}
    arrays = _checked_arrays(own.to_arrays(), name)
    if not isinstance(policy, CompositePolicy):
        return form, arrays
    forms, parts = zip(*(_encode(part) for part in policy.parts), strict=True)
    stacked = _stack(parts) if all(each == forms[0] for each in forms) else None
    if stacked is not None:
        return form | {"part": forms[0], "number": len(parts)}, arrays | stacked
    if len(parts) > MOST_ARRAYS:
        raise NotApplicableError(f"a policy of over {MOST_ARRAYS} different parts cannot be saved")
    numbered = {f"{i}.{name}": array for i, part in enumerate(parts) for name, array in part.items()}
    return form | {"parts": list(forms)}, arrays | numbered


def _checked_arrays(given: object, name: str) -> Arrays:
    if not isinstance(given, Mapping) or len(given) > MOST_ARRAYS:
        raise NotApplicableError(f"{name}.to_arrays(): expected arrays by name, at most {MOST_ARRAYS}, got {given!r}")
    arrays = {key: np.asarray(array) for key, array in given.items()}
    for key, array in arrays.items():
        if not isinstance(key, str) or not _NAME.fullmatch(key):
            raise NotApplicableError(f"{name}.to_arrays(): names consist of letters, digits and _, unlike {key!r}")
        if array.dtype.kind not in "biuf" or array.ndim > MOST_AXES:
            raise NotApplicableError(
                f"{name}.to_arrays(): '{key}' must be numbers with at most {MOST_AXES} axes, and is {array.dtype} of "
                f"shape {array.shape}"
            )
    return arrays


def _stack(parts: Sequence[Arrays]) -> Arrays | None:
    """Arrays of all parts in one; None if they differ in names, types or axes."""
    found: Arrays = {}
    for name in {name: None for part in parts for name in part}:
        pieces = [part[name] for part in parts if name in part]
        if len(pieces) < len(parts) or len({(piece.dtype, piece.shape[1:], piece.ndim) for piece in pieces}) > 1:
            return None
        if len({piece.shape for piece in pieces}) == 1:
            found[f"part.{name}"] = np.stack(pieces)
        else:
            found[f"part.{name}"] = np.concatenate(pieces)
            found[f"part.{name}.lengths"] = np.array([len(piece) for piece in pieces])
    return found


def _npy(array: Array) -> bytes:
    body = io.BytesIO()
    np.lib.format.write_array(body, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return body.getvalue()


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


# -- reading ---------------------------------------------------------------------------------------------------------


def read_policy(
    source: Source, problem: Problem, kinds: Sequence[SavableKind] = ()
) -> tuple[Policy | StatefulPolicy, bool]:
    """Read a policy for a problem, and whether it is a network that was trained on other dynamics.

    Args:
        source: the file.
        problem: the problem to play.
        kinds: classes of policies of your own, if the file holds such.

    Raises:
        PolicyError: the file is damaged, or the policy was made for another problem; says how they differ.
    """
    classes = _known_classes(kinds)
    return _guarded(source, lambda file: _read(file, problem, classes)[:2])


def read_contents(source: Source, kinds: Sequence[SavableKind] = ()) -> PlanContents:
    """Read a policy with the problem that its file carries.

    Args:
        source: the file.
        kinds: classes of policies of your own, if the file holds such.

    Raises:
        PolicyError: the file is damaged, or carries no problem.
    """
    classes = _known_classes(kinds)
    return _guarded(source, lambda file: _read(file, None, classes)[2])


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


def _read(
    file: zipfile.ZipFile, problem: Problem | None, classes: dict[str, Any]
) -> tuple[Policy | StatefulPolicy, bool, PlanContents]:
    manifest = _read_manifest(file)
    arrays = {name: _read_array(file, name, facts) for name, facts in manifest["arrays"].items()}
    carried = {name: _read_part(file, name, digest) for name, digest in manifest["carries"].items()}
    made_for = manifest["problem"]
    # The problem that the file carries; without one, only `problem` can be played.
    here = _carried_problem(carried) if problem is None else problem
    same_dynamics = True
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
    policy = _decode(manifest, here, arrays, classes)
    about = manifest.get("about")
    whole = PlanContents(policy, here, about if isinstance(about, dict) else {})  # type: ignore[arg-type]
    return policy, not same_dynamics, whole


def _read_manifest(file: zipfile.ZipFile) -> dict[str, Any]:
    """The manifest, if it is well-formed and lists exactly the parts of the archive, which fit into memory."""
    if MANIFEST not in file.namelist():
        raise PolicyError("it is not an evenhand policy: it has no manifest")
    if file.getinfo(MANIFEST).file_size > MOST_MANIFEST:
        raise PolicyError("its manifest is too large")
    manifest = _parse(_unpack(file, MANIFEST), "manifest")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise PolicyError("it is not an evenhand policy")
    if manifest.get("schema") != SCHEMA:
        raise PolicyError(f"its schema is {manifest.get('schema')}; this version reads {SCHEMA}")
    if not isinstance(manifest.get("problem"), dict):
        raise PolicyError("its manifest does not say for which problem it was made")
    arrays, carries = manifest.get("arrays"), manifest.get("carries")
    if not isinstance(arrays, dict) or not all(_PATH.fullmatch(name) for name in arrays):
        raise PolicyError("its manifest does not describe its arrays")
    if not isinstance(carries, dict) or not set(carries) <= {MODEL, ARMS}:
        raise PolicyError("its manifest does not describe the problem it carries")
    if not isinstance(manifest.get("kind"), str):
        raise PolicyError("its manifest does not say of which kind its policy is")
    if sorted(file.namelist()) != sorted([MANIFEST, *carries, *(f"{name}.npy" for name in arrays)]):
        raise PolicyError("its parts are not those its manifest lists")
    check_memory(3.0 * sum(entry.file_size for entry in file.infolist()), str(file.filename), "It is damaged.")
    return manifest


def _read_array(file: zipfile.ZipFile, name: str, facts: object) -> Array:
    if not isinstance(facts, dict) or not isinstance(facts.get("sha256"), str):
        raise PolicyError(f"its manifest does not say the sha256 of its array {name}")
    body = _read_part(file, f"{name}.npy", facts["sha256"])
    stream = io.BytesIO(body)
    try:
        # The header before the numbers: it may claim any size, and objects, which could run code.
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception:  # noqa: BLE001  # NumPy evaluates the header as a literal, which fails in many ways
        raise PolicyError(f"its array {name} is not a valid array file") from None
    if list(shape) != facts.get("shape") or dtype.str != facts.get("dtype"):
        raise PolicyError(f"its array {name} has another shape or type than its manifest says")
    if dtype.kind not in "biuf" or len(shape) > MOST_AXES or min(shape, default=0) < 0:
        raise PolicyError(f"its array {name} is not an array of numbers")
    if prod(shape) * dtype.itemsize != len(body) - stream.tell():
        raise PolicyError(f"its array {name} has another size than its header says")
    array: Array = np.frombuffer(body, dtype, offset=stream.tell()).reshape(shape, order="F" if fortran else "C")
    return array.copy()


def _read_part(file: zipfile.ZipFile, name: str, sha256: object) -> bytes:
    body = _unpack(file, name)
    if _digest(body) != sha256:
        raise PolicyError(f"its part {name} is not the one its manifest describes (hash differs)")
    return body


def _unpack(file: zipfile.ZipFile, name: str) -> bytes:
    """A part, unpacked no further than the size it claims, however long its stream is."""
    entry = file.getinfo(name)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise PolicyError(f"its part {name} has an unknown compression")
    with file.open(entry) as stream:
        return stream.read(entry.file_size + 1)


def _parse(body: bytes, what: str) -> Any:
    try:
        return json.loads(body)
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise PolicyError(f"its {what} is not valid JSON") from None


def _carried_problem(carried: dict[str, bytes]) -> CoupledMDP:
    if MODEL not in carried:
        raise PolicyError("it carries no model: it was made for a simulator. load_policy(path, problem) reads it")
    problem = load(io.BytesIO(carried[MODEL]), "npz")
    if ARMS not in carried:
        return problem
    names = _parse(carried[ARMS], "list of arms")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PolicyError("its list of arms is not a list of names")
    return replace(problem, arm_names=names)


def _decode(
    form: Form, problem: Problem, arrays: Arrays, classes: dict[str, Any], depth: int = 0
) -> Policy | StatefulPolicy:
    """The policy of a form and its arrays."""
    kind = form.get("kind")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind) or depth > MOST_DEPTH:
        raise PolicyError("it does not say of which kind its policy is")
    if kind not in classes:
        raise PolicyError(
            f"its policy is of the kind '{kind}', which is not known: if it is your own, "
            "load_plan(path, kinds=[...]) or load_policy(path, problem, kinds=[...]) reads it with its class"
        )
    maker, own = classes[kind], {name: array for name, array in arrays.items() if "." not in name}
    extra: list[Any] = []
    if isinstance(maker, type) and issubclass(maker, CompositePolicy):
        forms, parts = _part_arrays(form, {name: array for name, array in arrays.items() if "." in name})
        decoded = [_decode(each, problem, part, classes, depth + 1) for each, part in zip(forms, parts, strict=True)]
        extra = [decoded]
    elif len(own) < len(arrays):
        raise PolicyError(f"a policy of the kind '{kind}' has no parts")
    try:
        policy = maker.from_arrays(problem, own, *extra)
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


def _part_arrays(form: Form, arrays: Arrays) -> tuple[list[Form], list[Arrays]]:
    """The forms and the arrays of the parts of a composite."""
    forms, part, number = form.get("parts"), form.get("part"), form.get("number")
    if isinstance(part, dict) and type(number) is int and 1 <= number <= MOST_STEPS:
        return [part] * number, _unstack(number, arrays)
    if not isinstance(forms, list) or not 1 <= len(forms) <= MOST_ARRAYS or not all(isinstance(f, dict) for f in forms):
        raise PolicyError("it does not say what its parts are")
    parts: list[Arrays] = [{} for _ in forms]
    for path, array in arrays.items():
        place, _, name = path.partition(".")
        if not place.isdecimal() or int(place) >= len(parts):
            raise PolicyError(f"its array {path} belongs to no part")
        parts[int(place)][name] = array
    return forms, parts


def _unstack(number: int, arrays: Arrays) -> list[Arrays]:
    """Arrays of each part, from those of `_stack`."""
    parts: list[Arrays] = [{} for _ in range(number)]
    for path, array in arrays.items():
        lengths = arrays.get(f"{path}.lengths")
        if path.removesuffix(".lengths") in arrays and path.endswith(".lengths"):
            continue
        if not path.startswith("part.") or array.ndim == 0:
            raise PolicyError(f"its array {path} belongs to no part")
        if lengths is None and len(array) != number:
            raise PolicyError(f"its array {path} has {len(array)} parts, not {number}")
        if lengths is None:
            pieces: Sequence[Array] = [np.asarray(piece) for piece in array]
        else:
            if lengths.shape != (number,) or lengths.dtype.kind not in "iu" or lengths.min() < 0:
                raise PolicyError(f"the lengths of its array {path} are invalid")
            if lengths.sum() != len(array):
                raise PolicyError(f"the lengths of its array {path} do not add up")
            pieces = np.split(array, np.cumsum(lengths)[:-1])
        for part, piece in zip(parts, pieces, strict=True):
            part[path.removeprefix("part.")] = piece
    return parts


# -- the problem that a policy was made for --------------------------------------------------------------------------

DIFFERENCES = {
    "num_arms": "it is for {} arms, and here are {}",
    "num_types": "its arms are of {} types, and here of {}",
    "num_states": "its arms have {} states, and here {}",
    "num_actions": "its arms have {} actions, and here {}",
    "budget": "its budget is {}, and here {}",
    "discount": "its discount is {}, and here {}",
}
"""Differences between the problem of a policy and another, in words."""


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
            "types": _digest(problem.type_of_block.astype("<i4").tobytes()),
            # A hundred are enough for a message; the signature decides.
            "num_states": [int(s) for s in problem.types.num_states[:100]],
            "num_actions": [int(a) for a in problem.types.num_actions[:100]],
            "criterion": problem.criterion.name,
            "over": problem.over,
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


def _check_same(made_for: dict[str, Any], problem: CoupledMDP) -> None:
    """Raise PolicyError if a policy was made for another problem."""
    here = _identity(problem)
    if made_for.get("signature") == here["signature"] and made_for.get("num_types") == here["num_types"]:
        if made_for.get("types") == here["types"]:
            return
        raise PolicyError("made for another problem (other groups or floors tell its arms apart in another way)")
    differing = [name for name in DIFFERENCES if made_for.get(name) != here[name]]
    details = "; ".join(
        DIFFERENCES[name].format(_in_text(made_for.get(name)), _in_text(here[name])) for name in differing
    )
    raise PolicyError(f"made for another problem ({details or 'other transitions, rewards, usage or initial states'})")


def _in_text(fact: Any) -> str:
    if isinstance(fact, list):
        return " and ".join(map(_in_text, dict.fromkeys(fact))) if fact else "none"
    return f"{fact:.10g}" if isinstance(fact, (int, float)) and not isinstance(fact, bool) else str(fact)


def _check_arm(made_for: dict[str, Any], problem: Problem) -> bool:
    """Return whether a network was trained on the same dynamics; raise PolicyError if on arms of another shape."""
    trained_on, here = made_for.get("arm"), _arm_facts(problem)
    if not isinstance(trained_on, dict):
        raise PolicyError("its manifest does not say on which arms it was trained")
    faults = []
    for name in ("num_states", "num_actions", "num_resources", "states", "actions"):
        one, other = trained_on.get(name), here[name]
        # Labels need agree only if both sides have some.
        if one != other and (name.startswith("num_") or (one and other)):
            faults.append(f"{name} was {one}, here {other}")
    if not faults and trained_on.get("usage") != here["usage"]:
        faults = ["actions use other amounts of the resources"]
    if faults:
        raise PolicyError(f"trained for another kind of arm ({'; '.join(faults)})")
    return not (trained_on.get("digest") and here["digest"] and trained_on["digest"] != here["digest"])


# -- errors ----------------------------------------------------------------------------------------------------------


def _guarded(source: Source, read: Callable[[zipfile.ZipFile], Found]) -> Found:
    """Read an archive; whatever a damaged file raises becomes a PolicyError with its name."""
    name = str(source) if isinstance(source, (str, PathLike)) else str(getattr(source, "name", "the plan"))
    stream: Any = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with zipfile.ZipFile(stream) as file:
            return read(file)
    except Warning:  # if a user made them errors
        raise
    except EvenhandError as error:
        raise PolicyError(f"{name}: {error}") from None
    except OSError as error:
        reason = why_unreadable(Path(name), error)
        raise PolicyError(f"{name}: cannot be read: {reason}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise PolicyError(f"{name}: cannot be read: it is not a policy file, or a damaged one") from None
    except MemoryError:
        raise PolicyError(f"{name}: cannot be read: there is not enough memory for it") from None
    except Exception as error:  # noqa: BLE001  # the file is not trusted
        packed = isinstance(error, NotImplementedError) or "password" in str(error)
        reason = "its parts are encrypted or packed in an unknown way" if packed else "it is damaged"
        raise PolicyError(f"{name}: not a policy file that can be read: {reason}") from None
