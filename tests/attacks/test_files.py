"""Files of every kind doctored by seed: bytes, text, JSON, arrays and parts. Read rightly, or refused in plain words.

Policies (a table, a mixture, a network) are opened, one thing in them is changed, digests are made right again where
the change should be seen by what stands behind them, and they are loaded and played. Models are harmed as bytes and as
data. Refusals are of the project's own kind, in words: no name of a class of Python or of a library, no traceback.
"""

import hashlib
import io
import json
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import evenhand as eh
from evenhand.errors import InvalidInputError, ModelError, PolicyError, TooLargeError
from evenhand.model import MixturePolicy
from evenhand.planning import find_policy
from evenhand.policies import CountNetworkPolicy, Network

from ..conftest import mentions, try_each

MACHINES = eh.problems.machine_replacement(num_arms=2)
OF_OTHERS = re.compile(
    r"\b[A-Z]\w+(Error|Exception|Warning|Zip|ZipFile)\b|object has no|Errno|NoneType|Traceback|\w__\w"
)
STRANGE = (None, True, 0, -1, 1e308, float("nan"), "", "x" * 2000, [], [[]], {}, {"kind": []}, 2**70, "\ud800", [None])
SEEDS, MANY_SEEDS = range(25), range(25, 6000)


def count_network(scale=1.0):
    rng = np.random.default_rng(0)
    weights = [scale * rng.standard_normal(shape).astype(np.float32) for shape in ((4, 5), (5, 6))]
    return Network(weights, [np.zeros(size, dtype=np.float32) for size in (5, 6)])


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Sound files by name."""
    folder = tmp_path_factory.mktemp("sound")
    table, random = eh.solve(MACHINES, method="joint").policy, find_policy("random").build(MACHINES, "gini:2")
    eh.save_policy(MACHINES, table, folder / "table.zip")
    eh.save_policy(MACHINES, MixturePolicy([table, random], [0.5, 0.5]), folder / "mixture.zip")
    eh.save_solution(eh.solve(MACHINES), folder / "plan.zip")
    eh.save_policy(MACHINES, CountNetworkPolicy(MACHINES, count_network()), folder / "network.zip")
    for kind in ("toml", "json", "npz"):
        eh.save(MACHINES, folder / f"model.{kind}")
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def harm_bytes(text, rng):
    """Flip, cut, double, or replace a stretch."""
    where, length = int(rng.integers(len(text))), int(rng.integers(1, 40))
    harm = {
        "flip": lambda: bytes([text[where] ^ (1 << int(rng.integers(8)))]),
        "cut": lambda: b"",
        "noise": lambda: rng.bytes(length),
        "double": lambda: 2 * text[where : where + length],
    }
    kind = str(rng.choice(["flip", "flip", "cut", "noise", "double", "end"]))
    if kind == "end":
        return text[:where]
    return text[:where] + harm[kind]() + text[where + (1 if kind == "flip" else length) :]


def places(value, path=()):
    """Every place of a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def change(value, rng):
    """The value with something strange, or nothing, at one of its places."""
    *outer, last = list(places(value))[1 + int(rng.integers(len(list(places(value))) - 1))]
    found = value
    for key in outer:
        found = found[key]
    if rng.random() < 0.3:
        del found[last]
    else:
        found[last] = STRANGE[int(rng.integers(len(STRANGE)))]


def strange_array(body, rng):
    """An array of other numbers, another type or another shape."""
    array = np.load(io.BytesIO(body))
    flat = array.reshape(-1).copy()
    if flat.size and rng.random() < 0.5:
        with np.errstate(all="ignore"):
            what = [np.nan, np.inf, -1, 1e300, 2**31][int(rng.integers(5))]
            flat[int(rng.integers(flat.size))] = what if array.dtype.kind == "f" else int(np.nan_to_num(what) % 120)
        array = flat.reshape(array.shape)
    else:
        others = [array[..., None], flat[:0], flat, array.astype(str), array.astype("c16"), array.astype("f4")]
        array = others[int(rng.integers(len(others)))]
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def doctored(text, rng):
    """A policy file with one thing changed inside, its digests right; or harmed as bytes."""
    if rng.random() < 0.3:
        return harm_bytes(text, rng)
    with zipfile.ZipFile(io.BytesIO(text)) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(parts["manifest.json"])
    arrays = [name for name in parts if name.endswith(".npy")]
    kind = str(rng.choice(["manifest", "manifest", "array", "part", "bytes", "text"]))
    if kind == "array" and arrays:
        name = str(rng.choice(arrays))
        parts[name] = strange_array(parts[name], rng)
    elif kind == "part":
        name = str(rng.choice(list(parts)))
        parts[str(rng.choice(["../up", "other", "manifest.json "]))] = parts.pop(name) if rng.random() < 0.7 else b"{}"
    elif kind == "bytes":
        name = str(rng.choice([name for name in parts if name != "manifest.json"] or list(parts)))
        parts[name] = harm_bytes(parts[name], rng)
    for name, body in parts.items():  # so that what stands behind the digest has to see it
        if name in manifest["sha256"]:
            manifest["sha256"][name] = hashlib.sha256(body).hexdigest()
    if kind == "manifest":
        change(manifest, rng)
    body = json.dumps(manifest).encode()
    if "manifest.json" in parts:
        parts["manifest.json"] = harm_bytes(body, rng) if kind == "text" else body
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return out.getvalue()


def refusal(read):
    """The words of a refusal, or None."""
    try:
        read()
    except (PolicyError, ModelError, InvalidInputError, TooLargeError) as error:
        assert not OF_OTHERS.search(str(error)), str(error)
        return str(error)
    return None


@pytest.fixture(scope="module")
def attack(originals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctored")

    def play(path):
        policy = eh.load_policy(path, MACHINES)
        eh.simulate(MACHINES, policy, 2, 3, rng=0)
        eh.evaluate(MACHINES, policy)

    def attack(seed):
        rng = np.random.default_rng([seed, 44])
        name = str(rng.choice(list(originals)))
        path = folder / name
        if name.startswith("model"):
            path.write_bytes(harm_bytes(originals[name], rng))
            refusal(lambda: eh.load(path))
            return
        path.write_bytes(doctored(originals[name], rng))
        told = refusal(lambda: play(path))
        assert told is None or str(path) in told or "polic" in told or "network" in told, told

    return attack


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")
def test_doctored_files_are_read_rightly_or_refused_in_words(attack):
    try_each(attack, SEEDS)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("first", MANY_SEEDS[::500])
def test_many_doctored_files(attack, first):
    try_each(attack, range(first, min(first + 500, MANY_SEEDS.stop)))


def test_a_network_whose_sums_overflow_is_refused():
    with pytest.raises(InvalidInputError, check=mentions("layer 0")):
        count_network(scale=1e38)
    assert count_network(scale=1e30)(np.ones((1, 4), dtype=np.float32)).shape == (1, 6)


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"problem": []}, "problem"),
        ({"sha256": []}, "sha256"),
        ({"sha256": {"pairs": "", "probabilities": ""}}, "members"),
        ({"kind": "other"}, "not known"),
    ],
)
def test_faults_of_a_manifest_are_reported(originals, tmp_path, about, words):
    path = tmp_path / "policy.zip"
    with zipfile.ZipFile(io.BytesIO(originals["table.zip"])) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["manifest.json"] = json.dumps(json.loads(parts["manifest.json"]) | about).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    with pytest.raises(PolicyError, match=words):
        eh.load_policy(path, MACHINES)


@pytest.mark.parametrize(("where", "rest"), [("MODEL", ["solve"]), ("POLICY", ["evaluate", "machine-replacement"])])
def test_a_name_that_no_file_can_have_is_bad_input(where, rest):
    name = "x" * 300
    command = [sys.executable, "-m", "evenhand", *rest, name, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert mentions(name)(done.stderr)
