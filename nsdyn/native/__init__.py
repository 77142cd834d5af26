"""Traced functions as machine code: jaxpr -> C++ -> shared library, called on numpy arrays.

A program keeps its loops and branches. Every number in it is a vector of lanes, one for each of a
few runs that go side by side (one lane for a single run); numbers that all runs share stay scalar.
Small arrays are taken apart into scalar expressions, larger ones live in memory.

    graph      scalar expressions: equal ones are one, constants are folded
    writer     C++ text: nested blocks, variables, storage
    lowering   equations of a jaxpr, one after the other
    tables     the primitives: elementwise, movement, reductions, linear algebra
    control    loops and branches
    functions  what is called more than once is written once
    build      compiler and cache
    program    from a Python function to a callable
    once       functions that run a few times, such as checks
    choice     which backend is wanted

Answers equal those of XLA to round-off, with one liberty: a factor that is zero by structure makes
its product zero, even if the other factor is infinite or NaN. A product that is only added or
subtracted is not rounded before, on machines that can (x y + z); the text says where, so single
runs, batches and quickly compiled programs round alike.

May import: what lies directly in nsdyn.
"""
