"""A 6R industrial robot whose first three joints lock one after another (A. Mueller, section 7),
with SURROGATE parameters.

The source gives the robot (Staubli RX130L), the gear ratio of 100 and the lock times; its
identified inertia parameters and its initial state are not published. Everything else is assumed:

- Lengths: upper arm 0.625 m, forearm 0.925 m, flange 0.110 m, matching the reach in the catalogue;
  base 0.55 m; no offset at the shoulder.
- Bodies: the larger RX160L, from the robot description in the public repository
  ros-industrial/staubli, scaled to these lengths. The forearm is the same. Without the shoulder
  offset the centre of mass of link 1 is on its axis. The upper arm (link 2) scales:

      s = 0.625/0.825:  m ~ s,  c_z ~ s,  I_xx, I_yy ~ s^3,  I_yz ~ s^2,  I_zz ~ s,
      I_xy = I_xz = 0                                                                          (1)

- Rotors: J = 3e-4, 3e-4, 1e-4 kg m2 for the arm and 3e-5 kg m2 for each wrist joint, at the motor.
- Start: joint angles (0, pi/6, pi/3, 0, 0, 0), joint rates (2, 1.5, 2, 0, 0, 0) rad/s. End: 0.2 s.

At q = 0 the arm is upright; its axes are then z, y, y, z, y, z. Coordinates are motor angles, see
`geared_chain`. Joints 1, 2, 3 lock at 0.05, 0.10, 0.15 s; the wrist does not lock. The motors are
off or compensate part of the weight.
"""

import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import Number, Numbers, Params
from nsdyn.multibody.chain import Chain
from nsdyn.problems.geared_chain import SYSTEM, coordinates, parameters, shape

ABOUT = nsdyn.About(tags=("robot", "locking"), source="Mueller")

RATIO = 100.0
LOCK_TIMES = (0.05, 0.10, 0.15)
ANGLES = (0.0, np.pi / 6, np.pi / 3, 0.0, 0.0, 0.0)  # of the joints, rad; assumed
RATES = (2.0, 1.5, 2.0, 0.0, 0.0, 0.0)  # of the joints, rad/s; assumed
ROTORS = (3e-4, 3e-4, 1e-4, 3e-5, 3e-5, 3e-5)  # at the motor, kg m2; assumed
UPPER_ARM, FOREARM, FLANGE, BASE = 0.625, 0.925, 0.110, 0.55  # m

X, Y, Z = np.eye(3)
AXES = (Z, Y, Y, Z, Y, Z)
PLACES = (BASE * Z, 0 * Z, UPPER_ARM * Z, 0 * Z, FOREARM * Z, FLANGE * Z)
S = UPPER_ARM / 0.825

# mass [kg], centre of mass [m], inertia about it [kg m2] as xx, xy, xz, yy, yz, zz; a surrogate
BODIES = (
    (
        45.357763,
        (0.0, -0.002547, -0.040488),
        (0.839141, 0.022637, 0.162457, 1.030146, 0.027416, 1.064698),
    ),
    (
        51.266495 * S,
        (0.0, 0.264164, 0.347704 * S),
        (5.2728 * S**3, 0.0, 0.0, 5.536809 * S**3, -0.008261 * S**2, 0.486191 * S),
    ),  # (1)
    (
        19.754401,
        (-0.000255, 0.016478, -0.003819),
        (0.249388, -0.004901, 0.004825, 0.211780, 0.000574, 0.238488),
    ),
    (
        27.640019,
        (-0.009602, 0.000028, 0.472641),
        (1.378080, 0.000062, -0.042670, 1.366754, 0.000069, 0.170331),
    ),
    (0.548088, (0.0, -0.000347, 0.023671), (0.000876, 0.0, 0.0, 0.000889, 0.000005, 0.000412)),
    (0.038484, (-0.000245, 0.0, -0.007626), (0.000011, 0.0, 0.0, 0.000011, 0.0, 0.000021)),
)
TIP = (0.0, 0.0, 0.0)  # the flange is the origin of the last link


def lock_times(p: Params) -> Float[Array, " locks"]:
    return p["locks"]


LOCKS = nsdyn.Scheduled(
    times=lock_times, stages=(None, nsdyn.lock(0), nsdyn.lock(0, 1), nsdyn.lock(0, 1, 2))
)


def robot(g: Number = 9.81) -> Chain:
    """The surrogate of the RX130L, with rotor inertias at the joints."""
    mass, com, inertia = zip(*BODIES, strict=True)
    return Chain(
        axis=AXES,
        place=PLACES,
        mass=mass,
        com=com,
        inertia=[symmetric(*entries) for entries in inertia],
        rotor=np.array(ROTORS) * RATIO**2,
        gravity=(0.0, 0.0, -g),
    )


def symmetric(xx: float, xy: float, xz: float, yy: float, yz: float, zz: float) -> np.ndarray:
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def rx130l(
    locks: Numbers = LOCK_TIMES,
    compensation: Number = 0.0,
    g: Number = 9.81,
    angles: Numbers = ANGLES,
    rates: Numbers = RATES,
    t_end: float = 0.2,
) -> nsdyn.Problem:
    """Joints 1, 2, 3 lock at the times `locks`; `compensation` is the fraction of the weight that
    the motors carry. `angles` and `rates` refer to the joints, q0 and v0 to the motors. params:
    chain, ratio, tip, compensation, locks."""
    params = parameters(robot(g), RATIO, TIP, compensation) | {"locks": np.asarray(locks, float)}
    q0 = RATIO * np.asarray(angles, float)
    v0 = RATIO * np.asarray(rates, float)
    return nsdyn.Problem(
        "rx130l",
        SYSTEM,
        LOCKS,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=coordinates(len(q0)),
        shape=shape,
    )
