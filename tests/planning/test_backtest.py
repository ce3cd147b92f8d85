"""Backtest: against every path written out, plain simulation, closed forms; and whether its intervals hold."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand import backtest
from evenhand.errors import InvalidInputError, TableError
from evenhand.evaluation import independent_values
from evenhand.fitting import NOTHING, Log, recorded_shares
from evenhand.planning import heads_interval

from ..conftest import mentions

STATES, ACTIONS = ("new", "worn", "old"), ("keep", "fix")
WEAR = np.array([[[0.6, 0.3, 0.1], [0.9, 0.1, 0]], [[0, 0.7, 0.3], [0.8, 0.2, 0]], [[0, 0, 1], [0.7, 0.2, 0.1]]])
GAIN = np.array([[1.0, 0.5], [0.6, 0.0], [0.1, -0.7]])


def arm(name: str, wear: np.ndarray = WEAR) -> eh.Arm:
    return eh.Arm(wear, GAIN, [[0], [1]], name=name, states=STATES, actions=ACTIONS)


def problem_of(num_types: int = 1, budget: float = 2) -> eh.CoupledMDP:
    arms = [
        arm(f"make {t}", WEAR if t == 0 else WEAR[:, :, :] * 0.5 + 0.5 * np.eye(3)[:, None]) for t in range(num_types)
    ]
    return eh.CoupledMDP(arms, budget=[budget], discount=0.95, counts=[4] * num_types, resources=["bays"])


def log_of(courses: list[tuple[int, int, list[tuple[int, int]]]], num_types: int = 1, **more: object) -> Log:
    """Arms of (type, first step, [(state, action), ...]); a state of -9 is a step that was not recorded."""
    rows = [
        (n, begin + k, s, a) for n, (_, begin, pairs) in enumerate(courses) for k, (s, a) in enumerate(pairs) if s != -9
    ]
    n, time, state, action = (np.array(column) for column in zip(*rows, strict=True))
    return Log(
        arms=tuple(f"bus {i}" for i in range(len(courses))),
        types=tuple(f"make {t}" for t in range(num_types)),
        states=STATES,
        actions=ACTIONS,
        type_of=np.array([kind for kind, _, _ in courses], dtype=np.int32),
        arm=n.astype(np.int32),
        time=time.astype(float),
        state=state.astype(np.int32),
        action=action.astype(np.int32),
        row=np.arange(len(n)),
        **more,  # type: ignore[arg-type]
    )


def played(rng: np.random.Generator, num_arms: int, length: int, shares: np.ndarray, num_types: int = 1) -> Log:
    """Records of arms that follow shares, some of which begin later."""
    wear = problem_of(num_types).tables.transitions
    courses = []
    for n in range(num_arms):
        kind, begin, s, pairs = n % num_types, int(rng.integers(3)), int(rng.integers(3)), []
        for _ in range(length):
            a = int(rng.random() < shares[kind, s])
            pairs.append((s, a))
            s = int(rng.choice(3, p=wear[kind, s, a]))
        courses.append((kind, begin, [*pairs, (s, NOTHING)]))
    return log_of(courses, num_types)


# The policy of the records


def test_shares_are_those_of_decisions() -> None:
    log = log_of([(0, 0, [(0, 0), (0, 1), (1, 0), (2, 1)]), (1, 0, [(0, 0), (1, 1), (0, 0)])], num_types=3)
    found = recorded_shares(log)
    assert found.shares[0].tolist() == [[0.5, 0.5], [1, 0], [1, 0]]  # the fix of the last row is no decision
    assert found.numbers.tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert found.shares[2].tolist() == [[2 / 3, 1 / 3], [0.5, 0.5], [1, 0]]  # never seen: as the others, else idle
    assert np.isclose(found.errors[0, 0, 1], np.sqrt(0.125)) and np.isnan(found.errors[2]).all()


# Followed exactly


def test_every_path_written_out() -> None:
    """Two arms, one of which enters later and misses a step: all courses with their chances."""
    log = log_of([(0, 0, [(0, 0), (1, 1), (0, 0), (1, 0)]), (0, 1, [(1, 0), (-9, 0), (2, 1), (0, 0)])])
    shares, found = recorded_shares(log).shares[0], backtest(problem_of(), log)
    laws = [_paths(shares, 0, "ddd"), _paths(shares, 1, "dmd")]  # decisions, and steps that were missed
    fixes = np.array([sum(p * k for p, k, _ in law) for law in laws])
    second = np.array([sum(p * k**2 for p, k, _ in law) for law in laws])
    reward = np.array([sum(p * r for p, _, r in law) for law in laws])
    reward2 = np.array([sum(p * r**2 for p, _, r in law) for law in laws])
    z = stats.norm.ppf(0.975)
    assert np.isclose(found.totals.mean[0, 0], fixes.sum())
    assert np.isclose(found.totals.upper[0, 0], fixes.sum() + z * np.sqrt((second - fixes**2).sum()))
    assert np.isclose(found.total_rewards.mean[0], reward.sum() / 5)
    spread = np.sqrt((reward2 - reward**2).sum()) / 5
    assert np.isclose(found.total_rewards.lower[0], reward.sum() / 5 - z * spread)
    assert found.totals.seen[0, 0] == 2 and found.steps.tolist() == [0, 1, 2, 3]
    assert found.present.tolist() == [1, 2, 1, 1] and found.used[:, 0].tolist() == [0, 1, 0, 1]
    seen = (GAIN[0, 0] + GAIN[1, 1] + GAIN[0, 0] + GAIN[1, 0] + GAIN[2, 1]) / 5
    assert np.isclose(found.total_rewards.seen[0], seen)


def _paths(shares: np.ndarray, start: int, steps: str) -> list[tuple[float, int, float]]:
    """(chance, fixes, rewards) of every course."""
    found = [(1.0, start, 0, 0.0)]
    for step in steps:
        found = [
            (p * q * WEAR[s, a, z], z, k + a * (step == "d"), r + GAIN[s, a] * (step == "d"))
            for p, s, k, r in found
            for a, q in (enumerate(shares[s]) if step == "d" else [(0, 1.0)])
            for z in range(3)
            if q * WEAR[s, a, z] > 0
        ]
    return [(p, k, r) for p, _, k, r in found]


def test_like_arms_are_followed_together() -> None:
    """Forty arms of four courses give forty times what each gives alone; a simulation agrees."""
    rng = np.random.default_rng(5)
    shares = np.array([[0.1, 0.4, 0.8]])
    log = played(rng, 40, 6, shares)
    found, own = backtest(problem_of(), log), recorded_shares(log).shares[0]
    begin, start = log.time[::7].astype(int), log.state[::7]
    num, sums, worn = 40_000, np.zeros((9, 1)), np.zeros((9, 3))
    for t0, s0 in zip(begin, start, strict=True):
        s = np.full(num // 40, s0)
        for k in range(6):
            a = (rng.random(len(s)) < own[s, 1]).astype(int)
            sums[t0 + k] += a.mean()
            s = (rng.random(len(s))[:, None] > WEAR[s, a].cumsum(axis=1)).sum(axis=1)
            worn[t0 + k + 1] += np.bincount(s, minlength=3) / len(s)
    assert np.allclose(found.served.mean[:, 0], sums[:8, 0], atol=0.35)
    assert np.allclose(found.occupied.mean, worn[:8], atol=0.35)
    assert np.allclose(found.so_far.mean[:, 0], found.served.mean[:, 0].cumsum())
    assert np.isclose(found.so_far.mean[-1, 0], found.totals.mean[0, 0])
    assert np.allclose(found.occupied.mean.sum(axis=1), found.occupied.seen.sum(axis=1))


def test_an_arm_that_is_fixed_with_one_chance_is_a_coin() -> None:
    """Closed form: where every state is fixed with the same share, the number of fixes is binomial."""
    pairs = [(s, a) for s in range(3) for a in (0, 0, 0, 1)]
    log = log_of([(0, 0, [*pairs, (0, 0)])] * 10)
    found = backtest(problem_of(), log)
    assert np.allclose(found.served.mean, 2.5)
    assert found.served.lower[0, 0] == stats.binom.ppf(0.025, 10, 0.25)
    assert found.served.upper[0, 0] == stats.binom.ppf(0.975, 10, 0.25)
    assert np.isclose(found.totals.upper[0, 0], 30 + stats.norm.ppf(0.975) * np.sqrt(120 * 0.25 * 0.75))


@pytest.mark.parametrize("chances", [(0.1, 0.5, 0.9), (0.0, 1.0, 0.3), (0.02, 0.03)])
def test_coins_that_are_not_alike(chances: tuple[float, ...]) -> None:
    sizes, level = np.array([2] * len(chances)), 0.9
    coins = np.repeat(chances, 2)
    law = np.zeros(len(coins) + 1)
    for heads in itertools.product((0, 1), repeat=len(coins)):
        law[sum(heads)] += np.prod(np.where(heads, coins, 1 - coins))
    low, high = heads_interval(np.array(chances), sizes, level)
    assert law[: int(low)].sum() <= 0.05 + 1e-9 < law[: int(low) + 1].sum() + 1e-9
    assert law[int(high) + 1 :].sum() <= 0.05 + 1e-9


def test_many_coins_are_nearly_normal() -> None:
    chances, sizes = np.array([0.1, 0.4]), np.array([1500, 1200])
    low, high = heads_interval(chances, sizes, 0.95)
    law = np.convolve(stats.binom.pmf(np.arange(1501), 1500, 0.1), stats.binom.pmf(np.arange(1201), 1200, 0.4))
    below = law.cumsum()
    assert abs(low - np.searchsorted(below, 0.025)) <= 1 and abs(high - np.searchsorted(below, 0.975)) <= 1


def test_intervals_hold_as_often_as_they_say() -> None:
    rng, inside, total = np.random.default_rng(2), [], []
    shares = np.array([[0.1, 0.3, 0.7], [0.05, 0.2, 0.9]])
    for _ in range(25):
        found = backtest(problem_of(2), played(rng, 30, 10, shares, 2))
        inside.append(found.served.inside.mean())
        total.append(found.totals.inside.mean())
    assert np.mean(inside) > 0.94  # counts: at least what is asked for
    assert np.mean(total) > 0.94  # the shares are fitted to these records, so totals come out nearer than by chance


def test_a_policy_that_changed_is_found_out() -> None:
    """Nothing is fixed for half of the time, then much: constant shares cannot tell this."""
    early = played(np.random.default_rng(1), 60, 10, np.zeros((1, 3)))
    late = played(np.random.default_rng(2), 60, 10, np.full((1, 3), 0.8))
    courses = []
    for n in range(60):
        one = [
            [(int(s), int(a)) for s, a in zip(log.state[log.arm == n], log.action[log.arm == n], strict=True)][:10]
            for log in (early, late)
        ]
        courses.append((0, 0, [*one[0], *one[1]]))
    found = backtest(problem_of(), log_of(courses))
    assert found.served.inside.mean() < 0.5
    assert found.totals.inside.all()


# Records that end by death

DEADLY = np.array([[[0.85, 0.12, 0.03], [0.92, 0.06, 0.02]], [[0.1, 0.75, 0.15], [0.3, 0.62, 0.08]], [[0, 0, 1]] * 2])
LIFE = np.array([[1.0, 0.9], [0.4, 0.3], [0.0, 0.0]])


def mortal() -> eh.CoupledMDP:
    deadly = eh.Arm(DEADLY, LIFE, [[0], [1]], name="make 0", states=STATES, actions=ACTIONS)
    return eh.CoupledMDP([deadly], budget=[2], discount=0.95, counts=[4])


def lives(rng: np.random.Generator, num_arms: int, length: int, way: str) -> Log:
    """Records that end by death or at the end; some begin late, are censored, or miss steps."""
    courses = []
    for _ in range(num_arms):
        begin = int(rng.integers(8)) if way == "late" else 0
        end = min(length - begin, int(rng.geometric(0.08)) if way in ("censored", "missed") else length)
        s, pairs = 0, []
        for k in range(end + 1):
            seen = way != "missed" or k in (0, end) or rng.random() < 0.8
            a = int(seen and s < 2 and rng.random() < (0.2, 0.6)[s])
            pairs.append((s if seen else -9, a))
            if s == 2 and seen:
                break
            s = int(rng.choice(3, p=DEADLY[s, a]))
        courses.append((0, begin, pairs))
    return log_of(courses)


def _lives(shares: np.ndarray, steps: int) -> list[tuple[float, list[int], list[float]]]:
    """(chance, states, rewards) of every life from the first state, over so many decisions."""
    found: list[tuple[float, list[int], list[float]]] = [(1.0, [0], [])]
    for _ in range(steps):
        over = [life for life in found if life[1][-1] == 2]
        found = over + [
            (p * q * DEADLY[states[-1], a, z], [*states, z], [*rewards, LIFE[states[-1], a]])
            for p, states, rewards in found
            if states[-1] < 2
            for a, q in enumerate(shares[states[-1]])
            for z in range(3)
            if q * DEADLY[states[-1], a, z] > 0
        ]
    return found


def test_every_life_written_out() -> None:
    """The length of a record that death ends is an outcome: three arms, all lives of three decisions."""
    log = log_of([(0, 0, [(0, 1), (1, 0), (2, 0)]), *[(0, 0, [(0, 0), (0, 1), (1, 1), (1, 0)])] * 2])
    found, ways = backtest(mortal(), log), _lives(recorded_shares(log).shares[0], 3)
    number = sum(p * len(rewards) for p, _, rewards in ways)
    reward = sum(p * sum(rewards) for p, _, rewards in ways)
    rate = reward / number
    beyond = sum(p * (sum(rewards) - rate * len(rewards)) ** 2 for p, _, rewards in ways)
    assert np.isclose(found.total_rewards.mean[0], rate)
    half = found.total_rewards.mean[0] - found.total_rewards.lower[0]
    assert np.isclose(half, stats.norm.ppf(0.975) * np.sqrt(3 * beyond) / 8)
    for k in range(3):
        alive = [(p, rewards[k]) for p, _, rewards in ways if len(rewards) > k]
        assert np.isclose(found.rewards.mean[k], sum(p * r for p, r in alive) / sum(p for p, _ in alive))
    dead = [3 * sum(p for p, states, _ in ways if len(states) > k and states[k] == 2) for k in (1, 2)]
    assert np.allclose(found.occupied.mean[1:, 2], dead)


def test_rows_after_a_death_tell_nothing() -> None:
    """One arm is written down as dead once more, where the others are not."""
    courses = [(0, 0, [(0, 1), (2, 0)]), (0, 0, [(0, 0), (1, 1), (2, 0)]), (0, 0, [(0, 0), (0, 1), (1, 1), (1, 0)])]
    more = [(0, 0, [(0, 1), (2, 0), (2, 0)]), *courses[1:]]
    once, again = (backtest(mortal(), log_of(some)) for some in (courses, more))
    assert once.present.tolist() == again.present.tolist() == [3, 2, 1]
    assert np.allclose(once.rewards.mean, again.rewards.mean)


@pytest.mark.parametrize(
    ("way", "number"),
    [
        ("plain", 12),
        *(pytest.param(way, 200, marks=pytest.mark.slow) for way in ("plain", "late", "censored", "missed")),
    ],
)
def test_a_true_model_with_death_is_not_refuted(way: str, number: int) -> None:
    rng = np.random.default_rng(24)
    found = [backtest(mortal(), lives(rng, 200, 20, way)) for _ in range(number)]
    least, most = (0.92, 0.98) if number == 200 else (0.88, 1.0)
    for name in ("rewards", "occupied"):
        assert least < np.mean([getattr(one, name).inside.mean() for one in found]) < most
    # Shares of actions are fitted to the same records, so that their numbers come out nearer than by chance.
    for name in ("served", "totals", "total_rewards"):
        assert least < np.mean([getattr(one, name).inside.mean() for one in found])


# What it is worth


@pytest.mark.parametrize("criterion", ["discounted", "average", "finite:7"])
def test_arms_by_themselves(criterion: str) -> None:
    """Against sums over powers of the chain."""
    problem = problem_of(2).with_criterion(criterion)
    shares = np.random.default_rng(0).dirichlet([1, 1], size=(2, 3))
    found = independent_values(problem, shares)
    horizon = {"discounted": 600, "average": 4000, "finite:7": 7}[criterion]
    weights = problem.criterion.time_weights(horizon)
    for t in range(2):
        chain = np.einsum("sa,saz->sz", shares[t], problem.types.transitions[t])
        law, value, served = problem.types.initial[t], 0.0, 0.0
        for weight in weights:
            value += weight * law @ (shares[t] * GAIN).sum(axis=1)
            served += weight * law @ shares[t, :, 1]
            law = law @ chain
        assert np.isclose(found.values[t], value, atol=1e-9) and np.isclose(
            found.served[t], served / problem.criterion.total, atol=1e-9
        )
    used = problem.type_counts @ found.served * problem.criterion.total
    assert np.isclose(found.used[0], used)


def test_plans_stand_beside_the_records(tmp_path: Path) -> None:
    log = played(np.random.default_rng(4), 8, 12, np.array([[0.0, 0.0, 0.3], [0.0, 0.1, 0.2]]), 2)
    problem = problem_of(2)
    solution = eh.solve(problem, welfare="utilitarian")
    file = str(tmp_path / "plan.zip")
    eh.save_solution(solution, file)
    found = backtest(problem, log, [file, "fair-index"], welfare="utilitarian", over="groups", num_episodes=200)
    records, plan, index = found.worth
    assert (records.policy, plan.policy, index.policy) == ("records", file, "fair-index")
    assert records.welfare_stderr == 0 and plan.welfare > records.welfare
    assert records.groups.keys() == {"make 0", "make 1"} and found.criterion == "finite:12"
    assert np.isclose(np.mean(list(records.groups.values())), records.welfare)
    by_day = backtest(problem, log, criterion="discounted")
    assert by_day.criterion == "discounted" and by_day.worth[0].served != records.served
    assert found.over_budget.tolist() == [int((found.used[:, 0] > 2).sum())]
    told = json.loads(json.dumps(found.to_dict()))
    assert told["worth"][0]["policy"] == "records" and told["policy"]["constant_in_time"]
    assert len(found.to_frame()) == len(found.steps)
    assert repr(found).startswith("Backtest(")
    assert "make 1" in found._repr_html_()
    (axes,) = found.plot().axes
    assert np.allclose(axes.lines[1].get_ydata()[-1], found.totals.seen.sum())


# Faults


def test_records_of_another_model_are_told() -> None:
    log = log_of([(0, 0, [(0, 0), (1, 1)])])
    other = eh.CoupledMDP(
        [eh.Arm(WEAR[:2, :, :2] / WEAR[:2, :, :2].sum(-1, keepdims=True), GAIN[:2], [[0], [1]], name="make 0",
                states=("new", "rusty"), actions=ACTIONS)], budget=[1], discount=0.9)  # fmt: skip
    with pytest.raises(TableError) as told:
        backtest(other, log)
    assert mentions("worn", "old")(told.value)
    with pytest.raises(TableError, check=mentions("make 1")):
        backtest(problem_of(), log_of([(1, 0, [(0, 0), (1, 1)])], num_types=2))
    with pytest.raises(InvalidInputError, check=mentions("times")):
        backtest(problem_of(), log_of([(0, 0, [(0, 0), (1, 1)])], regular=False))
    with pytest.raises(InvalidInputError, check=mentions("action")):
        backtest(problem_of(), log_of([(0, 0, [(0, 0)])]))


def test_intervals_of_rewards_stay_within_what_rewards_can_be() -> None:
    rng = np.random.default_rng(5)
    found = backtest(problem_of(), played(rng, 3, 12, np.array([[0.1, 0.5, 0.8]])))
    for forecast in (found.rewards, found.total_rewards):
        assert forecast.lower.min() >= GAIN.min() and forecast.upper.max() <= GAIN.max()
    assert found.so_far.lower.min() >= 0
    assert (found.rewards.upper == GAIN.max()).any()  # a normal interval would go beyond it


def test_groups_of_the_records_find_their_blocks() -> None:
    blocks = [arm("make 0"), arm("make 0")]
    problem = eh.CoupledMDP(blocks, [1], 0.95, [2, 1], groups=["north", "south"], over="groups")
    courses = [(0, 0, [(0, 0), (1, 1), (0, 0), (1, 0)])] * 3
    more = {"groups": ("north", "south"), "group_of": np.array([0, 0, 1], dtype=np.int32)}
    found = backtest(problem, log_of(courses, **more))
    assert set(found.worth[0].groups) == {"north", "south"}
    with pytest.raises(InvalidInputError, check=mentions("make 0")):
        backtest(problem, log_of(courses))
