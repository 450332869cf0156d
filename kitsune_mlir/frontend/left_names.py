"""The operators of aten that torch computes between two programs (left_operators.py), for messages without torch."""

# Of linear algebra; functions that only series give; drawn numbers that torch draws as it does without a program.
NAMES = tuple(
    """
    _linalg_svd _linalg_eigh linalg_eig linalg_eigvals _linalg_eigvals linalg_lu linalg_lu_factor_ex lu_unpack
    linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_pinv.atol_rtol_tensor linalg_householder_product geqrf
    ormqr
    polygamma igamma igammac special_zeta special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0
    special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
    special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
    special_spherical_bessel_j0 fractional_max_pool2d fractional_max_pool2d_backward multinomial
    special_chebyshev_polynomial_t.n_scalar special_chebyshev_polynomial_u.n_scalar
    special_hermite_polynomial_h.n_scalar special_hermite_polynomial_he.n_scalar
    special_laguerre_polynomial_l.n_scalar special_legendre_polynomial_p.n_scalar
""".split()
)
