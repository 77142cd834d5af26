"""The falling box of `contacts` in Siconos, for an interpreter that has it: Debian's package
python3-siconos serves Debian's own Python only.

    python siconos_box.py '{"step": 0.002, ...}'

prints, in its last line, the seconds of a step and the height of the box at the end. Moreau-Jean
with theta = 1/2 without projection; its contacts are those that Bullet finds, at most four points
of a face instead of eight corners, solved to TOLERANCE by Siconos' projected Gauss-Seidel.
"""

import json
import sys
import time
from typing import Any

TOLERANCE = 1e-8
MARGIN = 1e-3  # m, of Bullet within the bodies


def simulation(given: dict[str, Any]) -> tuple:
    """A simulation, its box, and what must not be deleted before they end."""
    import numpy as np
    from siconos import kernel
    from siconos.mechanics import collision
    from siconos.mechanics.collision import bullet

    def contactor(shape: Any) -> Any:
        shape.setInsideMargin(MARGIN)
        shape.setOutsideMargin(0.0)
        return collision.SiconosContactor(shape)

    mass, square = given["mass"], np.array(given["half"]) ** 2
    inertia = np.diag(mass / 3 * (square.sum() - square))
    box = collision.RigidBodyDS(given["q"], given["v"], mass, inertia)
    box.contactors().push_back(contactor(collision.SiconosBox(*(2 * x for x in given["half"]))))
    box.setFExtPtr(np.array([0.0, 0.0, -mass * given["g"]]))
    model = kernel.NonSmoothDynamicalSystem(0.0, given["step"] * given["steps"])
    model.insertDynamicalSystem(box)
    floor = collision.SiconosContactorSet()
    floor.append(contactor(collision.SiconosPlane()))
    manager = bullet.SiconosBulletCollisionManager(bullet.SiconosBulletOptions())
    manager.insertNonSmoothLaw(
        kernel.NewtonImpactFrictionNSL(given["e"], 0.0, given["mu"], 3), 0, 0
    )
    manager.insertStaticContactorSet(floor, [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    problem = kernel.FrictionContact(3)
    problem.setKeepLambdaAndYState(True)  # starts from the last solution
    problem.numericsSolverOptions().dparam[0] = TOLERANCE
    found = kernel.TimeStepping(model, kernel.TimeDiscretisation(0.0, given["step"]))
    found.insertInteractionManager(manager)
    found.insertIntegrator(kernel.MoreauJeanOSI(0.5))
    found.insertNonSmoothProblem(problem)
    return found, box, (model, floor, manager, problem)


def seconds(given: dict[str, Any]) -> tuple[float, float]:
    """The time of a step, and the height at the end."""
    found, box, _kept = simulation(given)
    steps, began = 0, time.process_time()
    while found.hasNextEvent():
        found.computeOneStep()
        found.nextStep()
        steps += 1
    return (time.process_time() - began) / steps, float(box.q()[2])


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    runs = [seconds(told) for _ in range(told["repeats"])]
    print(json.dumps({"seconds": min(time for time, _ in runs), "height": runs[-1][1]}))
