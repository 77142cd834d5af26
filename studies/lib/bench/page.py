"""The page of results, from what `nsdyn bench` writes: `nsdyn bench --page docs/speed.md`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nsdyn.studies.lib import archive, style
from nsdyn.studies.lib.bench import precision
from nsdyn.studies.lib.bench.suite import notes, row

HEAD = """\
# Speed

Written by `nsdyn bench`; do not edit. All numbers come from one run on one machine, so ratios mean more than times. Each is
the shortest of several, by the clock or, on one core, in CPU time, if that is less; whatever compiles is measured in CPU time.
Targets are those that nsdyn has set itself.

- machine: {processor}, {cores} cores, load {load} at the start of this run{busy}
- date: {date}, commit {commit}
- versions: {versions}; {compiler}
"""
BUSY = " (**others were using the machine: times are too long, and ratios are less certain**)"
SECTIONS = {
    "hardware": (
        "C",
        "The 3R pendulum by hand, `studies/lib/bench/three_r_pendulum.c`: scalar, the yardstick of this page (`-O3`), and with eight "
        "trajectories in the lanes of vectors (`-O3 -march=native`), what the hardware allows.",
    ),
    "start": (
        "From the start of Python to the result",
        "CPU seconds of a new process that runs a problem with `EventDriven(RK4())` and `simulate`, with those of the compilers that it "
        "calls, over those of a process that imports JAX and compiles one sine.",
    ),
    "one trajectory": (
        "One trajectory",
        "Microseconds of a step of `simulate` in a run of 100,000 steps and eleven samples, events included, over those of the 3R "
        "pendulum in scalar C. The fixed cost of a call (a run of 16 steps) is subtracted; it has a line of its own, checks included.",
    ),
    "implicit": ("Implicit steps", "NSGA over event-driven RK4, with the same step."),
    "batch": (
        "A batch",
        "`sweep` over 1000 trajectories of 2000 steps, both locks included: microseconds for each step of each trajectory.",
    ),
    "robot": (
        "Robots on both cores",
        "`sweep` over 1000 arms with six joints, `rx130l`, on one core and on all.",
    ),
    "large": (
        "Larger sweeps",
        "Seconds in a new process with an empty cache, on all cores, first with compilation and then again: with the backend that nsdyn chooses, and under XLA. "
        "The two are the same where the native backend refuses a program.",
    ),
    "accuracy": (
        "Accuracy per second",
        "Run time to reach an error of the end state, relative to the largest entry of q and of v; compilation is not counted. "
        "Reference: `DormandPrince(8)` at the tightest tolerance. `simulate(check=False)` is timed as a whole, its fixed cost included. "
        "scipy's right-hand side is a compiled function of JAX, called from Python; diffrax is compiled as a whole.",
    ),
    "peers": (
        "Other programs",
        "A chain of `serial_chain` without a floor. A step of RK4 evaluates the forward dynamics four times.",
    ),
    "contacts": (
        "Contacts",
        "Moreau-Jean with the step 2 ms. MuJoCo's contacts are soft, so times of a step are compared, not results. Siconos (Debian's "
        "package python3-siconos) takes the same box in a process of its own: Moreau-Jean without projection, which sinks in by some "
        "millimetres, driven from Python; Bullet finds its contacts, at most four points where nsdyn has eight corners; tolerance 1e-8.",
    ),
    "memory": ("Memory", ""),
    "chains": ("Long chains", "Recursions against the dense mass matrix, under XLA."),
    "stiff": (
        "Stiff mechanisms",
        "Springs of about 1e6 N/m between masses of about 1 kg, over ten seconds of the slow motion that they follow: time to reach an "
        "error, the largest of ten samples, relative to the largest entry of q and of v, over that of the faster `DormandPrince`. The "
        "follower is a driven mass; slider crank and double pendulum have constraints and a spring that turns, slowly driven the one, "
        "swinging at up to 7 rad/s the other; the governor is `flyball_governor`.",
    ),
    "trees": ("Trees", "Forward dynamics of trees that branch, from 16 to 512 bodies."),
}


def write(described: Mapping[str, Any], path: str | Path) -> list[Path]:
    """Write the page and, beside it, its figure; returns the files written."""
    path = Path(path)
    results = described["results"]
    picture = path.with_suffix(".png")
    files = [
        archive.replace(path, lambda part: part.write_text(text(described, picture.name), "utf-8"))
    ]
    if "accuracy" in results:
        with style.use():
            fig = precision.figure(results["accuracy"]["cases"])
            save = lambda part: fig.savefig(part, dpi=200, metadata={"Software": None})
            files.append(archive.replace(picture, save))
    return files


def text(described: Mapping[str, Any], picture: str) -> str:
    """The page in Markdown."""
    machine, results = described["machine"], described["results"]
    load, cores = machine["load"], machine["cores"]
    parts = [
        HEAD.format(
            **machine,
            busy=BUSY if load is not None and load > 0.5 * cores else "",
            date=described["date"],
            commit=described["commit"] or "unknown",
            versions=", ".join(f"{name} {x}" for name, x in described["versions"].items()),
        )
    ]
    for name, part in results.items():
        title, about = SECTIONS.get(name, (name, ""))  # what was measured is not lost
        parts.append("\n".join([f"## {title}", "", *([about, ""] if about else []), *_table(part)]))
        if name == "accuracy":
            parts.append(f"![Error against run time]({picture})")
    parts.append("## Notes\n\n" + "\n".join(f"- {note}" for note in notes(results)))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _table(part: dict[str, Any]) -> list[str]:
    rows = ["| quantity | measured | target | met |", "| --- | ---: | ---: | --- |"]
    return rows + [f"| {' | '.join(row(line))} |" for line in part["lines"]]
