"""Policies as files: what comes back is what went in; a file that is not sound is refused, and nothing in it runs."""

import hashlib
import io
import json
import os
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand import checks, solve
from evenhand.errors import EvenhandError, NotApplicableError, PolicyError
from evenhand.evaluation import Method, evaluate
from evenhand.model import Arm, CoupledMDP, Policy
from evenhand.planning import load_policy, save_policy, save_solution
from evenhand.policies import Resolving, whittle
from evenhand.problems import machine_replacement
from evenhand.solvers import CountChoices, Counts, CountTable, Joint, JointTable

from ..conftest import mentions
from ..theorems.product_space import random_arm


def typed() -> CoupledMDP:
    rng = np.random.default_rng(0)
    return CoupledMDP([random_arm(rng, 2, 2, 1), random_arm(rng, 3, 2, 1)], [1.0], 0.9, [2, 1])


KINDS: dict[str, tuple[Callable[[], CoupledMDP], str, str, type]] = {
    "count-choices": (lambda: machine_replacement(num_arms=4, budget=1), "gini:2", "counts", CountChoices),
    "count-table": (typed, "maximin", "counts", CountTable),
    "joint-table": (typed, "maximin", "joint", JointTable),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def problem(kind: str) -> CoupledMDP:
    return KINDS[kind][0]()


@cache
def sound(kind: str) -> bytes:
    build, welfare, method, _ = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "best.policy"
        save_solution(solve(build(), welfare, method), path)
        return path.read_bytes()


@pytest.fixture
def saved(kind: str, tmp_path: Path) -> Path:
    """A sound file."""
    path = tmp_path / "best.policy"
    path.write_bytes(sound(kind))
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def rewrite(path: Path, parts: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in parts.items():
            file.writestr(name, body)


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    body = io.BytesIO()
    np.lib.format.write_array(body, array, allow_pickle=allow_pickle)
    return body.getvalue()


def change_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    parts = members(path)
    manifest = json.loads(parts["manifest.json"])
    change(manifest)
    rewrite(path, parts | {"manifest.json": json.dumps(manifest).encode()})


def change_arrays(path: Path, **arrays: np.ndarray | bytes) -> None:
    """Replace or add arrays, with their hashes in the manifest as a careful forger would."""
    parts = members(path)
    manifest = json.loads(parts["manifest.json"])
    for name, array in arrays.items():
        body = array if isinstance(array, bytes) else npy(array)
        parts[f"{name}.npy"] = body
        manifest["sha256"][f"{name}.npy"] = hashlib.sha256(body).hexdigest()
    rewrite(path, parts | {"manifest.json": json.dumps(manifest).encode()})


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    bodies = {name.removesuffix(".npy"): body for name, body in members(path).items() if name.endswith(".npy")}
    return {name: np.load(io.BytesIO(body), allow_pickle=False) for name, body in bodies.items()}


def refused(path: Path, problem: CoupledMDP, message: str = "") -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(path, problem)
    assert message in str(caught.value)


def test_a_threshold_that_is_no_number(tmp_path: Path) -> None:
    problem = machine_replacement(num_arms=2)
    save_policy(problem, whittle(problem), tmp_path / "x.policy")
    change_arrays(tmp_path / "x.policy", threshold=np.array(np.nan))
    refused(tmp_path / "x.policy", problem, "threshold: expected a number, got nan")


class TestRoundTrip:
    def test_acts_and_is_worth_the_same(self, kind: str, problem: CoupledMDP, tmp_path: Path) -> None:
        _, welfare, method, expected = KINDS[kind]
        policy = solve(problem, welfare, method).policy
        path = tmp_path / "x.policy"
        save_policy(problem, policy, path)
        again = load_policy(path, problem)
        assert type(again) is type(policy) is expected
        states = np.stack(
            [np.random.default_rng(n).integers(s, size=200) for n, s in enumerate(num_states(problem))], axis=1
        ).astype(np.int32)
        before, after = (which.act(states, np.random.default_rng(7)) for which in (policy, again))
        assert np.array_equal(before, after)
        one, other = (evaluate(problem, which, welfare, method="exact") for which in (policy, again))
        assert one.welfare == other.welfare
        assert np.array_equal(one.values, other.values)

    def test_the_same_policy_is_the_same_file(self, problem: CoupledMDP, saved: Path, tmp_path: Path) -> None:
        policy = load_policy(saved, problem)
        first, second = tmp_path / "first.policy", tmp_path / "second.policy"
        save_policy(problem, policy, first)
        os.utime(first, (0, 0))
        save_policy(problem, load_policy(first, problem), second)
        assert first.read_bytes() == second.read_bytes()

    def test_two_solves_are_the_same_file(self, kind: str, problem: CoupledMDP, saved: Path, tmp_path: Path) -> None:
        again = tmp_path / "again.policy"
        save_solution(solve(KINDS[kind][0](), KINDS[kind][1], KINDS[kind][2]), again)
        assert again.read_bytes() == saved.read_bytes()

    def test_the_manifest_has_the_certificate(self, kind: str, saved: Path, problem: CoupledMDP) -> None:
        manifest = json.loads(members(saved)["manifest.json"])
        solution = solve(problem, KINDS[kind][1], KINDS[kind][2])
        assert (manifest["format"], manifest["schema"], manifest["kind"]) == ("evenhand-policy", 1, kind)
        assert manifest["problem"]["signature"] == problem.signature
        assert manifest["about"]["value"] == solution.welfare
        assert manifest["about"]["upper_bound"] == solution.upper_bound
        assert manifest["about"]["gap"] == solution.gap

    def test_a_policy_that_is_no_table_is_not_saved(self, tmp_path: Path) -> None:
        class Idle:
            def act(self, states: np.ndarray, rng: np.random.Generator) -> np.ndarray:
                return np.zeros_like(states)

        with pytest.raises(NotApplicableError, check=mentions("Idle")):
            save_policy(typed(), Idle(), tmp_path / "x.policy")
        assert list(tmp_path.iterdir()) == []

    def test_labels_do_not_matter(self, tmp_path: Path) -> None:
        """A policy is for the numbers of a problem, not for what people call its states."""
        problem = typed()
        save_solution(solve(problem), tmp_path / "x.policy")
        arms = [Arm(a.transitions, a.rewards, a.usage, a.initial, name=f"kind {n}") for n, a in enumerate(problem.arms)]
        named = CoupledMDP(arms, problem.budget, problem.discount, problem.counts)
        assert evaluate(named, load_policy(tmp_path / "x.policy", named), method="exact").exact


def num_states(problem: CoupledMDP) -> list[int]:
    return [int(problem.types.num_states[kind]) for kind in problem.type_of_arm]


class TestWriting:
    def test_a_failed_write_leaves_the_old_file(
        self, problem: CoupledMDP, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        policy, before = load_policy(saved, problem), saved.read_bytes()

        def fail(*args: object) -> None:
            raise OSError("no space left")

        for where, name in ((os, "fsync"), (Path, "replace")):
            with monkeypatch.context() as patch:
                patch.setattr(where, name, fail)
                with pytest.raises(OSError):
                    save_policy(problem, policy, saved, {"other": 1})
            assert saved.read_bytes() == before
            assert list(saved.parent.iterdir()) == [saved]

    def test_an_existing_file_is_replaced(self, problem: CoupledMDP, saved: Path) -> None:
        policy = load_policy(saved, problem)
        save_policy(problem, policy, saved, {"note": "second"})
        assert json.loads(members(saved)["manifest.json"])["about"] == {"note": "second"}

    def test_a_missing_folder(self, problem: CoupledMDP, saved: Path, tmp_path: Path) -> None:
        with pytest.raises(EvenhandError, check=mentions(tmp_path / "no" / "x.policy")):
            save_policy(problem, load_policy(saved, problem), tmp_path / "no" / "x.policy")


class TestNotAPolicy:
    def test_missing(self, tmp_path: Path) -> None:
        refused(tmp_path / "none.policy", typed(), "none.policy")

    def test_a_folder(self, tmp_path: Path) -> None:
        refused(tmp_path, typed(), str(tmp_path))

    @pytest.mark.parametrize("content", [b"", b"PK", b"not a zip at all", b"\x80\x04K*.", bytes(10_000)])
    def test_not_an_archive(self, content: bytes, tmp_path: Path) -> None:
        path = tmp_path / "x.policy"
        path.write_bytes(content)
        refused(path, typed(), "not a policy file")

    def test_an_empty_archive(self, tmp_path: Path) -> None:
        rewrite(tmp_path / "x.policy", {})
        refused(tmp_path / "x.policy", typed())

    def test_truncated(self, saved: Path, problem: CoupledMDP) -> None:
        whole = saved.read_bytes()
        for size in (len(whole) - 1, len(whole) // 2, 100, 30, 4, 1):
            saved.write_bytes(whole[:size])
            refused(saved, problem)


class TestDamage:
    """Any one byte changed: the file is refused, or it is the same policy."""

    @staticmethod
    def outcomes(saved: Path, problem: CoupledMDP, bits: list[int]) -> tuple[int, list[str]]:
        whole, expected = saved.read_bytes(), arrays_of(saved)
        good, wrong = 0, []
        for place in range(0, len(whole), 3):
            for bit in bits:
                changed = bytearray(whole)
                changed[place] ^= bit
                saved.write_bytes(bytes(changed))
                try:
                    load_policy(saved, problem)
                except PolicyError:
                    good += 1
                except Exception as error:  # noqa: BLE001
                    wrong.append(f"byte {place} ^ {bit}: {type(error).__name__}: {error}")
                else:
                    found = arrays_of(saved)
                    if any(not np.array_equal(found[name], expected[name]) for name in expected):
                        wrong.append(f"byte {place} ^ {bit}: another policy")
        return good, wrong

    @pytest.mark.parametrize("kind", ["count-choices", "joint-table"], indirect=True)
    def test_one_byte(self, saved: Path, problem: CoupledMDP) -> None:
        good, wrong = self.outcomes(saved, problem, [1, 0x40])
        assert good > 100
        assert wrong == []

    def test_a_changed_number_with_a_sound_archive(self, saved: Path, problem: CoupledMDP) -> None:
        """The zip checksums agree, the manifest's do not."""
        parts = members(saved)
        name = next(name for name in parts if name.endswith(".npy"))
        body = bytearray(parts[name])
        body[-1] ^= 1
        rewrite(saved, parts | {name: bytes(body)})
        refused(saved, problem, "hash differs")

    def test_a_wrong_hash(self, saved: Path, problem: CoupledMDP) -> None:
        change_manifest(saved, lambda manifest: manifest["sha256"].update({next(iter(manifest["sha256"])): "0" * 64}))
        refused(saved, problem, str(saved))


class TestMembers:
    def test_an_extra_member(self, saved: Path, problem: CoupledMDP) -> None:
        rewrite(saved, members(saved) | {"extra.npy": npy(np.zeros(1))})
        refused(saved, problem)

    def test_a_member_twice(self, saved: Path, problem: CoupledMDP) -> None:
        parts = members(saved)
        name = next(name for name in parts if name.endswith(".npy"))
        with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(saved, "a") as file:
            file.writestr(name, parts[name])
        refused(saved, problem)

    def test_a_missing_member(self, saved: Path, problem: CoupledMDP) -> None:
        for name in members(saved):
            parts = members(saved)
            body = parts.pop(name)
            rewrite(saved, parts)
            refused(saved, problem)
            rewrite(saved, parts | {name: body})

    def test_a_member_that_climbs_out(self, saved: Path, problem: CoupledMDP) -> None:
        rewrite(saved, members(saved) | {"../climbed.npy": npy(np.zeros(1))})
        refused(saved, problem)
        assert not (saved.parent.parent / "climbed.npy").exists()

    @pytest.mark.parametrize("name", ["../climbed", "/climbed", "extra"])
    def test_an_array_nobody_asked_for(self, name: str, saved: Path, problem: CoupledMDP) -> None:
        """Even if the manifest lists it: a policy of this kind has no such part."""
        change_arrays(saved, **{name: np.zeros(1, dtype=np.int64)})
        assert not (saved.parent.parent / "climbed.npy").exists()
        refused(saved, problem)

    def test_an_array_that_the_kind_needs_is_not_there(self, saved: Path, problem: CoupledMDP) -> None:
        for name in arrays_of(saved):
            whole = saved.read_bytes()
            parts = members(saved)
            parts.pop(f"{name}.npy")
            manifest = json.loads(parts["manifest.json"])
            manifest["sha256"].pop(f"{name}.npy")
            rewrite(saved, parts | {"manifest.json": json.dumps(manifest).encode()})
            refused(saved, problem)
            saved.write_bytes(whole)

    def test_a_locked_member(self, saved: Path, problem: CoupledMDP) -> None:
        """The flag that says a member is encrypted, in both of its headers."""
        whole = bytearray(saved.read_bytes())
        for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            place = whole.find(signature)
            while place >= 0:
                whole[place + flags] |= 1
                place = whole.find(signature, place + 4)
        saved.write_bytes(bytes(whole))
        refused(saved, problem)


class Bomb:
    """Unpickled, it would create a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.target,)


class TestNothingRuns:
    def test_the_bomb_works(self, tmp_path: Path) -> None:
        target = tmp_path / "touched"
        pickle.loads(pickle.dumps(Bomb(target)))  # noqa: S301  # to know that the tests below could fail
        assert target.exists()

    def test_a_pickled_array(self, saved: Path, problem: CoupledMDP, tmp_path: Path) -> None:
        target = tmp_path / "touched"
        body = npy(np.array([Bomb(target)], dtype=object), allow_pickle=True)
        for name in arrays_of(saved):
            whole = saved.read_bytes()
            change_arrays(saved, **{name: body})
            refused(saved, problem)
            saved.write_bytes(whole)
        assert not target.exists()

    def test_a_pickle_for_an_array(self, saved: Path, problem: CoupledMDP, tmp_path: Path) -> None:
        target = tmp_path / "touched"
        change_arrays(saved, **{next(iter(arrays_of(saved))): pickle.dumps(Bomb(target))})
        refused(saved, problem)
        assert not target.exists()

    def test_a_pickle_for_a_policy(self, problem: CoupledMDP, tmp_path: Path) -> None:
        target, path = tmp_path / "touched", tmp_path / "x.policy"
        path.write_bytes(pickle.dumps(Bomb(target)))
        refused(path, problem)
        assert not target.exists()


class TestManifest:
    @pytest.mark.parametrize(
        "manifest",
        [
            b"",
            b"{",
            b"\xff\xfe",
            b"null",
            b"[]",
            b"7",
            b'"evenhand-policy"',
            b'{"format": "evenhand-policy"}',
            b'{"format": "evenhand-policy", "schema": 1}',
            pytest.param(b"[" * 100_000),
        ],
        ids=lambda body: body[:20].decode("latin-1") or "empty",
    )
    def test_not_a_manifest(self, manifest: bytes, saved: Path, problem: CoupledMDP) -> None:
        rewrite(saved, members(saved) | {"manifest.json": manifest})
        refused(saved, problem)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": "evenhand-model"}, "not an evenhand policy"),
            ({"schema": 2}, "its schema is 2; this version reads 1"),
            ({"schema": "1"}, "its schema is 1"),
            ({"schema": None}, "its schema is None"),
            ({"kind": "network"}, "not known"),
            ({"kind": None}, "kind"),
            pytest.param({"kind": ["count-table"]}, ""),
            pytest.param({"kind": {}}, ""),
            pytest.param({"problem": None}, ""),
            pytest.param({"problem": []}, ""),
            pytest.param({"problem": "mine"}, ""),
            ({"sha256": None}, ""),
            ({"sha256": []}, ""),
            ({"sha256": 7}, ""),
        ],
        ids=str,
    )
    def test_a_wrong_entry(self, change: dict[str, Any], message: str, saved: Path, problem: CoupledMDP) -> None:
        change_manifest(saved, lambda manifest: manifest.update(change))
        refused(saved, problem, message)

    @pytest.mark.parametrize(
        "entry",
        ["format", "schema", pytest.param("kind"), pytest.param("problem"), "sha256"],
    )
    def test_a_missing_entry(self, entry: str, saved: Path, problem: CoupledMDP) -> None:
        change_manifest(saved, lambda manifest: manifest.pop(entry))
        refused(saved, problem)

    def test_facts_that_are_no_table(self, saved: Path, problem: CoupledMDP) -> None:
        change_manifest(saved, lambda manifest: manifest.update(sha256=dict.fromkeys(manifest["sha256"], 7)))
        refused(saved, problem)

    def test_a_huge_manifest(self, saved: Path, problem: CoupledMDP) -> None:
        change_manifest(saved, lambda manifest: manifest.update(about="x" * 2_000_000))
        refused(saved, problem, "too large")

    def test_another_kind(self, saved: Path, kind: str, problem: CoupledMDP) -> None:
        """The tables of one kind under the name of another do not fit."""
        for other in KINDS:
            if other != kind:
                change_manifest(saved, lambda manifest, other=other: manifest.update(kind=other))
                refused(saved, problem)


class TestSizes:
    def test_declared_sizes_beyond_memory(
        self, saved: Path, problem: CoupledMDP, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The directory says that a member unpacks to almost 4 GB; it is refused before anything is unpacked."""
        whole = bytearray(saved.read_bytes())
        place = whole.rfind(b"PK\x01\x02")
        whole[place + 24 : place + 28] = struct.pack("<I", 0xFFFFFFF0)
        saved.write_bytes(bytes(whole))
        monkeypatch.setattr(checks, "available_memory", lambda: 4e9)
        refused(saved, problem, "would need")

    def test_a_bomb_of_zeros(self, saved: Path, problem: CoupledMDP, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checks, "available_memory", lambda: 1e7)
        change_arrays(saved, **{next(iter(arrays_of(saved))): bytes(20_000_000)})
        assert saved.stat().st_size < 100_000
        refused(saved, problem, "would need")

    @pytest.mark.parametrize(
        "shape",
        [
            pytest.param((10**15,)),
            pytest.param((10**18,)),
            pytest.param((10**30,)),
            (2**62, 4),
            (-1,),
        ],
        ids=str,
    )
    def test_an_array_that_claims_to_be_huge(self, shape: tuple[int, ...], saved: Path, problem: CoupledMDP) -> None:
        body = io.BytesIO()
        header = {"descr": "<i8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(body, header)
        change_arrays(saved, **{next(iter(arrays_of(saved))): body.getvalue() + bytes(64)})
        refused(saved, problem)


class TestAnotherProblem:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"discount": 0.8}, "discount was 0.9, here 0.8"),
            ({"budget": [2.0]}, "budget was [1.0], here [2.0]"),
            ({"counts": [1, 1]}, "num_arms was 3, here 2"),
            ({"counts": [1, 2]}, "other transitions"),
        ],
        ids=str,
    )
    def test_says_how_it_differs(self, change: dict[str, Any], message: str, tmp_path: Path) -> None:
        problem = typed()
        path = tmp_path / "x.policy"
        save_solution(solve(problem), path)
        fields = {"budget": problem.budget, "discount": problem.discount, "counts": problem.counts} | change
        refused(path, CoupledMDP(list(problem.arms), **fields), f"made for another problem ({message}")

    def test_other_numbers(self, tmp_path: Path) -> None:
        path = tmp_path / "x.policy"
        save_solution(solve(machine_replacement(num_arms=3, operating_cost="quadratic")), path)
        other = machine_replacement(num_arms=3, operating_cost="exponential")
        refused(path, other, "other transitions")

    def test_other_sizes(self, tmp_path: Path) -> None:
        path = tmp_path / "x.policy"
        save_solution(solve(machine_replacement(num_arms=3)), path)
        refused(path, typed(), "num_types was 1, here 2; num_states was [3], here [2, 3]")


def forge(path: Path, kind: str, problem: CoupledMDP, **arrays: np.ndarray) -> None:
    """A file that is sound in form, with arrays of our choice."""
    policy: Policy
    if kind == "count-choices":
        base = np.zeros(problem.types.rewards.shape[1], dtype=np.int64)
        amounts = np.zeros((Counts(problem).num_states, 1), dtype=np.int32)
        policy = CountChoices(problem, np.array([[0, 1]]), base, amounts)
    else:
        space = Counts(problem) if kind == "count-table" else Joint(problem)
        table = np.zeros(space.mdp.num_pairs)
        table[space.mdp.offsets[:-1]] = 1.0
        policy = space.lift(table)
    save_policy(problem, policy, path)
    load_policy(path, problem)
    change_arrays(path, **arrays)


class TestTablesThatBreakTheRules:
    """Sound in form, but no policy: refused when it is read, or at the latest when it is evaluated."""

    @pytest.mark.parametrize("kind", ["count-table", "joint-table"], indirect=True)
    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda p: p * 0.9, id="sum below 1"),
            pytest.param(lambda p: p * 0.0, id="sum 0"),
            pytest.param(lambda p: p * 2, id="sum above 1"),
            pytest.param(lambda p: np.where(np.arange(len(p)) == 0, -1.0, p), id="negative"),
            pytest.param(lambda p: np.where(np.arange(len(p)) == 0, np.inf, p), id="inf"),
            pytest.param(lambda p: np.where(np.arange(len(p)) == 0, np.nan, p), id="one nan"),
            pytest.param(lambda p: np.full_like(p, np.nan), id="all nan"),
            pytest.param(lambda p: p.astype(complex), id="complex"),
            pytest.param(lambda p: p.astype(str), id="text"),
            pytest.param(lambda p: p[0], id="one number"),
            pytest.param(lambda p: p[:-1], id="too few"),
            pytest.param(lambda p: np.append(p, 0.5), id="too many"),
            pytest.param(lambda p: p[:, None], id="two axes"),
            pytest.param(lambda p: p[:0], id="none"),
        ],
    )
    def test_probabilities(self, change: Callable, kind: str, problem: CoupledMDP, tmp_path: Path) -> None:
        path = tmp_path / "x.policy"
        forge(path, kind, problem)
        change_arrays(path, probabilities=np.asarray(change(arrays_of(path)["probabilities"])))
        refused(path, problem)

    @pytest.mark.parametrize("kind", ["count-table", "joint-table"], indirect=True)
    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda p: p - 1, id="negative"),
            pytest.param(lambda p: p + 10_000, id="beyond"),
            pytest.param(lambda p: p + 0.5, id="fractions"),
            pytest.param(lambda p: np.zeros_like(p), id="repeated"),
            pytest.param(lambda p: p.astype(bool), id="true and false"),
            pytest.param(lambda p: p.astype(np.uint64) + np.uint64(2**63), id="huge"),
            pytest.param(lambda p: p[:-1], id="too few"),
            pytest.param(lambda p: p[:, None], id="two axes"),
        ],
    )
    def test_pairs(self, change: Callable, kind: str, problem: CoupledMDP, tmp_path: Path) -> None:
        path = tmp_path / "x.policy"
        forge(path, kind, problem)
        change_arrays(path, pairs=np.asarray(change(arrays_of(path)["pairs"])))
        refused(path, problem)

    @pytest.mark.parametrize(
        "arrays",
        [
            {"amounts": np.full((15, 1), -1)},
            {"amounts": np.zeros((14, 1), dtype=np.int32)},
            {"amounts": np.zeros((15, 2), dtype=np.int32)},
            {"amounts": np.zeros((15, 1))},
            pytest.param({"amounts": np.zeros(15, dtype=np.int32)}),
            pytest.param({"amounts": np.array(0)}),
            {"cells": np.array([[3, 1]])},
            {"cells": np.array([[0, 2]])},
            {"cells": np.array([[-1, 1]])},
            {"cells": np.array([0, 1])},
            {"base": np.array([0, 0, 2])},
            {"base": np.array([0, 0])},
            {"base": np.array([0.0, 0.0, 0.0])},
            {"amounts": np.ones((15, 1), dtype=np.int32)},  # also where nobody is in the state
            {"amounts": np.full((15, 1), 2**63, dtype=np.uint64)},
        ],
        ids=lambda arrays: f"{next(iter(arrays))} {next(iter(arrays.values())).tolist()!s:.30}",
    )
    def test_choices_that_do_not_fit(self, arrays: dict[str, np.ndarray], tmp_path: Path) -> None:
        problem = machine_replacement(num_arms=4, budget=1)
        path = tmp_path / "x.policy"
        forge(path, "count-choices", problem, **arrays)
        refused(path, problem)

    @pytest.mark.parametrize("method", ["exact", "monte-carlo"])
    @pytest.mark.parametrize(
        "arrays",
        [
            pytest.param({"amounts": np.full((15, 1), 4, dtype=np.int32)}, id="more arms than there are"),
            pytest.param({"amounts": np.full((15, 1), 2**30, dtype=np.int32)}, id="very many arms"),
            pytest.param({"base": np.array([1, 1, 1])}, id="more than the budget"),
        ],
    )
    def test_choices_beyond_the_counts_or_the_budget(
        self, arrays: dict[str, np.ndarray], method: Method, tmp_path: Path
    ) -> None:
        problem = machine_replacement(num_arms=4, budget=1)
        path = tmp_path / "x.policy"
        forge(path, "count-choices", problem, **arrays)
        with pytest.raises(PolicyError):
            evaluate(problem, load_policy(path, problem), num_episodes=5, horizon=5, rng=0, method=method)

    def test_choices_for_arms_that_differ(self, tmp_path: Path) -> None:
        """Tables that fit in size, under a problem of several types."""
        problem = typed()
        path = tmp_path / "x.policy"
        forge(path, "count-table", problem)
        number = Counts(problem).num_states
        parts = members(path)
        manifest = json.loads(parts.pop("manifest.json")) | {"kind": "count-choices", "sha256": {}}
        rewrite(path, {"manifest.json": json.dumps(manifest).encode()})
        base, amounts = np.zeros(3, dtype=np.int64), np.zeros((number, 1), dtype=np.int64)
        change_arrays(path, cells=np.array([[0, 0]]), base=base, amounts=amounts)
        refused(path, problem)


@pytest.mark.parametrize(
    "change",
    [
        {"points": np.array(20_001)},
        {"points": np.array(0)},
        {"weights": np.array([np.nan])},
        {"prices": np.full(1, np.inf)},
    ],
    ids=str,
)
def test_a_re_solving_policy_that_nobody_made(change: dict[str, np.ndarray], tmp_path: Path) -> None:
    machines, path = machine_replacement(num_arms=4, budget=1), tmp_path / "policy.zip"
    save_policy(machines, Resolving(machines, np.ones(1), np.ones(1)), path)
    assert load_policy(path, machines)
    change_arrays(path, **change)
    refused(path, machines)
