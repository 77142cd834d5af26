"""Which batched problems of contacts call LAPACK under XLA: sweeps must not run such programs side
by side, and look for the word in the text of a program (`driver.batch_run`)."""

import jax
import jax.numpy as jnp
import pytest

from nsdyn.numerics import cone, small

BATCH = 2


def text(k, careful):
    """The program for a batch of problems with k contacts in space, before compilation."""

    def impulses(W, b):
        mu, on, P = jnp.full(k, 0.3), jnp.ones(k, bool), jnp.zeros((k, 3))
        return cone.solve(W, b, mu, on, P, careful=careful).P

    W, b = jnp.zeros((BATCH, 3 * k, 3 * k)), jnp.zeros((BATCH, k, 3))
    return jax.jit(jax.vmap(impulses)).lower(W, b).as_text()


@pytest.mark.parametrize("careful", [False, True])
def test_a_few_contacts_need_no_lapack(careful):
    assert 3 * 5 <= small.IN_LOOP < 3 * 6
    assert "lapack" not in text(5, careful)


@pytest.mark.parametrize("careful", [False, True])
def test_more_contacts_say_that_they_need_it(careful):
    assert "lapack" in text(6, careful)
