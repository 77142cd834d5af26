"""Random trees, as plain arrays and as models of the library `pin`."""

import numpy as np

from references.random_chains import rotation, tensor

KINDS = ("hinge", "slide", "planar", "ball", "free")
NV = {"hinge": 1, "slide": 1, "planar": 3, "ball": 3, "free": 6}


def random_tree(kinds, seed):
    """One structure for each number of bodies, which then is compiled once, with any numbers."""
    n = len(kinds)
    nv = sum(NV[kind] for kind in kinds)
    rng = np.random.default_rng([n, seed])
    return {
        "parents": random_parents(n),
        "kinds": kinds,
        "axis": rng.normal(size=(n, 3)),
        "place": rng.normal(size=(n, 3)),
        "turn": np.array([rotation(rng) for _ in range(n)]),
        "mass": rng.uniform(0.3, 3.0, n),
        "com": 0.5 * rng.normal(size=(n, 3)),
        "inertia": np.array([tensor(rng) for _ in range(n)]),
        "rotor": rng.uniform(0.0, 0.5, nv) * (rng.random(nv) < 0.5),
        "gravity": 5 * rng.normal(size=3),
    }


def random_parents(n):
    """Each body hangs on the one before it or on one of its ancestors, as `pin` wants it."""
    rng = np.random.default_rng(n)
    parents, path = [], [-1]
    for i in range(n):
        path = path[: rng.integers(len(path) // 2 + 1, len(path) + 1)]
        parents.append(path[-1])
        path.append(i)
    return parents


def random_state(kinds, seed):
    """q, v and joint forces; quaternions have length 1."""
    rng = np.random.default_rng([len(kinds), seed, 1])
    q = []
    for kind in kinds:
        turn = rng.normal(size=4)
        own = {
            "ball": turn / np.linalg.norm(turn),
            "free": np.concatenate([rng.normal(size=3), turn / np.linalg.norm(turn)]),
        }
        q.append(own.get(kind, rng.normal(size=NV[kind])))
    nv = sum(NV[kind] for kind in kinds)
    return np.concatenate(q), *rng.normal(size=(2, nv))


class Pin:
    """The same tree in `pin`, whose velocities w = T v are in body axes."""

    def __init__(self, tree):
        import pinocchio as pin

        self.pin, self.model, self.tree = pin, pin.Model(), tree
        self.model.gravity.linear = tree["gravity"]
        known = []
        for i, kind in enumerate(tree["kinds"]):
            axis = tree["axis"][i] / np.linalg.norm(tree["axis"][i])
            joint = {
                "hinge": lambda axis=axis: pin.JointModelRevoluteUnaligned(axis),
                "slide": lambda axis=axis: pin.JointModelPrismaticUnaligned(axis),
                "planar": pin.JointModelPlanar,
                "ball": pin.JointModelSpherical,
                "free": pin.JointModelFreeFlyer,
            }[kind]()
            parent = tree["parents"][i]
            frame = pin.SE3(tree["turn"][i], tree["place"][i])
            on = 0 if parent < 0 else known[parent]
            known.append(self.model.addJoint(on, joint, frame, f"joint {i}"))
            body = pin.Inertia(tree["mass"][i], tree["com"][i], tree["inertia"][i])
            self.model.appendBodyToJoint(known[-1], body, pin.SE3.Identity())
        self.data = self.model.createData()

    def state(self, q, v):
        """q as `pin` has it, T, and T' v."""
        theirs, blocks, moving = [], [], []
        for kind in self.tree["kinds"]:
            k = {"planar": 3, "ball": 4, "free": 7}.get(kind, 1)
            own, q = q[:k], q[k:]
            rate, v = v[: NV[kind]], v[NV[kind] :]
            T, drift = np.eye(NV[kind]), np.zeros(NV[kind])
            if kind == "planar":
                c, s = np.cos(own[2]), np.sin(own[2])
                T[:2, :2] = [[c, s], [-s, c]]
                drift[:2] = -rate[2] * np.array([[0, -1], [1, 0]]) @ T[:2, :2] @ rate[:2]
                own = [*own[:2], c, s]
            if kind in ("ball", "free"):
                own = [*own[:-4], *own[-3:], own[-4]]
            if kind == "free":
                T[:3, :3] = self.pin.Quaternion(np.array(own[3:])).toRotationMatrix().T
                drift[:3] = -np.cross(rate[3:], T[:3, :3] @ rate[:3])
            theirs.append(own)
            blocks.append(T)
            moving.append(drift)
        n = sum(len(T) for T in blocks)
        T, start = np.zeros((n, n)), 0
        for block in blocks:
            end = start + len(block)
            T[start:end, start:end] = block
            start = end
        return np.concatenate(theirs), T, np.concatenate(moving)

    def evaluated(self, q, v, torque):
        """M, bias, accelerations and potential."""
        q, T, drift = self.state(q, v)
        M = np.triu(self.pin.crba(self.model, self.data, q))
        M = T.T @ (M + np.triu(M, 1).T) @ T + np.diag(self.tree["rotor"])
        bias = T.T @ self.pin.rnea(self.model, self.data, q, T @ v, drift)
        height = self.pin.computePotentialEnergy(self.model, self.data, q)
        return M, bias, np.linalg.solve(M, torque - bias), height
