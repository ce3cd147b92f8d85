"""Counters: against SplitMix64 in plain Python integers, and as random numbers."""

import numpy as np
from scipy import stats

from evenhand.kernels import bits_at, draw_keys, greedy_service, grid, uniforms_at

WORD = 2**64


def splitmix(key, place):
    """The reference generator, stepped `place + 1` times from the seed `key`."""
    state = key
    for _ in range(place + 1):
        state = (state + 0x9E3779B97F4A7C15) % WORD
    z = state
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def test_known_numbers_of_the_published_generator():
    # The first outputs of SplitMix64 from seed 1234567, as its authors' reference code prints them.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert bits_at(np.uint64(1234567), np.arange(3, dtype=np.uint64)).tolist() == expected


def test_bits_are_those_of_the_sequential_generator():
    for key in (0, 1, 2**63, WORD - 1):
        expected = [splitmix(key, place) for place in range(20)]
        assert bits_at(np.uint64(key), np.arange(20, dtype=np.uint64)).tolist() == expected
        assert [int(greedy_service.bits_at(np.uint64(key), np.uint64(place))) for place in range(20)] == expected


def test_uniforms_are_the_upper_53_bits():
    key = np.uint64(99)
    uniforms = uniforms_at(key, np.arange(20, dtype=np.uint64))
    assert uniforms.tolist() == [(splitmix(99, place) >> 11) / 2**53 for place in range(20)]
    assert [greedy_service.uniform_at(key, np.uint64(place)) for place in range(20)] == uniforms.tolist()


def test_the_last_place_and_the_last_key_wrap_quietly():
    last = np.uint64(WORD - 1)
    with np.errstate(over="raise"):
        assert int(bits_at(last, np.array([last]))[0]) == splitmix(WORD - 1, -1)


def test_uniforms_are_uniform_and_neighbours_independent():
    for key in draw_keys(np.random.default_rng(0), 4):
        table = uniforms_at(key, grid(0, 400, 250))
        assert table.min() >= 0 and table.max() < 1
        assert stats.kstest(table.ravel(), "uniform").pvalue > 1e-4
        for left, right in ((table[:, :-1], table[:, 1:]), (table[:-1], table[1:])):
            correlation = np.corrcoef(left.ravel(), right.ravel())[0, 1]
            assert abs(correlation) < 4 / np.sqrt(left.size)


def test_keys_of_neighbouring_seeds_give_unrelated_numbers():
    first, second = (uniforms_at(np.uint64(key), grid(0, 300, 300)).ravel() for key in (7, 8))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / 300


def test_grid_is_read_row_by_row_from_the_first_row():
    assert grid(2, 3, 4).tolist() == [[8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]
    assert grid(0, 5, 7)[3:].tolist() == grid(3, 2, 7).tolist()
    assert grid(0, 2, 3).dtype == np.uint64


def test_draw_keys_are_words_of_the_stream():
    keys = draw_keys(np.random.default_rng(5), 1000)
    assert keys.dtype == np.uint64 and keys.shape == (1000,)
    assert len(set(keys.tolist())) == 1000 and keys.max() > 2**63
    assert np.array_equal(keys, draw_keys(np.random.default_rng(5), 1000))
