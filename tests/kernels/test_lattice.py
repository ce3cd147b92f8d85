"""Lattices of counts."""

import numpy as np

from evenhand.kernels.lattice import interpolate, lattice_points


def test_interpolation_is_exact_for_linear_functions_and_at_common_points():
    weights = np.array([0.3, -1.2, 2.0, 0.7])
    coarse, fine = lattice_points(6, 4), lattice_points(18, 4)
    np.testing.assert_allclose(interpolate(coarse @ weights, 6, fine), (fine / 3) @ weights, atol=1e-12)
    values = np.random.default_rng(0).random(len(coarse))
    common = (fine % 3 == 0).all(axis=1)
    np.testing.assert_allclose(interpolate(values, 6, fine)[common], values, atol=1e-12)
    assert interpolate(values, 6, fine).min() >= values.min() and interpolate(values, 6, fine).max() <= values.max()
