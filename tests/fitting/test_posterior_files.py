"""Posteriors beside their models: what is written is read, what does not belong is refused in words."""

import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.errors import EvenhandError, InvalidInputError, ModelError
from evenhand.fitting import (
    Dirichlet,
    Drawn,
    Named,
    estimate_prior,
    load_posterior,
    matched,
    posterior_path,
    save_posterior,
)

from ..conftest import mentions
from .flat import drawn_problems

STATES, ACTIONS = ("good", "fair", "bad"), ("wait", "mend")


def a_posterior(seed=0, num_types=2):
    concentration = np.random.default_rng(seed).gamma(2.0, size=(num_types, 3, 2, 3))
    concentration[:, 0, :, 2] = 0
    return Named(Dirichlet(concentration), tuple("AB"[:num_types]), STATES, ACTIONS)


def a_model(named, states=STATES, actions=ACTIONS):
    s, a = [STATES.index(label) for label in states], [ACTIONS.index(label) for label in actions]
    arms = [
        eh.Arm(rows[np.ix_(s, a, s)], np.arange(6.0).reshape(3, 2), [[[0], [1]]] * 3, None, name, states, actions)
        for name, rows in zip(named.types, named.posterior.mean, strict=True)
    ]
    return eh.CoupledMDP(arms, budget=[2], discount=0.9, counts=[3, 4][: len(arms)])


def a_sample(named):
    draws = named.posterior.draw(6)
    return replace(named, posterior=Drawn(draws.mean(axis=0), draws))


def a_pooled(num_types=2):
    """Rows that lean on each other; one pair of type A was never seen."""
    counts = np.random.default_rng(1).integers(0, 30, size=(num_types, 3, 2, 3)).astype(float)
    counts[0, 1, 1] = 0
    return Named(estimate_prior(counts).given(counts), tuple("AB"[:num_types]), STATES, ACTIONS)


def test_what_is_written_is_read_back(tmp_path):
    plain = a_posterior()
    like, known = np.zeros((2, 3, 2), dtype=np.int32), np.zeros((2, 3, 2), dtype=bool)
    told = replace(plain, posterior=Dirichlet(plain.posterior.concentration, known, like))
    for number, named in enumerate((plain, told, a_sample(plain), a_pooled())):
        path = posterior_path(tmp_path / f"model{number}.toml")
        assert path.name == f"model{number}.posterior.npz"
        save_posterior(named, path)
        read = load_posterior(path)
        assert (read.types, read.states, read.actions) == (named.types, named.states, named.actions)
        assert type(read.posterior) is type(named.posterior)
        np.testing.assert_array_equal(read.posterior.draw(3), named.posterior.draw(3))
        np.testing.assert_array_equal(read.posterior.mean, named.posterior.mean)
        np.testing.assert_array_equal(read.posterior.interval(), named.posterior.interval())


@pytest.mark.parametrize("suffix", ["toml", "json", "npz"])
def test_a_model_written_and_edited_keeps_its_posterior(tmp_path, suffix):
    named = a_posterior()
    path = tmp_path / f"model.{suffix}"
    eh.save(a_model(named), path)
    problem = eh.load(path).with_budget(5).with_criterion("average")
    problems = list(drawn_problems(problem, named, 3, rng=4))
    for number, drawn in enumerate(problems):
        np.testing.assert_allclose(drawn.tables.transitions, named.posterior.one(4, number), atol=1e-15)
        assert replace(drawn, arms=problem.tables) == problem


def test_states_and_actions_go_by_name_in_any_order():
    named = a_posterior()
    problem = a_model(named, ("bad", "good", "fair"), ("wait", "mend"))
    (drawn,) = drawn_problems(problem, named, 1, rng=2)
    rows = named.posterior.one(2, 0)
    np.testing.assert_allclose(drawn.tables.transitions[1, 0, 1], rows[1, 2, 1, [2, 0, 1]])


def test_blocks_of_one_type_share_their_draws_and_strangers_are_known():
    named = a_posterior()
    arms = list(a_model(named).arms)
    stranger = replace(arms[0], name="C", transitions=np.full((3, 2, 3), 1 / 3))
    problem = eh.CoupledMDP([arms[1], stranger, arms[0], arms[1]], budget=[2], discount=0.9)
    uncertain = matched(named, problem)
    drawn = uncertain.placed(named.posterior.one(0, 0))
    assert uncertain.known == ("C",)
    assert (drawn[0] == drawn[3]).all() and (drawn[1] == 1 / 3).all() and not np.allclose(drawn[0], drawn[2])


def test_what_does_not_belong_is_refused_with_all_reasons():
    named = a_posterior()
    arms = list(a_model(named).arms)
    edited = replace(arms[0], transitions=np.full((3, 2, 3), 1 / 3))
    problem = eh.CoupledMDP([edited, arms[1]], budget=[2], discount=0.9)
    with pytest.raises(ModelError, check=mentions("A", "good", "wait", 0.3333333333)):
        drawn_problems(problem, named, 1)
    odd = [replace(arms[0], states=("good", "fare", "bad")), replace(arms[1], actions=())]
    with pytest.raises(ModelError, check=mentions("fair")) as caught:
        matched(named, eh.CoupledMDP(odd, budget=[2], discount=0.9))
    assert len(caught.value.faults) == 2 and '"fare"' in str(caught.value) and '"mend"' in str(caught.value)
    others = [replace(arm, name=f"x{arm.name}") for arm in arms]
    with pytest.raises(ModelError, check=mentions("A", "B", "xA", "xB")):
        matched(named, eh.CoupledMDP(others, budget=[2], discount=0.9))


def test_unsettled_rows_are_not_written(tmp_path):
    named = a_posterior()
    named.posterior.concentration[1, 2, 1] = 0
    with pytest.raises(ModelError):
        save_posterior(named, tmp_path / "x.posterior.npz")
    assert not list(tmp_path.iterdir())


def written(named, **other):
    """The bytes of a posterior in which some arrays are others; None takes one away."""
    body = io.BytesIO()
    names = {"types": named.types, "states": named.states, "actions": named.actions}
    arrays = {
        "format": np.array("evenhand-posterior"),
        "schema": np.array(1),
        "names": np.array(json.dumps(names).encode()),
        "concentration": named.posterior.concentration,
    }
    np.savez(body, **{key: array for key, array in (arrays | other).items() if array is not None})
    return body.getvalue()


ODD = {
    "format": np.array("something"),
    "schema": np.array(2),
    "names": np.array('{"types": ["A"]}'),
    "concentration": np.zeros((2, 3, 2)),
    "like": np.full((2, 3, 2), 5),
    "known": np.zeros((1, 3, 2), dtype=bool),
    "draws": np.zeros((1, 2, 3, 2, 3)),
    "shell": np.zeros(3),
}


@pytest.mark.parametrize("key", ODD)
def test_invalid_arrays_are_refused(tmp_path, key):
    path = tmp_path / "m.posterior.npz"
    path.write_bytes(written(a_posterior(), **{key: ODD[key]}))
    with pytest.raises(ModelError) as caught:
        load_posterior(path)
    assert str(path) in str(caught.value)
    assert [fault.place for fault in caught.value.faults] == ["" if key == "draws" else key]


INVALID_PRIOR = {
    "counts": lambda array: array[:1],
    "common": lambda array: -array,
    "certainty": lambda array: array + np.inf,
    "strength": lambda array: array[1:],
    "weight": lambda array: 2 * array,
    "leans": lambda array: ~array,
    "even": lambda array: None,
}


@pytest.mark.parametrize(
    ("key", "change"),
    [("counts", lambda array: 7 * array), ("counts", lambda array: 1e300 * array), ("common", lambda array: 3 * array)]
    + [(key, lambda array: 0 * array) for key in ("strength", "common")],
)
def test_prior_and_counts_must_give_the_stored_means(tmp_path, key, change):
    """Else draws would be around another model than that of the file, which is all that a model is held against."""
    path = tmp_path / "m.posterior.npz"
    save_posterior(a_pooled(), path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    np.savez(path, **arrays | {key: change(arrays[key])})
    with pytest.raises(ModelError):
        load_posterior(path)


@pytest.mark.parametrize("key", INVALID_PRIOR)
def test_invalid_arrays_of_a_prior_are_refused(tmp_path, key):
    path = tmp_path / "m.posterior.npz"
    save_posterior(a_pooled(), path)
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    odd = arrays | {key: INVALID_PRIOR[key](arrays[key])}
    np.savez(path, **{name: array for name, array in odd.items() if array is not None})
    with pytest.raises(ModelError):
        load_posterior(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_numbers_that_are_none_are_refused(tmp_path, bad):
    named, path = a_posterior(), tmp_path / "m.posterior.npz"
    named.posterior.concentration[0, 0, 0, 0] = bad
    path.write_bytes(written(named))
    with pytest.raises(ModelError):
        load_posterior(path)


def test_pickles_are_not_read(tmp_path):
    path = tmp_path / "m.posterior.npz"
    path.write_bytes(written(a_posterior(), like=np.array([[[{}] * 2] * 3] * 2, dtype=object)))
    with pytest.raises(ModelError):
        load_posterior(path)


def test_missing_files_and_other_formats_are_refused(tmp_path):
    path = tmp_path / "m.posterior.npz"
    with pytest.raises(InvalidInputError):
        load_posterior(path)
    path.write_bytes(b"rows")
    with pytest.raises(ModelError):
        load_posterior(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("rewards.npy", b"")
    with pytest.raises(ModelError):
        load_posterior(path)


@given(st.data())
def test_damage_never_ends_in_a_traceback(tmp_path_factory, data):
    body = bytearray(written(a_posterior()))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.posterior.npz"
    path.write_bytes(bytes(body[: data.draw(st.integers(1, len(body)))]))
    try:
        named = load_posterior(path)
    except EvenhandError:
        return
    assert np.isfinite(named.posterior.mean).all()
