"""Bricard's mechanism, 60 constraints of rank 59, against the same mechanism as a chain of five
links with a hinge at its tip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import run

import nsdyn
from nsdyn.integrators import NSGA, RK4, EventDriven
from nsdyn.multibody.chain import Chain, poses
from nsdyn.multibody.chain_dynamics import SYSTEM
from nsdyn.problems.bricard import ACROSS, ALONG, AXES, CORNERS, bricard, closure


def last_hinge(q, t, p):
    R, r = poses(p["chain"], q)
    place = r[-1] + R[-1] @ (CORNERS[5] - CORNERS[4]) - CORNERS[5]
    return jnp.concatenate([place, ACROSS[5] @ (R[-1] @ AXES[5])])


def as_chain(w=0.1):
    """Five hinges, angles from the start along the cube; of the five rows of the last hinge four
    are independent."""
    bars = CORNERS[1:] - CORNERS[:-1]
    spread = (
        1.0 / 12 * (ALONG + w**2 * (1 - ALONG))
    )  # second moments; the moments of inertia are sums of two
    inertia = [np.diag(np.sum(x) - x) for x in spread]
    place = np.concatenate([np.zeros((1, 3)), bars[:-1]])
    chain = Chain(AXES[:5], place, np.ones(5), bars / 2, inertia, gravity=[0.0, -9.81, 0.0])
    hinge = nsdyn.Fixed(last_hinge)
    return nsdyn.Problem(
        "chain", SYSTEM, hinge, q0=np.zeros(5), v0=np.zeros(5), t_end=1.0, params={"chain": chain}
    )


def test_rank_59_and_a_warning():
    problem = bricard()
    G = jax.jacfwd(closure)(problem.q0, 0.0, problem.params)
    singular = np.linalg.svd(G, compute_uv=False)
    assert G.shape == (60, 60) and singular[-1] < 1e-14 < 0.1 < singular[-2]
    with pytest.warns(nsdyn.RedundancyWarning, match="rank 59"):
        problem.check()


@pytest.mark.slow
def test_against_the_chain():
    natural = run(bricard(t_end=1.0), EventDriven(RK4()), step=0.01, save_every=20)
    chain = run(as_chain(), EventDriven(RK4()), step=0.01, save_every=20)
    assert int(natural.status) == int(chain.status) == 0
    middles = natural.q.reshape(-1, 5, 12)[:, :, :3]
    R, r = jax.vmap(lambda q: poses(as_chain().params["chain"], q))(chain.q)
    reference = r + jnp.einsum("tbij,bj->tbi", R, (CORNERS[1:] - CORNERS[:-1]) / 2)
    assert np.ptp(middles[:, 2, 1]) > 0.2
    assert np.abs(middles - reference).max() < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("integrator", "energy"),
    [(EventDriven(RK4()), 1e-7), (NSGA(rho_inf=0.8), 2e-2)],
    ids=["RK4", "NSGA"],
)
def test_ten_seconds_on_the_constraints(integrator, energy):
    problem = bricard()
    out = run(problem, integrator, step=0.01)
    assert int(out.status) == 0
    residual = jax.vmap(lambda q: closure(q, 0.0, problem.params))(out.q)
    assert np.abs(residual).max() <= 1e-9
    assert np.ptp(out.energy) < energy * 9.81
