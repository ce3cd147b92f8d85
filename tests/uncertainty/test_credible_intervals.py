"""Credible intervals: closed forms of conjugate posteriors, and the removal of simulation error."""

import numpy as np
import pytest
from scipy import integrate, stats

import evenhand as eh
from evenhand.errors import InvalidInputError, ModelError, OutOfDomainError
from evenhand.fitting import Dirichlet, Drawn, Named, posterior_path, save_posterior
from evenhand.uncertainty import compare_scenarios, denoised, draw_scenarios

from ..conftest import mentions

GAMMA, SEEN = 0.9, (6.0, 14.0)  # breaks, and does not


def machine(rewards=(1.0, 0.0)):
    """One machine that breaks for good: V = r / (1 - gamma (1 - p)), p ~ Beta(6, 14); and its posterior."""
    broken = np.zeros((1, 2, 2, 2))
    broken[0, 0, :] = SEEN[1], SEEN[0]
    broken[0, 1, :, 1] = 1.0
    known = Named(Dirichlet(broken), ("press",), ("sound", "broken"), ("wait", "look"))
    arm = eh.Arm(
        known.posterior.mean[0],
        rewards=[[rewards[0]] * 2, [rewards[1]] * 2],
        usage=[[0], [1]],
        initial=[1, 0],
        name="press",
        states=("sound", "broken"),
        actions=("wait", "look"),
    )
    return eh.CoupledMDP([arm], budget=[0], discount=GAMMA), known


def never_act(problem, posterior, number, welfare=None, rng=0):
    scenarios = draw_scenarios(problem, posterior, number, rng)
    return compare_scenarios(scenarios, {"never-act": eh.make_policy(problem, "never-act")}, welfare)


def value(breaks):
    return 1 / (1 - GAMMA * (1 - breaks))


def test_a_conjugate_posterior_gives_its_own_quantiles():
    problem, known = machine()
    found = never_act(problem, known, 4000, "utilitarian", rng=1)
    row, breaks = found.rows[0], stats.beta(*SEEN)
    assert row.exact
    assert row.noise == 0
    for share in (0.05, 0.5, 0.95):  # the value falls with p
        assert row.quantile(share) == pytest.approx(value(breaks.ppf(1 - share)), rel=0.025)
    mean = integrate.quad(lambda p: value(p) * breaks.pdf(p), 0, 1)[0]
    assert row.mean == pytest.approx(mean, abs=4 * row.mean_stderr)
    tail = integrate.quad(lambda p: value(p) * breaks.pdf(p), breaks.ppf(0.9), 1)[0] / 0.1
    assert row.tail(0.1) == pytest.approx(tail, rel=0.02)
    assert row.interval(0.9) == (row.quantile(0.05), pytest.approx(row.quantile(0.95)))
    assert np.allclose(row.members[:, 0], row.welfare)
    frame = found.to_frame("pandas")
    assert frame["of"].tolist() == ["welfare", "press"]
    assert frame["q05"][0] == pytest.approx(row.quantile(0.05))
    assert "4,000" in repr(found)


def test_the_first_draws_do_not_depend_on_how_many_follow():
    problem, known = machine()
    few, many = (never_act(problem, known, n).rows[0].observed for n in (20, 50))
    assert np.array_equal(few, many[:20])


def test_simulation_error_is_removed_from_the_spread():
    rng = np.random.default_rng(0)
    truth, chances = rng.normal(5, 1, 20000), rng.normal(0, 3, (20000, 4))
    seen = truth + chances.mean(axis=1)
    apart = chances - chances.mean(axis=1, keepdims=True)
    found = denoised(seen, apart)
    assert seen.std() == pytest.approx(np.sqrt(1 + 9 / 4), rel=0.03)
    assert found.std() == pytest.approx(1, rel=0.05)
    assert found.mean() == pytest.approx(seen.mean())
    assert np.quantile(found, 0.05) == pytest.approx(5 + stats.norm.ppf(0.05), abs=0.08)
    alike = denoised(chances.mean(axis=1), apart)  # only simulation error: hardly any spread is left
    assert alike.std() < 0.2 * chances.mean(axis=1).std()


def test_the_probability_to_be_better_counts_scenarios_and_halves_ties():
    problem = eh.problems.machine_replacement(num_arms=2)
    arm = problem.arms[0]
    names = {"name": "m", "states": ("a", "b", "c"), "actions": ("wait", "replace")}
    concentration = 30 * arm.transitions[None] + 0.0
    known = Named(Dirichlet(concentration), ("m",), names["states"], names["actions"])
    own = eh.Arm(known.posterior.mean[0], arm.rewards, arm.usage, arm.initial, **names)
    problem = eh.CoupledMDP([own], [1], 0.95, [2])
    policies = {"a": "whittle", "b": "whittle", "c": "oldest-first", "d": "never-act"}
    compared = eh.compare(problem, policies, "gini:2")
    found = compare_scenarios(draw_scenarios(problem, known, 60), compared.policies, "gini:2")
    assert [row.policy for row in found.rows] == [row.policy for row in compared.rows]
    assert found.probability_better("a", "b") == 0.5
    assert found.probability_better("a", "d") == 1.0
    assert found.probability_better("c", "a") + found.probability_better("a", "c") == pytest.approx(1)
    wins = (found["c"].observed > found["a"].observed).mean()
    assert found.probability_better("c", "a") == pytest.approx(wins)
    as_dict = found.to_dict()
    assert as_dict["rows"][0]["better_than"].keys() == {row.policy for row in found.rows[1:]}
    with pytest.raises(InvalidInputError, check=mentions("'e'", "a, b, c, d")):
        found["e"]


def test_a_model_without_a_posterior_is_refused(tmp_path):
    problem, known = machine()
    for posterior in (None, tmp_path / "model.toml", 3):
        with pytest.raises(InvalidInputError, check=mentions("posterior")):
            draw_scenarios(problem, posterior, 100)
    with pytest.raises(InvalidInputError, check=mentions("draws", 20, 3)):
        draw_scenarios(problem, known, 3)
    save_posterior(known, posterior_path(tmp_path / "model.toml"))
    by_file = draw_scenarios(problem, tmp_path / "model.toml", 20)
    assert np.array_equal(by_file.transitions, draw_scenarios(problem, known, 20).transitions)
    moves = [[[0.5, 0.5]] * 2, [[0, 1]] * 2]
    names = ("press", ("sound", "broken"), ("wait", "look"))
    edited = eh.Arm(moves, problem.arms[0].rewards, [[0], [1]], [1, 0], *names)
    with pytest.raises(ModelError, check=mentions("press", "sound", 0.5, 0.7)):
        draw_scenarios(eh.CoupledMDP([edited], [0], GAMMA), known, 20)


def test_a_sample_that_is_too_small_is_not_held_out():
    problem, known = machine()
    sample = Named(Drawn(known.posterior.mean, known.posterior.draw(30)), known.types, known.states, known.actions)
    small = draw_scenarios(problem, sample, 30, held_out=True)
    assert len(small) == 30 and small.held_out is None
    found = draw_scenarios(problem, known, 30, held_out=True)
    assert len(found.held_out) == 30
    assert not np.array_equal(found.transitions, found.held_out.transitions)


def test_a_welfare_that_is_undefined_in_some_scenarios_is_refused():
    problem, known = machine(rewards=(1.0, -0.3))  # positive in the mean, negative where it breaks soon
    assert eh.evaluate(problem, "never-act", "alpha:1").welfare > 0
    with pytest.raises(OutOfDomainError):
        never_act(problem, known, 200, "alpha:1")
