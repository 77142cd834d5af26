"""Random chains, as plain arrays and as models of the library `pin`."""

import numpy as np

FIELDS = ("axis", "slides", "place", "turn", "mass", "com", "inertia", "rotor", "gravity")


def rotation(rng):
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return Q * np.sign(np.linalg.det(Q))


def tensor(rng):
    """An inertia tensor of a real body: no principal moment exceeds the sum of the others."""
    a, b, c = rng.uniform(0.05, 1.0, 3)
    Q = rotation(rng)
    return Q @ np.diag([b + c, a + c, a + b]) @ Q.T


def random_chain(n, seed):
    rng = np.random.default_rng([n, seed])
    axis = rng.normal(size=(n, 3))
    return {
        "axis": axis / np.linalg.norm(axis, axis=1, keepdims=True),
        "slides": (rng.random(n) < 0.3).astype(float),
        "place": rng.normal(size=(n, 3)),
        "turn": np.array([rotation(rng) for _ in range(n)]),
        "mass": rng.uniform(0.3, 3.0, n),
        "com": 0.5 * rng.normal(size=(n, 3)),
        "inertia": np.array([tensor(rng) for _ in range(n)]),
        "rotor": rng.uniform(0.0, 0.5, n) * (rng.random(n) < 0.5),
        "gravity": 5 * rng.normal(size=3),
    }


def random_state(n, seed):
    """q, v, joint forces, a point of the last link, a unit normal and a coefficient of
    restitution."""
    rng = np.random.default_rng([n, seed, 1])
    normal = rng.normal(size=3)
    return (
        *rng.normal(size=(3, n)),
        rng.normal(size=3),
        normal / np.linalg.norm(normal),
        rng.random(),
    )


class Pin:
    """The same chain in `pin`."""

    def __init__(self, chain, point):
        import pinocchio as pin

        self.pin, self.model, joint = pin, pin.Model(), 0
        self.model.gravity.linear = chain["gravity"]
        for i, axis in enumerate(chain["axis"]):
            kind = (
                pin.JointModelPrismaticUnaligned
                if chain["slides"][i]
                else pin.JointModelRevoluteUnaligned
            )
            frame = pin.SE3(chain["turn"][i], chain["place"][i])
            joint = self.model.addJoint(joint, kind(axis), frame, f"joint {i}")
            body = pin.Inertia(chain["mass"][i], chain["com"][i], chain["inertia"][i])
            self.model.appendBodyToJoint(joint, body, pin.SE3.Identity())
        self.model.armature = chain["rotor"]
        tip = pin.Frame("tip", joint, 0, pin.SE3(np.eye(3), point), pin.FrameType.OP_FRAME)
        self.tip = self.model.addFrame(tip)
        self.data = self.model.createData()

    def mass(self, q):
        M = self.pin.crba(self.model, self.data, q)
        return np.triu(M) + np.triu(M, 1).T

    def bias(self, q, v):
        return self.pin.rnea(self.model, self.data, q, v, np.zeros_like(q))

    def accelerations(self, q, v, torque):
        return self.pin.aba(self.model, self.data, q, v, torque)

    def potential(self, q):
        return self.pin.computePotentialEnergy(self.model, self.data, q)

    def row(self, q, normal):
        """normal . d tip / dq"""
        aligned = self.pin.LOCAL_WORLD_ALIGNED
        jacobian = self.pin.computeFrameJacobian(self.model, self.data, q, self.tip, aligned)
        return normal @ jacobian.reshape(6, -1)[:3]

    def position(self, q):
        self.pin.framesForwardKinematics(self.model, self.data, q)
        return self.data.oMf[self.tip].translation.copy()

    def impact(self, q, v, row, e):
        """Rates after, and the impulse on the chain along `row`."""
        after = self.pin.impulseDynamics(self.model, self.data, q, v, row[None], e, 0.0)
        return np.array(after), float(self.data.impulse_c[0])
