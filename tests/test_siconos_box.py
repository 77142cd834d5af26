"""`nsdyn bench` beside Siconos, where some Python has it."""

import pytest

from nsdyn.studies.lib.bench import contacts


def test_it_falls_as_the_box_of_nsdyn():
    steps = 50
    found = contacts.siconos(repeats=1, steps=steps)
    if found is None:
        pytest.skip("no Python with Siconos")
    t = steps * contacts.STEP
    assert found["height"] == pytest.approx(contacts.HEIGHT - contacts.G * t**2 / 2, abs=1e-12)
    assert found["seconds"] > 0


def test_without_it_there_are_no_lines(monkeypatch):
    monkeypatch.setattr(contacts, "PYTHONS", ("no-such-python", "false"))
    assert contacts.siconos(repeats=1) is None
    assert contacts._beside_siconos(box=5.0, repeats=1) == []


def test_its_step_stands_beside_ours(monkeypatch):
    monkeypatch.setattr(contacts, "siconos", lambda repeats: {"seconds": 5e-5, "height": 0.0})
    theirs, over = contacts._beside_siconos(box=5.0, repeats=1)
    assert theirs["value"] == pytest.approx(50.0) and over["value"] == pytest.approx(0.1)
