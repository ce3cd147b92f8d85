"""Draws of a policy's worth: closed forms of conjugate posteriors, and noise that is taken out."""

import numpy as np
import pytest
from scipy import integrate, stats

import evenhand as eh
from evenhand.errors import InvalidInput, ModelError, OutOfDomain
from evenhand.evaluation.drawing import read_worlds
from evenhand.evaluation.draws import denoised
from evenhand.fitting.posterior import Dirichlet, Drawn
from evenhand.fitting.posterior_files import Named, posterior_path, save_posterior

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


def value(breaks):
    return 1 / (1 - GAMMA * (1 - breaks))


def test_a_conjugate_posterior_gives_its_own_quantiles():
    problem, known = machine()
    found = eh.evaluate("never-act", problem, "utilitarian", draws=4000, posterior=known, rng=1).draws
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
    assert "4,000 draws" in repr(found)


def test_the_first_draws_do_not_depend_on_how_many_follow():
    problem, known = machine()
    few, many = (eh.evaluate("never-act", problem, draws=n, posterior=known).draws.rows[0].seen for n in (20, 50))
    assert np.array_equal(few, many[:20])


def test_chance_is_taken_out_of_the_spread():
    rng = np.random.default_rng(0)
    truth, chances = rng.normal(5, 1, 20000), rng.normal(0, 3, (20000, 4))
    seen = truth + chances.mean(axis=1)
    apart = chances - chances.mean(axis=1, keepdims=True)
    found = denoised(seen, apart)
    assert seen.std() == pytest.approx(np.sqrt(1 + 9 / 4), rel=0.03)
    assert found.std() == pytest.approx(1, rel=0.05)
    assert found.mean() == pytest.approx(seen.mean())
    assert np.quantile(found, 0.05) == pytest.approx(5 + stats.norm.ppf(0.05), abs=0.08)
    alike = denoised(chances.mean(axis=1), apart)  # nothing but chance: hardly any spread is left
    assert alike.std() < 0.2 * chances.mean(axis=1).std()


def test_the_chance_to_be_better_counts_draws_and_halves_ties():
    problem = eh.problems.machine_replacement(num_arms=2)
    arm = problem.arms[0]
    names = {"name": "m", "states": ("a", "b", "c"), "actions": ("wait", "replace")}
    concentration = 30 * arm.transitions[None] + 0.0
    known = Named(Dirichlet(concentration), ("m",), names["states"], names["actions"])
    own = eh.Arm(known.posterior.mean[0], arm.rewards, arm.usage, arm.initial, **names)
    problem = eh.CoupledMDP([own], [1], 0.95, [2])
    policies = {"a": "whittle", "b": "whittle", "c": "oldest-first", "d": "never-act"}
    compared = eh.compare(problem, policies, "gini:2", draws=60, posterior=known)
    found = compared.draws
    assert [row.policy for row in found.rows] == [row.policy for row in compared.rows]
    assert found.chance_better("a", "b") == 0.5
    assert found.chance_better("a", "d") == 1.0
    assert found.chance_better("c", "a") + found.chance_better("a", "c") == pytest.approx(1)
    wins = (found["c"].seen > found["a"].seen).mean()
    assert found.chance_better("c", "a") == pytest.approx(wins)
    told = found.to_dict()
    assert told["rows"][0]["better_than"].keys() == {row.policy for row in found.rows[1:]}
    with pytest.raises(InvalidInput, match="e"):
        found["e"]


def test_a_model_without_a_posterior_is_refused_in_words(tmp_path):
    problem, known = machine()
    with pytest.raises(InvalidInput, match=r"how sure.*evenhand fit"):
        eh.evaluate("never-act", problem, draws=100)
    with pytest.raises(InvalidInput, match=r"there is no .*model\.posterior\.npz"):
        eh.evaluate("never-act", problem, draws=100, posterior=tmp_path / "model.toml")
    with pytest.raises(InvalidInput, match="at least 20"):
        eh.evaluate("never-act", problem, draws=3, posterior=known)
    with pytest.raises(InvalidInput, match="expected a model file or what fit gave"):
        eh.evaluate("never-act", problem, draws=100, posterior=3)
    save_posterior(known, posterior_path(tmp_path / "model.toml"))
    by_file = eh.evaluate("never-act", problem, draws=20, posterior=tmp_path / "model.toml")
    assert np.array_equal(by_file.draws.rows[0].seen, read_and_weigh(problem, known))
    edited = eh.CoupledMDP([eh.Arm([[[0.5, 0.5]] * 2, [[0, 1]] * 2], problem.arms[0].rewards, [[0], [1]], [1, 0],
                                   "press", ("sound", "broken"), ("wait", "look"))], [0], GAMMA)  # fmt: skip
    with pytest.raises(ModelError, match="were edited"):
        eh.evaluate("never-act", edited, draws=20, posterior=known)


def read_and_weigh(problem, known):
    return eh.evaluate("never-act", problem, draws=20, posterior=known).draws.rows[0].seen


def test_a_sample_that_is_too_small_is_not_held_out():
    problem, known = machine()
    sample = Named(Drawn(known.posterior.mean, known.posterior.draw(30)), known.types, known.states, known.actions)
    worlds, rest = read_worlds(problem, sample, 30, 0, held_out=True)
    assert len(worlds) == 30
    assert rest is None
    worlds, rest = read_worlds(problem, known, 30, 0, held_out=True)
    assert len(rest) == 30
    assert not np.array_equal(worlds.transitions, rest.transitions)


def test_a_welfare_that_is_not_defined_in_some_draws_is_told():
    problem, known = machine(rewards=(1.0, -0.3))  # positive in the mean, negative where it breaks soon
    assert eh.evaluate("never-act", problem, "alpha:1").welfare > 0
    with pytest.raises(OutOfDomain, match=r"alpha:1|nash"):
        eh.evaluate("never-act", problem, "alpha:1", draws=200, posterior=known)
