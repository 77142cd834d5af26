"""The report page: what it contains, and what it does in a real browser."""

import base64
import gzip
import json
import re
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import nsdyn
from nsdyn import integrators, problems
from nsdyn.cli.commands import app
from nsdyn.studies.lib import archive
from nsdyn.studies.lib.report import archived, collect, motions, page

H = 0.02


def mass(q, p):
    return jnp.eye(2)


def force(q, v, t, p):
    return jnp.array([0.0, -9.81])


def floor(q, t, p):
    return q[1]


def shape(q, p):
    return (jnp.array([[-1.0, 0.0], [1.0, 0.0]]), q[None])


@pytest.fixture(scope="module")
def ball():
    return nsdyn.Problem(
        "ball",
        nsdyn.System(mass=mass, force=force),
        nsdyn.Contact(floor),
        q0=[0.0, 1.0],
        v0=[0.5, 0.0],
        t_end=1.0,
        coordinates=("x [m]", "y [m]"),
        shape=shape,
    )


@pytest.fixture(scope="module")
def told(ball):
    run = nsdyn.simulate(ball, integrators.EventDriven(integrators.RK4()), step=H)
    return motions.shown(ball, [("first", run), ("second", run)]), run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A study with a figure, a caption, two tables and data."""
    folder = tmp_path_factory.mktemp("figures")
    study = folder / "two_balls"
    (study / "data").mkdir(parents=True)
    (study / "captions.txt").write_text("Figure 1. Balls <fall>.\n")
    (study / "table.csv").write_text(
        "scheme,error\nNSGA,2e-3\nRK4,1e-9 ± 1e-10\nAlpha,-\nMoreauJean,1e-2\n"
    )
    (study / "table.txt").write_text("twice\n")
    (study / "table.md").write_text(
        "Errors <all>\n\n| scheme |\n| :-- |\n\nOne note\n\n<!-- x -->\n"
    )
    Image.new("RGB", (2000, 100), "white").save(study / "figure_1.png")
    origin = {"date": "2026-01-02", "commit": "abc", "versions": {"nsdyn": "0.1.0"}}
    (study / "data" / "x.json").write_text(json.dumps(origin))
    return folder


@pytest.fixture(scope="module")
def locking(tmp_path_factory):
    """A study with two runs of a problem of ours, with rows for both limits at a lock, and with
    data that are no run, or of a problem that nobody knows."""
    study = tmp_path_factory.mktemp("figures") / "locking"
    settings = archive.numbers_of(problems.get("three_r_pendulum"))
    t = np.sort([*np.linspace(0, 2, 3002), 0.8, 0.8, 0.8])
    q = np.stack([t, 2 * t, 0 * t], axis=1)
    v = np.where(np.arange(len(t))[:, None] > np.flatnonzero(t == 0.8)[0], [5.0, 6, 7], [1.0, 2, 3])
    rows = {"t": ("row", t), "q": (("row", "i"), q), "v": (("row", "i"), v)}
    one = {**rows, "t_lock": ("event", [0.8]), "Lam": (("event", "k"), [[4.0, 0.0]])}
    for name in ("first_one", "second_one"):
        archive.update(study / "data", name, {**settings, "name": name}, lambda: one)
    archive.update(study / "data", "map", settings, lambda: {"t": ("row", t)})
    foreign = {**settings, "problem": "nobody's"}
    archive.update(study / "data", "foreign", foreign, lambda: rows)
    return archived.motions(study)


def test_archived_motions_are_found(locking):
    (motion,) = locking
    assert motion["title"] == "locking: three_r_pendulum"
    first, second = motion["runs"]
    assert (first["label"], second["label"]) == ("first one", "second one")
    assert first["series"] == ["q_1 [rad]", "q_2 [rad]"] and first["frames"] < 510
    (event,) = first["events"]
    told = {"t": 0.8, "before": "1, 2, 3", "after": "5, 6, 7", "impulse": "4, 0"}
    assert event == told
    raw = np.frombuffer(gzip.decompress(base64.b64decode(first["data"])), "<f4")
    assert np.sum(raw[: first["frames"]] == np.float32(0.8)) == 3


@pytest.fixture(scope="module")
def file(tmp_path_factory, folder, told, locking, ball):
    path = tmp_path_factory.mktemp("report") / "report.html"
    alone = motions.shown(ball, [("alone", told[1])])
    return page.write(path, collect.studies(folder), [told[0], *locking, alone])


def test_numbers_of_a_motion_are_those_of_the_run(told):
    motion, run = told
    first = motion["runs"][0]
    raw = np.frombuffer(gzip.decompress(base64.b64decode(first["data"])), "<f4")
    frames = first["frames"]
    assert first["lines"] == [[2, 2], [1, 2]]
    np.testing.assert_allclose(raw[:frames], run.t, rtol=1e-6)
    ball = raw[frames * 5 : frames * 7].reshape(frames, 2)
    np.testing.assert_allclose(ball, run.q, rtol=1e-6, atol=1e-7)
    assert first["series"] == ["energy [J]", "x [m]", "y [m]"]
    (event,) = first["events"]
    assert event["t"] == pytest.approx(np.sqrt(2 / 9.81))
    assert event["after"].startswith("0.5, ")


def test_page_holds_everything_and_asks_for_nothing(file):
    text = file.read_text("utf-8")
    assert "Balls &lt;fall&gt;" in text and "abc" in text and "uPlot" in text
    assert "Errors &lt;all&gt;" in text and "One note" in text
    assert "twice" not in text and "<!-- x" not in text
    outside = re.findall(r"(?:src|href)=\"(?!data:|#)([^\"]*)\"", text)
    assert outside == []
    assert len(text) < 200_000


def test_command(folder, tmp_path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(out), "--no-player"])
    assert result.exit_code == 0, result.stderr
    assert "two balls" in out.read_text("utf-8")
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(out)])
    assert result.exit_code == 2 and "nsdyn figures --out" in result.stderr


def test_a_problem_without_shape_is_named(ball, told):
    bare = nsdyn.Problem("bare", ball.system, None, q0=ball.q0, v0=ball.v0, t_end=1.0)
    with pytest.raises(nsdyn.ProblemError, match=r"'bare' has no shape; give it Problem\(shape="):
        motions.shown(bare, [("run", told[1])])


@pytest.fixture
def browser(file):
    selenium = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Chromium and its driver")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("--headless=new", "--no-sandbox", "--window-size=1280,1000"):
        options.add_argument(flag)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    opened = selenium.Chrome(options, selenium.ChromeService(driver))
    opened.get(file.as_uri())
    yield opened
    opened.quit()


def _pixels(browser):
    return browser.execute_script("return document.getElementById('scene').toDataURL()")


def _wait(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 20).until(lambda opened: opened.execute_script(condition))


@pytest.mark.slow
def test_in_a_browser(browser):
    """Nothing in the console, no request, the player moves, Space plays, Tab reaches everything."""
    from selenium.webdriver.common.keys import Keys

    _wait(browser, "return window.player && player.shown.length === 2 && player.plots.length === 3")
    at_rest = _pixels(browser)
    browser.execute_script("document.getElementById('speed').value = '0.05'")
    body = browser.find_element("tag name", "body")
    body.send_keys(Keys.SPACE)
    _wait(browser, "return player.time > 0.01")
    assert _pixels(browser) != at_rest
    body.send_keys(Keys.SPACE)
    assert browser.execute_script("return player.playing") is False
    browser.execute_script("player.go(0)")
    browser.find_element("id", "next").click()
    assert browser.execute_script("return player.time") == pytest.approx(np.sqrt(2 / 9.81))
    assert "v+ = (0.5," in browser.find_element("id", "event").text

    controls = "a, button, select, input, summary, #scene"
    count = browser.execute_script(f"return document.querySelectorAll('{controls}').length")
    reached = set()
    for _ in range(count + 2):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(browser.switch_to.active_element.id)
    assert len(reached) >= count

    assert browser.get_log("browser") == []
    requests = "return performance.getEntriesByType('resource').map(x => x.name)"
    assert [x for x in browser.execute_script(requests) if not x.startswith("data:")] == []


@pytest.mark.slow
def test_another_motion_and_what_is_told_of_its_events(browser):
    from selenium.webdriver.support.ui import Select

    _wait(browser, "return window.player && player.shown.length === 2")
    before = _pixels(browser)
    Select(browser.find_element("id", "motion")).select_by_index(1)
    _wait(browser, "return player.motion === player.motions[1] && player.plots.length === 2")
    assert _pixels(browser) != before
    browser.find_element("id", "next").click()
    told = browser.find_element("id", "event").text.splitlines()
    assert browser.execute_script("return player.shown.length") == 2
    Select(browser.find_element("id", "motion")).select_by_index(2)  # which has one run
    _wait(browser, "return player.motion === player.motions[2] && player.shown.length === 1")
    assert told == ["t = 0.800000 s, v- = (1, 2, 3), v+ = (5, 6, 7), Lam = (4, 0)"] * 2
    assert browser.get_log("browser") == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_window(browser, width):
    """A scene whose height follows its picture would grow with every resize."""
    _wait(browser, "return window.player && player.plots.length === 3")
    size = {"width": width, "height": 800, "deviceScaleFactor": 2, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_script("for (let k = 0; k < 5; k++) dispatchEvent(new Event('resize'))")
    browser.execute_script("document.querySelectorAll('details').forEach((x) => x.open = true)")
    wide = "return document.documentElement.scrollWidth"
    assert browser.execute_script(wide) <= width
    tall = "return document.getElementById('scene').getBoundingClientRect().height"
    assert browser.execute_script(tall) == (320 if width < 600 else 522)
    plots = "return player.plots.every((x) => x.width <= x.root.parentNode.clientWidth)"
    assert browser.execute_script(plots)


@pytest.mark.slow
def test_a_dark_page_has_light_words(browser):
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    light = lambda: browser.execute_script(
        "const of = getComputedStyle(document.body);"
        "return [of.color, of.backgroundColor].map((x) => Number(x.match(/\\d+/)[0]))"
    )
    words, paper = light()
    assert words < 60 and paper > 240
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    words, paper = light()
    assert words > 200 and paper < 60


@pytest.mark.slow
def test_tables_sort(browser):
    cells = "document.querySelectorAll('table.sortable tbody td:nth-child(2)')"
    column = f"return [...{cells}].map(x => x.textContent)"
    _, error = browser.find_elements("css selector", "table.sortable th button")
    error.click()
    rising = ["1e-9 ± 1e-10", "2e-3", "1e-2", "-"]
    assert browser.execute_script(column) == rising
    error.click()
    assert browser.execute_script(column) == rising[::-1]
