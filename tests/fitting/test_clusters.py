"""Types from data: against EM written arm by arm, a direct optimiser, and known types."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from evenhand.errors import InvalidInputError, NotApplicableError
from evenhand.fitting import Log, find_clusters
from evenhand.fitting.clusters import UNIDENTIFIED, Tried, begin_apart, chosen, iterate, read_histories

from ..conftest import mentions


def as_log(states, actions=None, times=None, regular=True):
    """A log of lists of states, one an arm."""
    lengths = [len(one) for one in states]
    arm = np.repeat(np.arange(len(states), dtype=np.int32), lengths)
    state = np.concatenate([np.asarray(one, np.int32) for one in states])
    action = np.zeros(len(arm), np.int32) if actions is None else np.concatenate(actions).astype(np.int32)
    time = np.concatenate([np.arange(n, dtype=float) for n in lengths] if times is None else times)
    names = tuple(f"arm {i}" for i in range(len(states)))
    type_of = np.zeros(len(states), np.int32)
    rows = np.arange(len(arm))
    return Log(names, ("all",), ("a", "b", "c"), ("idle", "serve"), type_of, arm, time, state, action, rows, regular)


def simulated(rows, shares, num_arms, length, rng):
    """Arms of known types: rows (type, state, action, next_state)."""
    kinds = rng.choice(len(shares), p=shares, size=num_arms)
    state, states, actions = rng.integers(3, size=num_arms), [], []
    for _ in range(length):
        states.append(state)
        actions.append(rng.integers(2, size=num_arms))
        ladder = rows[kinds, state, actions[-1]].cumsum(axis=1)
        state = np.minimum((ladder < rng.random(num_arms)[:, None]).sum(axis=1), 2)
    return as_log(np.stack(states, axis=1), list(np.stack(actions, axis=1))), kinds


APART = np.array(
    [
        [[[0.8, 0.15, 0.05], [0.95, 0.04, 0.01]], [[0.1, 0.8, 0.1], [0.7, 0.2, 0.1]], [[0.05, 0.15, 0.8]] * 2],
        [[[0.3, 0.5, 0.2], [0.4, 0.4, 0.2]], [[0.3, 0.3, 0.4], [0.1, 0.3, 0.6]], [[0.5, 0.3, 0.2]] * 2],
    ]
)
"""Two types, of three states and two actions."""


def plain_em(tables, pooled, shares, rows, iterations):
    """EM arm by arm: tables (arm, row, next), rows (type, row, next)."""
    for _ in range(iterations):
        counts, sizes = np.zeros_like(rows), np.zeros(len(shares))
        for table in tables:
            logs = [np.log(shares[k]) + (table * np.log(rows[k])).sum() for k in range(len(shares))]
            part = softmax(logs)
            sizes += part
            counts += part[:, None, None] * table
        shares = sizes / len(tables)
        counts += pooled / len(shares)
        rows = counts / counts.sum(axis=2, keepdims=True)
    return shares, rows


def test_em_is_that_of_single_arms_and_its_end_no_optimiser_betters():
    log, _ = simulated(APART, [0.6, 0.4], 40, 12, np.random.default_rng(0))
    histories = read_histories(log)
    tables = np.asarray(histories.counts.todense())[histories.history_of].reshape(40, 6, 3)
    weights = histories.weights()[:, None]
    pooled = histories.pooled(weights)[:, 0].reshape(6, 3)
    begin = begin_apart(histories, weights, 2, np.random.default_rng(1))
    few = iterate(histories, weights, begin, 7)
    shares, rows = plain_em(tables, pooled, begin.shares[0], begin.rows[:, 0].T.reshape(2, 6, 3), 7)
    np.testing.assert_allclose(few.shares[0], shares)
    np.testing.assert_allclose(few.rows[:, 0].T.reshape(2, 6, 3), rows)

    def lacks(free):
        logs = np.log(softmax(free[2:].reshape(2, 6, 3), axis=2))
        joint = np.tensordot(tables, logs, axes=([1, 2], [1, 2])) + np.log(softmax(free[:2]))
        return -logsumexp(joint, axis=1).sum() - (pooled / 2 * logs).sum()

    end = iterate(histories, weights, begin, 2000)
    at_end = np.concatenate([np.log(end.shares[0]), np.log(end.rows[:, 0].T.ravel())])
    assert end.objective[0] == pytest.approx(-lacks(at_end), rel=1e-7)
    better = minimize(lacks, at_end, method="L-BFGS-B")
    assert -better.fun <= end.objective[0] + 1e-4


def test_runs_side_by_side_are_the_runs_alone():
    log, _ = simulated(APART, [0.5, 0.5], 30, 8, np.random.default_rng(2))
    histories = read_histories(log)
    weights = np.stack([histories.weights(np.arange(20)), histories.weights()], axis=1)
    begin = begin_apart(histories, weights, 3, np.random.default_rng(3))
    both = iterate(histories, weights, begin, 5)
    for run in (0, 1):
        alone = iterate(histories, weights[:, [run]], begin.only(np.array([run])), 5)
        np.testing.assert_allclose(both.rows[:, [run]], alone.rows)


def test_arms_with_like_moves_are_one_history():
    log = as_log([[0, 1, 0, 1], [0, 1], [0, 1, 0, 1], [2], [0, 1], [1, 0, 1, 0]])
    histories = read_histories(log)
    assert histories.history_of.tolist() == [0, 1, 0, 2, 1, 3]
    assert histories.num_moves.tolist() == [3, 1, 0, 3]


def test_moves_over_other_times_are_other_rows():
    log = as_log([[0, 1, 0], [0, 1, 0]], times=[np.array([0.0, 1, 2]), np.array([0.0, 4, 5])])
    assert read_histories(log).history_of.tolist() == [0, 1]


def test_known_types_are_found_with_their_number():
    log, kinds = simulated(APART, [0.7, 0.3], 150, 25, np.random.default_rng(4))
    found = find_clusters(log)
    assert found.names == ("type 1", "type 2")
    assert (found.type_of == kinds).mean() > 0.95  # type 1 is the larger, as kind 0 is
    assert found.tried[1].behind == 0.0 and found.tried[0].behind > 4 * found.tried[0].error
    assert min(found.tried, key=lambda one: one.bic).number == 2
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    again = find_clusters(log)
    assert (again.probabilities == found.probabilities).all()


def test_the_order_of_arms_changes_nothing_but_the_order():
    log, _ = simulated(APART, [0.7, 0.3], 60, 25, np.random.default_rng(5))
    states, actions = log.state.reshape(60, -1)[::-1], log.action.reshape(60, -1)[::-1]
    one, other = find_clusters(log, 2), find_clusters(as_log(states, list(actions)), 2)
    np.testing.assert_allclose(one.probabilities, other.probabilities[::-1], atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_one_type_is_one_type(seed):
    log, _ = simulated(APART[:1], [1.0], 80, 15, np.random.default_rng(seed))
    found = find_clusters(log)
    assert found.number == 1 and found.names == ("all",) and not found.notes


def test_single_moves_do_not_identify_types_and_a_note_says_so():
    log, _ = simulated(APART, [0.5, 0.5], 200, 2, np.random.default_rng(6))
    found = find_clusters(log)
    assert found.number == 1 and not found.tried
    assert mentions("1 move")(found.notes[0])


def test_types_that_are_not_there_are_not_made_up():
    log = as_log([[0, 1, 0, 1, 0]] * 6)
    found = find_clusters(log, 3)
    assert found.number == 1
    assert "3 types were requested" in found.notes[0]


def test_the_smallest_number_that_is_not_clearly_worse():
    tried = tuple(Tried(k, 0.0, behind, 0.1, 0.0) for k, behind in ((1, 0.5), (2, 0.19), (3, 0.0)))
    assert chosen(tried) == 2
    assert chosen(()) == 1


def test_members_are_written_and_the_log_gets_their_types(tmp_path):
    log = as_log([[0, 0, 0, 0, 0, 0, 0], [0, 1, 2, 0, 1, 2, 0], [0, 0, 0, 0, 0, 0], [1]])
    found = find_clusters(log, 2)
    relabelled = found.relabelled(log)
    assert relabelled.types == ("type 1", "type 2") and relabelled.type_of[[0, 1, 2]].tolist() == [0, 1, 0]
    assert any(mentions("1 arm")(note) for note in relabelled.notes)
    found.write(tmp_path / "members.csv")
    with (tmp_path / "members.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["arm"] for row in rows] == list(log.arms)
    assert [row["type"] for row in rows] == [found.names[kind] for kind in found.type_of]
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    assert found.to_dict()["members"][1]["type"] == "type 2"
    with pytest.raises(InvalidInputError):
        found.relabelled(as_log([[0, 1]]))


@pytest.mark.parametrize("number", [0, 5, "some", 1.5, True])
def test_numbers_are_checked(number):
    with pytest.raises(InvalidInputError, check=mentions(1, 4)):
        find_clusters(as_log([[0, 1]] * 4), number)


@given(st.data())
def test_odd_logs_give_sound_types(data):
    """Arms of one row, arms that are all alike, as many types as arms."""
    arm = st.lists(st.integers(0, 2), min_size=1, max_size=5)
    log = as_log(data.draw(st.lists(arm, min_size=1, max_size=12)))
    number = data.draw(st.one_of(st.just("auto"), st.integers(1, log.num_arms)))
    found = find_clusters(log, number)
    assert 1 <= found.number <= log.num_arms
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    sizes = np.bincount(found.type_of, minlength=found.number)
    assert (sizes > 0).all() and (np.diff(sizes) <= 0).all()


def one_action_each(log):
    """The same arms, each with the action of its first row throughout."""
    first = np.append(True, log.arm[1:] != log.arm[:-1])
    return replace(log, action=log.action[first][log.arm])


def test_effects_on_types_are_identified_by_arms_with_several_actions():
    log, _ = simulated(APART, [0.6, 0.4], 60, 20, np.random.default_rng(0))
    assert find_clusters(log, 2).identifies_effects
    assert list(find_clusters(log, 2).reasons) == ["types"]  # testing types on the records they come from is circular
    apart = find_clusters(one_action_each(log), 2)
    assert not apart.identifies_effects and apart.to_dict()["identifies_effects"] is False
    assert apart.reasons["effects"] == UNIDENTIFIED and any(UNIDENTIFIED in note for note in apart.notes)
    exceptional = replace(one_action_each(log), action=one_action_each(log).action.copy())
    exceptional.action[:5] = 1 - exceptional.action[0]  # one arm of sixty changes
    assert not find_clusters(exceptional, 2).identifies_effects
    idle = replace(log, action=np.zeros_like(log.action))
    assert find_clusters(idle, 2).identifies_effects
    assert find_clusters(one_action_each(log), 1).identifies_effects


def test_the_likelihood_of_the_mixture_and_weak_memberships_are_reported():
    log, _ = simulated(APART, [0.6, 0.4], 40, 6, np.random.default_rng(0))
    found, alone = find_clusters(log, 2), find_clusters(log, 1)
    weak = np.mean([max(chances) < 0.8 for chances in found.probabilities])
    assert found.weak == found.to_dict()["weak"] == weak and 0 < weak < 1
    counts = np.zeros((3, 2, 3))
    for i in range(len(log.arm) - 1):
        if log.arm[i] == log.arm[i + 1]:
            counts[log.state[i], log.action[i], log.state[i + 1]] += 1
    best = float((counts * np.log(np.maximum(counts, 1) / counts.sum(axis=2, keepdims=True))).sum())
    assert best - 1 < alone.log_likelihood <= best < found.log_likelihood  # one type: counts, but for a small prior
    free = int((counts > 0).sum()) - 6
    for one, number in ((alone, 1), (found, 2)):
        parameters = number * free + number - 1
        assert one.bic == pytest.approx(-2 * one.log_likelihood + parameters * np.log(40))


def test_a_picture_of_the_numbers():
    log, _ = simulated(APART, [0.7, 0.3], 40, 10, np.random.default_rng(7))
    found = find_clusters(log)
    assert [axis.get_xlabel() for axis in found.plot().axes] == ["types", "types"]
    assert f">{found.names[0]}<" in found._repr_html_()
    with pytest.raises(NotApplicableError):
        find_clusters(log, 2).plot()
