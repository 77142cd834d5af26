"""Files: what is saved comes back bit by bit; any other file is refused with a clear error, and
never half written."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import nsdyn
from nsdyn import Event, Events, Solution
from nsdyn.numerics.newton import Effort
from nsdyn.results.netcdf import save
from nsdyn.results.solution import EFFORT, ENDINGS, EVENTS, METADATA, SAMPLES

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)
LEAVES = st.one_of(
    st.none(),
    st.text(max_size=5),
    *(
        arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
        for kind in "dfi?DQ"
    ),
)
PARAMS = st.recursive(
    LEAVES,
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3),
    max_leaves=6,
)


@st.composite
def solutions(draw):
    """A run or a batch, with any numbers."""
    rows, n, m, count = draw(st.tuples(*(st.integers(0, 3) for _ in range(4))))
    parts = draw(st.sampled_from([(), (1,), (2,), (2, 2), (0,)]))
    runs = draw(st.sampled_from([(), (1,), (3,)]))
    floats = lambda *shape: draw(arrays.arrays(float, shape, elements=ANY))
    whole = st.integers(-(2**31), 2**31 - 1)
    integers = lambda *shape: draw(arrays.arrays(np.int64, shape, elements=whole))
    sizes = {"coordinate": n + 1, "velocity": n, "row": m, "event": count, "time": rows}

    def filled(name, dims, front=runs):
        shape = [size for dim in dims for size in (parts if dim == "*mode" else (sizes[dim],))]
        is_whole = "mode" in name or name == "status"
        return (integers if is_whole else floats)(*front, *shape)

    values = {name: filled(name, dims) for name, (dims, _) in SAMPLES.items() if name != "t"}
    values |= {name: filled(name, dims) for name, (dims, _) in ENDINGS.items()}
    records = Event(**{name: filled(name, dims) for name, (dims, _) in EVENTS.items()})
    counts = np.full(runs, count)  # of a batch no record is empty in every run
    failed = draw(arrays.arrays(bool, runs))
    effort = Effort(integers(*runs), integers(*runs), floats(*runs), failed)
    finite = st.floats(allow_nan=False, allow_infinity=False)
    about = {
        name: draw(st.text(max_size=6))
        for name in ("problem", "integrator", "law", "nsdyn_version")
    }
    about |= {name: draw(finite) for name in ("step", "t0", "t_end")}
    about |= {"save_every": draw(st.none() | st.integers(1, 2**60))}
    about |= {"has_potential": draw(st.booleans())}
    return Solution(
        t=floats(rows),
        **values,
        events=Events(records, counts),
        effort=effort,
        params=draw(PARAMS),
        **about,
    )


def same(a, b) -> bool:
    """Equal bit by bit, with types and shapes; one NaN is like another."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if not isinstance(a, np.ndarray):
        return type(a) is type(b) and a == b
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    numbers = (a.real, b.real), (a.imag, b.imag)
    return (
        all(
            np.array_equal(x, y, equal_nan=True)
            and np.all((np.signbit(x) == np.signbit(y)) | np.isnan(x))
            for x, y in numbers
        )
        if a.dtype.kind in "fc"
        else np.array_equal(a, b)
    )


def equal(a: Solution, b: Solution) -> bool:
    names = (*SAMPLES, *ENDINGS, *METADATA, "params")
    return (
        all(same(getattr(a, name), getattr(b, name)) for name in names)
        and all(same(getattr(a.events, name), getattr(b.events, name)) for name in EVENTS)
        and all(same(getattr(a.effort, name), getattr(b.effort, name)) for name in EFFORT)
        and same(a.events.count, b.events.count)
    )


def small(**changes) -> Solution:
    """Three rows, two coordinates, one constraint row, one event."""
    event = Event(
        t=np.array([0.5]),
        mode_before=np.array([0]),
        mode_after=np.array([1]),
        q=np.ones((1, 2)),
        v_before=np.ones((1, 2)),
        v_after=np.zeros((1, 2)),
        Lam=np.ones((1, 1)),
        direction=np.ones((1, 1, 2)),
        kinetic_before=np.ones(1),
        kinetic_after=np.zeros(1),
    )
    values = {
        "t": np.array([0.0, 0.5, 1.0]),
        "q": np.ones((3, 2)),
        "v": np.ones((3, 2)),
        "lam": np.zeros((3, 1)),
        "mode": np.array([0, 1, 1]),
        "energy": np.ones(3),
        "events": Events.of(event),
        "effort": Effort(np.array(7), np.array(3), np.array(0.5), np.array(False)),
        "problem": "bead",
        "integrator": "RK4()",
        "law": "Law()",
        "step": 0.5,
        "save_every": 1,
        "t0": 0.0,
        "t_end": 1.0,
        "params": {"m": np.array(1.5)},
        "has_potential": True,
        "nsdyn_version": "0",
    }
    return Solution(**values | changes)


@given(run=solutions())
def test_what_is_saved_comes_back(tmp_path_factory, run):
    path = tmp_path_factory.mktemp("files") / "a run"
    save(run, path)
    back = nsdyn.load(path)
    assert equal(run, back)
    assert os.listdir(path.parent) == ["a run"]  # no suffix is added, nothing is left over


def test_numbers_keep_their_last_digit(tmp_path):
    numbers = np.array([0.1 + 0.2, np.nextafter(1.0, 2.0), 5e-324, np.pi, -0.0, 2.0**1023 * 1.9])
    run = small(params=[numbers, 1j * numbers], t0=0.1 + 0.2, t_end=np.pi, t=numbers[:3])
    run.save(tmp_path / "run.nc")
    assert equal(run, nsdyn.load(tmp_path / "run.nc"))


def test_the_comparison_of_these_tests_can_fail():
    assert equal(small(), small())
    for changes in (
        {"params": {"m": np.array(np.nextafter(1.5, 2))}},
        {"t0": 1e-300},
        {"mode": np.array([0, 1, 2])},
    ):
        assert not equal(small(), small(**changes))
    assert not same(np.array(0.0), np.array(-0.0))
    assert not same(np.zeros((0, 2)), np.zeros((0, 3)))


def test_paths_may_be_text_and_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small().save("run.nc")
    assert equal(nsdyn.load(tmp_path / "run.nc"), small())


def test_other_programs_can_read_it(tmp_path):
    from scipy.io import netcdf_file

    small().save(tmp_path / "run.nc")
    with netcdf_file(tmp_path / "run.nc", mmap=False) as file:
        assert file.variables["q"].dimensions == ("time", "coordinate")
        assert np.all(file.variables["q"][:] == 1.0)
        assert b"force" in file.variables["lam"].long_name
        assert b"impulse" in file.variables["Lam"].long_name


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "run.nc"
    small().save(path)

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(nsdyn.FileError, match="No space left"):
        small(problem="other").save(path)
    assert nsdyn.load(path).problem == "bead"
    assert os.listdir(tmp_path) == ["run.nc"]
    monkeypatch.undo()
    small(problem="other").save(path)
    assert nsdyn.load(path).problem == "other"


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    small().save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert equal(nsdyn.load(tmp_path / "target"), small())


def test_every_truncation_is_noticed(tmp_path):
    small().save(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    path = tmp_path / "part"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(nsdyn.FileError):
            nsdyn.load(path)


class Bomb:
    def __reduce__(self):
        return (sys.exit, ("a pickle was opened",))


def foreign_netcdf(path, **attributes):
    import xarray

    xarray.Dataset({"q": ("time", np.zeros(2))}, attrs=attributes).to_netcdf(path, engine="scipy")


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"t,q\n0,1\n", "not a netCDF 3 file"),
        (pickle.dumps(Bomb()), "pickle"),
        (b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5"),
        (b"CDF\x02" + bytes(2), "damaged"),
        (b"CDF\x01" + b"\xff" * 64, "damaged"),
    ],
    ids=["empty", "text", "pickle", "hdf5", "cut", "noise"],
)
def test_other_files_are_refused(tmp_path, content, word):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(nsdyn.FileError, match=word):
        nsdyn.load(path)


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ({}, "not from nsdyn"),
        ({"format": "nsdyn trajectory", "format_version": 3, "metadata": "{}"}, "newer nsdyn"),
        ({"format": "nsdyn trajectory", "format_version": 1, "metadata": "{}"}, "damaged"),
        ({"format": "nsdyn trajectory", "format_version": 1, "metadata": "{"}, "damaged"),
        ({"format": "nsdyn trajectory"}, "damaged"),
    ],
)
def test_other_netcdf_files_are_refused(tmp_path, attributes, word):
    foreign_netcdf(tmp_path / "file.nc", **attributes)
    with pytest.raises(nsdyn.FileError, match=word):
        nsdyn.load(tmp_path / "file.nc")


def test_a_variable_of_another_shape_is_noticed(tmp_path):
    import xarray

    small().save(tmp_path / "run.nc")
    with xarray.open_dataset(tmp_path / "run.nc", engine="scipy", decode_cf=False) as file:
        file.load().isel(coordinate=[0]).to_netcdf(tmp_path / "other.nc", engine="scipy")
    with pytest.raises(nsdyn.FileError, match=r"q: expected shape .*, found \(3, 1\)|event_q"):
        nsdyn.load(tmp_path / "other.nc")


@pytest.mark.parametrize("path", ["missing.nc", ".", "no/such/folder.nc"])
def test_paths_that_cannot_be_read(tmp_path, path):
    with pytest.raises(nsdyn.FileError, match="cannot read"):
        nsdyn.load(tmp_path / path)


def test_arguments_that_cannot_be_saved(tmp_path):
    with pytest.raises(nsdyn.FileError, match="expected a Solution, found dict"):
        save({}, tmp_path / "run.nc")
    with pytest.raises(nsdyn.FileError, match="cannot write"):
        small().save(tmp_path / "no" / "folder.nc")
    with pytest.raises(nsdyn.FileError, match="is a folder"):
        small().save(tmp_path)
    with pytest.raises(nsdyn.FileError, match="expected a path, found 3"):
        small().save(3)
    with pytest.raises(nsdyn.FileError, match="expected a path, found None"):
        nsdyn.load(None)
    with pytest.raises(nsdyn.FileError, match="32 bits"):
        small(mode=np.array([0, 1, 2**31])).save(tmp_path / "run.nc")
    assert not os.listdir(tmp_path)


def test_a_file_of_format_version_1_is_read():
    """Written before batches and statuses were stored: the 3R pendulum with its two locks."""
    old = nsdyn.load(Path(__file__).parent / "data" / "run_format_1.nc")
    assert old.ok and old.problem == "three_r_pendulum" and not old.is_batch
    assert np.allclose(old.t, [0.0, 0.5, 1.0, 1.5, 2.0], rtol=0, atol=1e-12)
    assert np.allclose(old.q[-1], [-3.19738511, 0.09132983, -4.79234308], rtol=0, atol=1e-8)
    assert np.allclose(old.events.t, [0.8, 1.3], rtol=0, atol=1e-15) and len(old.events) == 2
