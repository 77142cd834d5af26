"""The 3R pendulum in C, `three_r_pendulum.c`: one trajectory at a time (the yardstick for all other
times) and eight side by side in the lanes of a vector (what the hardware allows)."""

import json
import shutil
import subprocess
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

FLAGS = ("-std=c99", "-O3")
LANES = 8
SOURCE = "three_r_pendulum.c"


class Yardstick:
    """The C program for so many lanes, compiled on first use; `missing` says why there is none."""

    def __init__(self, lanes: int = 1) -> None:
        self.flags = FLAGS if lanes == 1 else (*FLAGS, "-march=native", f"-DLANES={lanes}")
        self.folder = tempfile.TemporaryDirectory(prefix="nsdyn-bench-")
        self.program: Path | None = None
        self.missing = ""

    def run(self, steps: int, trajectories: int, repeats: int) -> dict[str, Any] | None:
        """What the program says: the shortest time and the end state; None if there is none."""
        program = self._compiled()
        if program is None:
            return None
        command = [str(program), str(steps), str(trajectories), str(repeats)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
        return json.loads(done.stdout)

    def us_per_step(self, repeats: int) -> float | None:
        """The shortest time of a step of one trajectory. Runs take a few milliseconds, so that some
        are not interrupted."""
        found = self.run(2000, LANES, 20 * repeats)
        return None if found is None else 1e-3 * found["ns_per_step"]

    def _compiled(self) -> Path | None:
        if self.program is None and not self.missing:
            try:
                self.program = self._compile()
            except (OSError, subprocess.SubprocessError) as error:
                self.missing = f"no comparison with C: {error}"
        return self.program

    def _compile(self) -> Path:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise OSError("this machine has no C compiler (cc)")
        program = Path(self.folder.name) / "three_r_pendulum"
        with as_file(files("nsdyn.studies.lib.bench") / SOURCE) as source:
            command = [compiler, *self.flags, str(source), "-lm", "-o", str(program)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        return program


class Ratio:
    """Times over that of a step in scalar C, which is measured again beside each of them."""

    def __init__(self) -> None:
        self.c = Yardstick()

    def to_c(self, us: float) -> float | None:
        """`us` microseconds in units of one step in C, of the same minute."""
        step = self.c.us_per_step(5)
        return None if step is None else us / step
