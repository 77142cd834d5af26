/* Planar 3R pendulum with locking joints: hand-written yardstick for the time of one RK4 step, of one trajectory at a
 * time or of LANES side by side, the entries of a vector.
 *
 *     M(q) v' + G^T lam = f(q, v),   G v' = 0,   jump: M (v+ - v-) + G^T Lam = 0,  G v+ = 0
 *
 * q relative joint angles, q1 from the horizontal, gravity along -y. The rows of G lock joints 2 and 3; a row that is
 * not active yet is masked (its Schur row becomes the identity), so every step costs the same in every mode.
 *
 *     cc -std=gnu99 -O3 three_r_pendulum.c -lm -o scalar
 *     cc -std=gnu99 -O3 -march=native -DLANES=8 three_r_pendulum.c -lm -o vector
 *     ./scalar nsteps ntraj repeats
 *
 * What differs is the type of a number, `real`, and sine and cosine: the C library has them for scalars only.
 */
#define _POSIX_C_SOURCE 200112L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef LANES
#define LANES 1
typedef double real;
static inline real splat(double x) { return x; }
static inline double lane(real x, int i) { (void)i; return x; }
static inline real with_lane(real x, int i, double value) { (void)x; (void)i; return value; }
static inline void sin_cos(real x, real *s, real *c) { *s = sin(x); *c = cos(x); }
#else
typedef double real __attribute__((vector_size(8 * LANES)));
typedef long long bits __attribute__((vector_size(8 * LANES)));
static inline real splat(double x) { return x - (real){0}; }
static inline double lane(real x, int i) { return x[i]; }
static inline real with_lane(real x, int i, double value) { x[i] = value; return x; }

/* x = k pi/2 + r, |r| <= pi/4, with pi/2 in two parts, the first so short that its product with k is exact; then
 * Taylor's series of sin r and cos r, whose first omitted terms are below 1e-16. For |x| up to about 1e5. */
static inline void sin_cos(real x, real *s, real *c)
{
    const double to_integer = 0x1.8p52;  /* adding it rounds to an integer, which then stands in the lowest bits */
    const real shifted = x * (2.0 / 3.14159265358979323846) + to_integer;
    const real k = shifted - to_integer;
    const real r = (x - k * 0x1.921fb544p+0) - k * 0x1.0b4611a626331p-34, z = r * r;
    real sine = splat(-1.0 / 1307674368000.0), cosine = splat(1.0 / 20922789888000.0);  /* 15!, 16! */
    const double odd[] = {1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0};
    const double even[] = {-1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0,
                           1.0 / 24.0};
    for (int i = 0; i < 6; i++) { sine = odd[i] + z * sine; cosine = even[i] + z * cosine; }
    sine = r + r * z * sine;
    cosine = 1.0 - 0.5 * z + z * z * cosine;
    bits n, a, b;
    memcpy(&n, &shifted, sizeof n);
    memcpy(&a, &sine, sizeof a);
    memcpy(&b, &cosine, sizeof b);
    const bits swap = -(n & 1), s_bits = ((a & ~swap) | (b & swap)) ^ ((n & 2) << 62);
    const bits c_bits = ((b & ~swap) | (a & swap)) ^ (((n + 1) & 2) << 62);
    memcpy(s, &s_bits, sizeof *s);
    memcpy(c, &c_bits, sizeof *c);
}
#endif

static const double m = 108.0, L = 1.0, I = 9.36, g = 9.81, t_end = 2.0;

typedef struct { real q[3], v[3]; } State;
typedef struct { real l21, l31, l32, d1, d2, d3; } Ldl;  /* d: reciprocal pivots */

static inline Ldl ldl(real m11, real m21, real m31, real m22, real m32, real m33)
{
    Ldl a;
    a.d1 = 1.0 / m11;
    a.l21 = m21 * a.d1;
    a.l31 = m31 * a.d1;
    a.d2 = 1.0 / (m22 - a.l21 * m21);
    const real u = m32 - a.l31 * m21;
    a.l32 = u * a.d2;
    a.d3 = 1.0 / (m33 - a.l31 * m31 - a.l32 * u);
    return a;
}

static inline void ldl_solve(const Ldl *a, const real b[3], real x[3])
{
    const real y2 = b[1] - a->l21 * b[0];
    const real y3 = b[2] - a->l31 * b[0] - a->l32 * y2;
    x[2] = y3 * a->d3;
    x[1] = y2 * a->d2 - a->l32 * x[2];
    x[0] = b[0] * a->d1 - a->l21 * x[1] - a->l31 * x[2];
}

static inline Ldl mass(real c2, real c3, real c23)
{
    const double k = m * L * L;
    const real a12 = 1.5 * k * c2, a13 = 0.5 * k * c23, a23 = 0.5 * k * c3;
    const real m33 = splat(0.25 * k + I), m32 = m33 + a23, m22 = 1.5 * k + 2.0 * I + 2.0 * a23;
    const real m31 = m32 + a13, m21 = m22 + a12 + a13;
    const real m11 = 3.75 * k + 3.0 * I + 2.0 * (a12 + a13 + a23);
    return ldl(m11, m21, m31, m22, m32, m33);
}

/* x - M^{-1} G^T S^{-1} G x, S = G M^{-1} G^T: the constrained acceleration (x = M^{-1} f) and the jump (x = v). */
static inline void project(const Ldl *a, const double on[2], real x[3])
{
    const real none = splat(0.0), row2[3] = {none, splat(on[0]), none}, row3[3] = {none, none, splat(on[1])};
    real w2[3], w3[3];
    ldl_solve(a, row2, w2);
    ldl_solve(a, row3, w3);
    const real s11 = on[0] * w2[1] + (1.0 - on[0]), s21 = on[1] * w2[2], s22 = on[1] * w3[2] + (1.0 - on[1]);
    const real b1 = on[0] * x[1], b2 = on[1] * x[2];
    const real e1 = 1.0 / s11, l = s21 * e1, e2 = 1.0 / (s22 - l * s21);
    const real lam2 = (b2 - l * b1) * e2, lam1 = b1 * e1 - l * lam2;
    for (int i = 0; i < 3; i++)
        x[i] -= w2[i] * lam1 + w3[i] * lam2;
}

static inline void acceleration(const real q[3], const real v[3], const double on[2], real a[3])
{
    real s1, c1, s2, c2, s3, c3;
    sin_cos(q[0], &s1, &c1);
    sin_cos(q[1], &s2, &c2);
    sin_cos(q[2], &s3, &c3);
    const real s23 = s2 * c3 + c2 * s3, c23 = c2 * c3 - s2 * s3;  /* addition theorems: three sincos, not six */
    const real c12 = c1 * c2 - s1 * s2, c123 = c1 * c23 - s1 * s23;
    const double k = m * L * L, G = m * g * L;
    const real p2 = 1.5 * k * s2, p3 = 0.5 * k * s3, p23 = 0.5 * k * s23;
    const real w2 = v[0] + v[1], w3 = w2 + v[2];
    const real ww1 = v[0] * v[0], ww2 = w2 * w2, ww3 = w3 * w3;
    real f[3];
    f[2] = -(p23 * ww1 + p3 * ww2) - 0.5 * G * c123;
    f[1] = f[2] + p3 * ww3 - p2 * ww1 - 1.5 * G * c12;
    f[0] = f[1] + p2 * ww2 + p23 * ww3 - 2.5 * G * c1;
    const Ldl M = mass(c2, c3, c23);
    ldl_solve(&M, f, a);
    project(&M, on, a);
}

static inline void rk4(State *s, const double on[2], double h)
{
    real a1[3], a2[3], a3[3], a4[3], q[3], v2[3], v3[3], v4[3];
    acceleration(s->q, s->v, on, a1);
    for (int i = 0; i < 3; i++) { q[i] = s->q[i] + 0.5 * h * s->v[i]; v2[i] = s->v[i] + 0.5 * h * a1[i]; }
    acceleration(q, v2, on, a2);
    for (int i = 0; i < 3; i++) { q[i] = s->q[i] + 0.5 * h * v2[i]; v3[i] = s->v[i] + 0.5 * h * a2[i]; }
    acceleration(q, v3, on, a3);
    for (int i = 0; i < 3; i++) { q[i] = s->q[i] + h * v3[i]; v4[i] = s->v[i] + h * a3[i]; }
    acceleration(q, v4, on, a4);
    for (int i = 0; i < 3; i++) {
        s->q[i] += h / 6.0 * (s->v[i] + 2.0 * (v2[i] + v3[i]) + v4[i]);
        s->v[i] += h / 6.0 * (a1[i] + 2.0 * (a2[i] + a3[i]) + a4[i]);
    }
}

static State simulate(real q1, long nsteps)
{
    const double sixth = acos(-1.0) / 6.0, h = t_end / (double)nsteps;
    const long lock[2] = {nsteps / 5 * 2, nsteps / 20 * 13};  /* 0.8 s and 1.3 s, exact as 20 divides nsteps */
    double on[2] = {0.0, 0.0};
    State s = {{q1, splat(sixth), splat(sixth)}, {splat(0.0), splat(0.0), splat(0.0)}};
    for (long n = 0; n < nsteps; n++) {
        if (n == lock[0] || n == lock[1]) {
            on[n == lock[1]] = 1.0;
            real sine, c2, c3, c23;
            sin_cos(s.q[1], &sine, &c2);
            sin_cos(s.q[2], &sine, &c3);
            sin_cos(s.q[1] + s.q[2], &sine, &c23);
            const Ldl M = mass(c2, c3, c23);
            project(&M, on, s.v);
        }
        rk4(&s, on, h);
    }
    return s;
}

/* The starts of the trajectories first ... first + LANES - 1 of ntraj; the last group is filled up. */
static real start(long first, long ntraj)
{
    real q1 = splat(0.0);
    for (int i = 0; i < LANES; i++)
        q1 = with_lane(q1, i, acos(-1.0) / 6.0 + 1e-3 * (double)(first + i) / (double)ntraj);
    return q1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    const long nsteps = argc == 4 ? atol(argv[1]) : 0, ntraj = argc == 4 ? atol(argv[2]) : 0;
    const long repeats = argc == 4 ? atol(argv[3]) : 0;
    if (nsteps <= 0 || nsteps % 20 || ntraj <= 0 || repeats <= 0) {
        fprintf(stderr, "usage: %s nsteps ntraj repeats (20 must divide nsteps: lock times on the grid)\n", argv[0]);
        return 1;
    }
    const long groups = (ntraj + LANES - 1) / LANES;
    void *memory = NULL;  /* end states are kept, so that no trajectory can be optimised away */
    if (posix_memalign(&memory, 64, (size_t)groups * sizeof(State)))
        return 1;
    State *end = memory;
    double best = INFINITY, sum = 0.0;
    for (long r = 0; r < repeats; r++) {
        const double t0 = now();
        for (long i = 0; i < groups; i++)
            end[i] = simulate(start(i * LANES, ntraj), nsteps);
        best = fmin(best, now() - t0);
    }
    for (long i = 0; i < ntraj; i++)
        sum += lane(end[i / LANES].q[0], (int)(i % LANES));
    double q[3], v[3];
    for (int i = 0; i < 3; i++) { q[i] = lane(end[0].q[i], 0); v[i] = lane(end[0].v[i], 0); }
    printf("{\"nsteps\": %ld, \"ntraj\": %ld, \"repeats\": %ld, \"seconds\": %.9g, \"ns_per_step\": %.6g, "
           "\"q\": [%.17g, %.17g, %.17g], \"v\": [%.17g, %.17g, %.17g], \"mean_q1\": %.17g}\n",
           nsteps, ntraj, repeats, best, best * 1e9 / ((double)nsteps * (double)ntraj), q[0], q[1], q[2], v[0], v[1],
           v[2], sum / (double)ntraj);
    free(end);
    return 0;
}
