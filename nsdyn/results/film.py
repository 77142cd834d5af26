"""The film of a run: its mechanism, moving, as a GIF or MP4 file.

Frames are equally spaced in time; between samples and events, where q is continuous, it varies
linearly. Parts that do not move are grey. After an event the mechanism is orange for a moment.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nsdyn.errors import FileError, ProblemError
from nsdyn.problem import Problem
from nsdyn.results.drawing import Drawing
from nsdyn.results.plot import COLOURS, with_jumps
from nsdyn.results.solution import Solution

if TYPE_CHECKING:  # slow to import
    from matplotlib.animation import AbstractMovieWriter

FORMATS = (".gif", ".mp4")
SHORTEST, LONGEST, USUAL = 2.0, 20.0, 6.0  # s of film
FLASH = 0.2  # s of film after an event
MOST_FRAMES = 5000
MARKED = 8  # a line of at most so many points has its points marked, as joints
MARGIN = 0.08
BLUE, ORANGE = COLOURS[:2]
GREY = "0.6"
DPI = 120
NARROWEST = 4.0  # inches, so that the title has its place


def write(
    run: Solution,
    path: str | os.PathLike[str],
    problem: Problem | None,
    speed: float | None,
    rate: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Write the film, completely or not at all."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise FileError(
            f"animate(path): expected a name that ends in {' or '.join(FORMATS)}, found {path}"
        )
    if run.is_batch:
        raise ProblemError("animate: this is a batch of runs; choose one, solution[i].animate(...)")
    if len(run.t) < 2:
        raise ProblemError(f"animate: expected at least 2 samples, found {len(run.t)}")
    drawing, params = _drawing(run, problem)
    times, speed = _times(run, speed, rate)
    q = poses(run, times)
    picture = Picture(run, drawing.polylines(q, params), times, speed)
    part = target.with_name(f".{target.stem}.{secrets.token_hex(4)}{target.suffix}")
    try:
        writer = _writer(target, rate)
        with writer.saving(picture.figure, part, DPI):
            for k in range(len(times)):
                picture.show(k)
                writer.grab_frame()
                if progress is not None:
                    progress(k + 1, len(times))
        os.replace(part, target)
    except OSError as error:
        raise FileError(f"animate(path): cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _drawing(run: Solution, problem: Problem | None) -> tuple[Drawing, Any]:
    """How the run is drawn, and its parameters."""
    from nsdyn.results.solution import plain

    drawing = run.drawing if problem is None else Drawing.of(problem)
    if drawing is None:
        why = "the run does not know how its problem is drawn; give animate(path, problem=...)"
        bare = f"problem {run.problem!r} has no shape; give it Problem(shape=shape)"
        raise ProblemError(f"animate: {why if problem is None else bare}")
    own = run.params if problem is None or run.params is not None else plain(problem.params)
    return drawing, own


def _times(run: Solution, speed: float | None, rate: int) -> tuple[np.ndarray, float]:
    """The times of the frames, and the speed."""
    if isinstance(rate, bool) or not isinstance(rate, int) or rate < 1:
        raise ProblemError(f"animate(rate=...): expected a positive whole number, found {rate!r}")
    span = float(run.t[-1] - run.t[0])
    if speed is None:
        speed = 1.0 if SHORTEST <= span <= LONGEST else span / USUAL
    if not (isinstance(speed, int | float) and 0 < speed < np.inf):
        raise ProblemError(f"animate(speed=...): expected a positive number, found {speed!r}")
    count = round(span / speed * rate) + 1
    if count > MOST_FRAMES:
        raise ProblemError(
            f"animate(speed=...): expected at most {MOST_FRAMES} frames, found {count} at speed "
            f"{speed:g} and rate {rate}; take a higher speed"
        )
    return np.linspace(run.t[0], run.t[-1], max(count, 2)), float(speed)


def poses(run: Solution, times: np.ndarray) -> np.ndarray:
    """q at these times, shape (times, n)."""
    e = run.events.trimmed()
    t, q = with_jumps(np.asarray(run.t), np.asarray(run.q), e.t, e.q, e.q)
    return np.stack([np.interp(times, t, line) for line in q.T], axis=1)


def _writer(path: Path, rate: int) -> "AbstractMovieWriter":
    from matplotlib.animation import FFMpegWriter, PillowWriter

    if path.suffix.lower() == ".gif":
        return PillowWriter(fps=rate)
    if not FFMpegWriter.isAvailable():
        raise FileError(
            f"animate(path): {path} needs the program ffmpeg, which was not found; install it, or "
            "write a .gif"
        )
    return FFMpegWriter(fps=rate, extra_args=["-pix_fmt", "yuv420p"])


class Picture:
    """A figure that shows one frame after another.

    lines: the polylines, each of shape (frames, points, 2 or 3).
    """

    def __init__(
        self, run: Solution, lines: list[np.ndarray], times: np.ndarray, speed: float
    ) -> None:
        from matplotlib.figure import Figure  # not pyplot, which keeps global state

        self.lines = lines
        self.times = times
        self.late = np.array([_since(run.events.trimmed().t, t) for t in times]) / speed
        self.speed = "" if speed == 1 else f", {speed:.3g} times real time"
        low, high = _limits(lines)
        if lines[0].shape[2] == 2:
            self.figure = Figure(figsize=_size(*(high - low)), layout="constrained")
            self.axes = _flat(self.figure, low, high)
        else:
            self.figure = Figure(figsize=(4.8, 4.8))
            self.axes = _solid(self.figure, low, high)
        self.text = self.figure.suptitle(" ", fontsize=9)
        self.name = run.problem
        self.artists = [self._artist(line) for line in lines]
        self.show(0)
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")  # all frames have their axes in one place

    def _artist(self, line: np.ndarray) -> Any:
        moves = _moves(line)
        points = line.shape[1]
        marker = "o" if points == 1 or (moves and points <= MARKED) else ""
        (artist,) = self.axes.plot(
            *line[0].T,
            color=BLUE if moves else GREY,
            linewidth=1.2 if moves else 0.8,
            marker=marker,
            markersize=5.0 if points == 1 else 3.0,
            markerfacecolor=(BLUE if moves else GREY) if points == 1 else "white",
            markeredgewidth=0.9,
            solid_capstyle="round",
            solid_joinstyle="round",
            zorder=2 if moves else 1,
        )
        return artist

    def show(self, k: int) -> None:
        """Show frame k."""
        flash = self.late[k] < FLASH
        colour = ORANGE if flash else BLUE
        for artist, line in zip(self.artists, self.lines, strict=True):
            if not _moves(line):
                continue
            artist.set_data(*line[k, :, :2].T)
            if line.shape[2] == 3:
                artist.set_3d_properties(line[k, :, 2])
            artist.set_color(colour)
            artist.set_markeredgecolor(colour)
            artist.set_markerfacecolor(colour if line.shape[1] == 1 else "white")
        self.text.set_text(f"{self.name}: t = {self.times[k]:.3f} s{self.speed}")


def _since(events: np.ndarray, t: float) -> float:
    """The time since the last event."""
    before = events[events <= t]
    return float(t - before.max()) if len(before) else np.inf


def _moves(line: np.ndarray) -> bool:
    return bool(np.ptp(line, axis=0).max(initial=0.0) > 1e-9)


def _limits(lines: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The corners of a box around all frames, with a margin; no side shorter than a third of the
    longest."""
    points = np.concatenate([line.reshape(-1, line.shape[2]) for line in lines])
    points = points[np.all(np.isfinite(points), axis=1)]
    if not len(points):
        raise ProblemError("Problem(shape=...): expected points, found none that are finite")
    low, high = points.min(axis=0), points.max(axis=0)
    longest = max(float((high - low).max()), 1e-12)
    half = np.maximum(high - low, longest / 3) / 2 + MARGIN * longest
    middle = (low + high) / 2
    return middle - half, middle + half


def _size(width: float, height: float) -> tuple[float, float]:
    """Inches, for a box of this width and height; an even number of pixels, as films need."""
    scale = min(5.0 / width, 4.0 / height)
    even = lambda x: 2 * round(x * DPI / 2) / DPI
    return max(even(scale * width + 0.8), NARROWEST), even(scale * height + 0.9)


def _flat(figure: Any, low: np.ndarray, high: np.ndarray) -> Any:
    ax = figure.add_subplot()
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    ax.set_aspect("equal")
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _solid(figure: Any, low: np.ndarray, high: np.ndarray) -> Any:
    from matplotlib.ticker import MaxNLocator

    ax = figure.add_subplot(projection="3d", computed_zorder=False)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    ax.set_box_aspect(high - low, zoom=0.95)
    ax.tick_params(labelsize=7)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_major_locator(MaxNLocator(4))
        axis.pane.set_visible(False)
        axis._axinfo["grid"].update(color="0.9", linewidth=0.5)
    return ax
