"""The C++ text in front of every program: lane types, arithmetic that needs more than an operator,
and loops over memory.

Every function exists for a scalar (a number that all lanes share) and, with more than one lane, for
a vector. Masks of lanes are integers, all bits set or none.

Sine and cosine: Cody-Waite reduction by pi/2 in three parts, which leaves less than an ulp up to
1e5, and fdlibm's polynomials on [-pi/4, pi/4], in pairs of terms, since a run waits for them;
larger arguments go to the C library. A single run, which has no lanes, packs the angles that it
needs at the same time into vectors of PACK.

Eigenvalues: Jacobi's rotations, pair by pair of axes, until what is left beside the diagonal is
below round-off. A lane turns only where it must, so that its numbers do not depend on the others.
"""

PACK = 4  # angles of a single run whose sines and cosines are computed side by side

LEVELS = r"""
#ifdef __OPTIMIZE__
#define F static inline __attribute__((always_inline))
#define COLD __attribute__((noinline, cold, optimize("@LEVEL@")))
#define LOOPS __attribute__((optimize("O3")))
#else
#define F static inline
#define COLD
#define LOOPS
#endif
"""

# Vectors of all lanes are wider than registers. These passes take half of the compiler's time with
# them, and gain nothing: constants are known, and values are named once, when the text is written.
LANES_AT_ONCE = r"""
#ifdef __OPTIMIZE__
#pragma GCC optimize ("no-tree-ccp,no-tree-forwprop,no-tree-fre")
#endif
"""

COMMON = r"""
typedef long i8;
extern "C" {
double sin(double); double cos(double); double tan(double); double asin(double);
double acos(double); double atan(double); double sinh(double); double cosh(double);
double tanh(double); double asinh(double); double acosh(double); double atanh(double);
double exp(double); double exp2(double); double expm1(double); double log(double);
double log1p(double); double cbrt(double); double erf(double); double erfc(double);
double atan2(double, double); double pow(double, double); double fmod(double, double);
double nextafter(double, double);
}
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
F double mad(double x, double y, double z) { return __builtin_fma(x, y, z); }
#else
F double mad(double x, double y, double z) { return x * y + z; }
#endif
F bool any(bool x) { return x; }
F bool all(bool x) { return x; }
F double choose(bool p, double a, double b) { return p ? a : b; }
F i8 choose(bool p, i8 a, i8 b) { return p ? a : b; }
F bool choose(bool p, bool a, bool b) { return p ? a : b; }
F double max_(double a, double b) { return (a > b || a != a) ? a : b; }
F double min_(double a, double b) { return (a < b || a != a) ? a : b; }
F i8 max_(i8 a, i8 b) { return a > b ? a : b; }
F i8 min_(i8 a, i8 b) { return a < b ? a : b; }
F double abs_(double x) { return __builtin_fabs(x); }
F i8 abs_(i8 x) { return x < 0 ? -x : x; }
F double sqrt_(double x) { return __builtin_sqrt(x); }
F double floor_(double x) { return __builtin_floor(x); }
F double ceil_(double x) { return __builtin_ceil(x); }
F double round_(double x) { return __builtin_round(x); }
F double even_(double x) { return __builtin_rint(x); }
F double sign_(double x) { return x != x ? x : (double)((x > 0) - (x < 0)); }
F i8 sign_(i8 x) { return (x > 0) - (x < 0); }
F bool finite_(double x) { return x - x == 0; }
F i8 div_(i8 a, i8 b) { return b == 0 ? -1 : b == -1 ? (i8)(0 - (unsigned long)a) : a / b; }
F i8 rem_(i8 a, i8 b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
F double rem_(double a, double b) { return fmod(a, b); }
F i8 shl_(i8 a, i8 b) { return (unsigned long)b < 64 ? (i8)((unsigned long)a << b) : 0; }
F i8 shr_(i8 a, i8 b) { return (unsigned long)b < 64 ? (i8)((unsigned long)a >> b) : 0; }
F i8 sar_(i8 a, i8 b) { return a >> ((unsigned long)b < 64 ? b : 63); }
F i8 bits_(double x) { i8 y; __builtin_memcpy(&y, &x, 8); return y; }
F double of_bits_(i8 x) { double y; __builtin_memcpy(&y, &x, 8); return y; }
F i8 to_int(double x)
{
    if (x != x) return 0;
    return x >= 0x1p63 ? 0x7fffffffffffffffL : x < -0x1p63 ? -0x7fffffffffffffffL - 1 : (i8)x;
}
F i8 short_(i8 x) { return (int)x; }
F i8 word_(i8 x) { return x & 0xffffffffL; }
F i8 to_short(double x)
{
    return x != x ? 0 : x >= 0x1p31 ? 0x7fffffffL : x < -0x1p31 ? -0x80000000L : (i8)x;
}
F double to_float(i8 x) { return (double)x; }
F double square_(double x) { return x * x; }
static const double huge_angle = 1e5;
"""

TRIG = r"""
F void trig(@T@ x, @T@ &s, @T@ &c)
{
    const double magic = 6755399441055744.0;
    @T@ k = mad(x, 0.63661977236758134308, magic);
    @I@ n; __builtin_memcpy(&n, &k, sizeof n);
    k = k - magic;
    const @T@ r = mad(k, -2.02226624879595063154e-21, mad(k, -6.07710050630396597660e-11,
        mad(k, -1.57079632673412561417e+00, x)));
    const @T@ z = r * r, zz = z * z, z4 = zz * zz;
    const @T@ ps = mad(r * z, mad(z, 8.33333333332248946124e-03, -1.66666666666666324348e-01)
        + mad(zz, mad(z, 2.75573137070700676789e-06, -1.98412698298579493134e-04),
        z4 * mad(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08)), r);
    const @T@ h = 0.5 * z, w = 1.0 - h;
    const @T@ pc = w + mad(zz, mad(z, -1.38888888888741095749e-03, 4.16666666666666019037e-02)
        + mad(zz, mad(z, -2.75573143513906633035e-07, 2.48015872894767294178e-05),
        z4 * mad(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09)), (1.0 - w) - h);
    @I@ a, b; __builtin_memcpy(&a, &ps, sizeof a); __builtin_memcpy(&b, &pc, sizeof b);
    const @I@ odd = -(n & 1);
    @I@ ss = (a & ~odd) | (b & odd), cc = (b & ~odd) | (a & odd);
    ss ^= (n & 2) << 62; cc ^= ((n + 1) & 2) << 62;
    __builtin_memcpy(&s, &ss, sizeof s); __builtin_memcpy(&c, &cc, sizeof c);
    if (__builtin_expect(any(!(abs_(x) <= huge_angle)), 0)) far_trig(x, s, c);
}
"""

SCALAR = r"""
static __attribute__((noinline, cold)) void far_trig(double x, double &s, double &c)
{
    s = sin(x); c = cos(x);
}
"""

VECTOR_TRIG = r"""
typedef double vd __attribute__((vector_size(8 * L)));
typedef long vl __attribute__((vector_size(8 * L)));
#if defined(__FMA__) && !defined(__clang__) && L % 4 == 0
#if defined(__AVX512F__) && L % 8 == 0
typedef double part __attribute__((vector_size(64)));
#define MAD(x, y, z) __builtin_ia32_vfmaddpd512_mask(x, y, z, -1, 4)
#else
typedef double part __attribute__((vector_size(32)));
#define MAD(x, y, z) __builtin_ia32_vfmaddpd256(x, y, z)
#endif
F vd mad(vd x, vd y, vd z)
{   /* register by register */
    const int n = sizeof(vd) / sizeof(part);
    part a[n], b[n], c[n];
    __builtin_memcpy(a, &x, sizeof x); __builtin_memcpy(b, &y, sizeof y);
    __builtin_memcpy(c, &z, sizeof z);
    for (int k = 0; k < n; k++) c[k] = MAD(a[k], b[k], c[k]);
    __builtin_memcpy(&z, c, sizeof z);
    return z;
}
#else
F vd mad(vd x, vd y, vd z)
{
    for (int l = 0; l < L; l++) z[l] = mad(x[l], y[l], z[l]);
    return z;
}
#endif
F vd mad(vd x, double y, double z) { return mad(x, y - (vd){}, z - (vd){}); }
F vd mad(vd x, double y, vd z) { return mad(x, y - (vd){}, z); }
F vd mad(vd x, vd y, double z) { return mad(x, y, z - (vd){}); }
F bool any(vl x) { i8 y = 0; for (int l = 0; l < L; l++) y |= x[l]; return y != 0; }
F vd abs_(vd x) { return (vd)((vl)x & 0x7fffffffffffffffL); }
static __attribute__((noinline, cold)) void far_trig(vd x, vd &s, vd &c)
{
    for (int l = 0; l < L; l++) if (!(__builtin_fabs(x[l]) <= huge_angle)) {
        s[l] = sin(x[l]); c[l] = cos(x[l]);
    }
}
"""

VECTOR = r"""
F vd S(double x) { return x - (vd){}; }
F vl S(i8 x) { return x - (vl){}; }
F vl S(bool x) { return -(i8)x - (vl){}; }
F vd S(vd x) { return x; }
F vl S(vl x) { return x; }
F bool all(vl x) { i8 y = -1; for (int l = 0; l < L; l++) y &= x[l]; return y != 0; }
F vd choose(vl p, vd a, vd b) { return p ? a : b; }
F vl choose(vl p, vl a, vl b) { return p ? a : b; }
F vd max_(vd a, vd b) { return ((a > b) | (a != a)) ? a : b; }
F vd min_(vd a, vd b) { return ((a < b) | (a != a)) ? a : b; }
F vl max_(vl a, vl b) { return a > b ? a : b; }
F vl min_(vl a, vl b) { return a < b ? a : b; }
F vl abs_(vl x) { return x < 0 ? -x : x; }
F vd sign_(vd x)
{
    const vd one = S(1.0), zero = S(0.0);
    return x != x ? x : (x > 0 ? one : (x < 0 ? -one : zero));
}
F vl sign_(vl x) { return (x < 0) - (x > 0); }
F vl finite_(vd x) { return x - x == 0; }
F vl to_int(vd x) { vl y; for (int l = 0; l < L; l++) y[l] = to_int(x[l]); return y; }
F vl to_short(vd x) { vl y; for (int l = 0; l < L; l++) y[l] = to_short(x[l]); return y; }
F vl short_(vl x) { return x << 32 >> 32; }
F vl word_(vl x) { return x & 0xffffffffL; }
F vd to_float(vl x) { return __builtin_convertvector(x, vd); }
F vd square_(vd x) { return x * x; }
#define EACH1(f) F vd f(vd x) { vd y; for (int l = 0; l < L; l++) y[l] = f(x[l]); return y; }
#define EACH2(T, f) \
    F T f(T a, T b) { T y; for (int l = 0; l < L; l++) y[l] = f(a[l], b[l]); return y; }
EACH1(sqrt_) EACH1(floor_) EACH1(ceil_) EACH1(round_) EACH1(even_) EACH1(tan) EACH1(asin)
EACH1(acos) EACH1(atan) EACH1(sinh) EACH1(cosh) EACH1(tanh) EACH1(asinh) EACH1(acosh) EACH1(atanh)
EACH1(exp) EACH1(exp2) EACH1(expm1) EACH1(log) EACH1(log1p) EACH1(cbrt) EACH1(erf) EACH1(erfc)
EACH2(vd, atan2) EACH2(vd, pow) EACH2(vd, rem_) EACH2(vl, rem_) EACH2(vl, div_)
EACH2(vd, nextafter) EACH2(vl, shl_) EACH2(vl, shr_) EACH2(vl, sar_)
F vl bits_(vd x) { return (vl)x; }
F vd of_bits_(vl x) { return (vd)x; }
/* Lane by lane without a loop, in which numbers would go through memory. */
#define VALUES(T, f) (T){LANES(f, COMMA)}
#define COMMA ,
#define THEN ;
#define OWN(l) own[L * k[l] + l]
#define SHARED(l) p[k[l]]
#define FLAG(l) -(i8)p[k[l]]
#define PUT(l) if (m[l]) p[k[l]][l] = x[l]
F vd gather_(const vd *p, vl k) { const double *own = (const double *)p; return VALUES(vd, OWN); }
F vl gather_(const vl *p, vl k) { const i8 *own = (const i8 *)p; return VALUES(vl, OWN); }
F vd gather_(const double *p, vl k) { return VALUES(vd, SHARED); }
F vl gather_(const i8 *p, vl k) { return VALUES(vl, SHARED); }
F vl gather_(const bool *p, vl k) { return VALUES(vl, FLAG); }
template <class T> F void scatter_(T *p, vl k, T x, vl m) { LANES(PUT, THEN); }
"""

MEMORY = r"""
template <class T> F void copy_(T *to, const T *from, i8 n)
{
    if (to != from) __builtin_memcpy(to, from, n * sizeof(T));
}
template <class T, class U> F void copy_(T *to, const U *from, i8 n)
{
    for (i8 k = 0; k < n; k++) to[k] = S(from[k]);
}
template <class T, class U, class M> F void copy_(T *to, const U *from, i8 n, M mask)
{
    for (i8 k = 0; k < n; k++) to[k] = choose(mask, S(from[k]), to[k]);
}
template <class T, int m, int k, class A, class B>
F void column_(const A *a, const B *b, T *__restrict c)
{   /* a matrix times a vector: four rows at a time, which do not wait for each other */
    int i = 0;
    for (; i + 4 <= m; i += 4) {
        const A *const p = a + i * k, *const q = p + k, *const r = q + k, *const s = r + k;
        T w = p[0] * b[0], x = q[0] * b[0];
        T y = r[0] * b[0], z = s[0] * b[0];
        for (int l = 1; l < k; l++) {
            w += p[l] * b[l]; x += q[l] * b[l]; y += r[l] * b[l]; z += s[l] * b[l];
        }
        c[i] = w; c[i + 1] = x; c[i + 2] = y; c[i + 3] = z;
    }
    for (; i < m; i++) {
        T w = a[i * k] * b[0];
        for (int l = 1; l < k; l++) w += a[i * k + l] * b[l];
        c[i] = w;
    }
}
template <class T, int m, int n, int k, class A, class B>
static __attribute__((noinline)) LOOPS void dot_(
    const A *a, const B *b, T *__restrict c, i8 groups)
{   /* c = a b^T, row by row; entries are sums in the order of k */
    for (i8 g = 0; g < groups; g++, a += m * k, b += n * k, c += m * n) {
        if (n == 1) { column_<T, m, k>(a, b, c); continue; }
        T bt[k * n];
        for (int j = 0; j < n; j++) for (int l = 0; l < k; l++) bt[l * n + j] = T{} + b[j * k + l];
        for (int i = 0; i < m; i++) {
            T row[n];
            for (int j = 0; j < n; j++) row[j] = a[i * k] * bt[j];
            for (int l = 1; l < k; l++)
                for (int j = 0; j < n; j++) row[j] += a[i * k + l] * bt[l * n + j];
            for (int j = 0; j < n; j++) c[i * n + j] = row[j];
        }
    }
}
template <class T, int m, int n, int k, class A, class B>
static __attribute__((noinline)) LOOPS void matmul_(
    const A *a, const B *b, T *__restrict c, i8 groups)
{   /* c = a b, row by row; entries are sums in the order of k */
    for (i8 g = 0; g < groups; g++, a += m * k, b += n * k, c += m * n)
        for (int i = 0; i < m; i++) {
            T row[n];
            for (int j = 0; j < n; j++) row[j] = a[i * k] * b[j];
            for (int l = 1; l < k; l++)
                for (int j = 0; j < n; j++) row[j] += a[i * k + l] * b[l * n + j];
            for (int j = 0; j < n; j++) c[i * n + j] = row[j];
        }
}
template <class T> static __attribute__((noinline)) void cholesky_(T *a, const T *from, i8 n)
{
    auto good = T{} == T{};
    for (i8 j = 0; j < n; j++) {
        for (i8 i = 0; i < j; i++) a[i * n + j] = T{};
        T d = from[j * n + j];
        for (i8 k = 0; k < j; k++) d -= a[j * n + k] * a[j * n + k];
        good = good & (d > 0);
        d = sqrt_(d);
        a[j * n + j] = d;
        for (i8 i = j + 1; i < n; i++) {
            T x = from[i * n + j];
            for (i8 k = 0; k < j; k++) x -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = x / d;
        }
    }
    const T nan = T{} + __builtin_nan("");
    for (i8 i = 0; i < n; i++)
        for (i8 j = 0; j <= i; j++) a[i * n + j] = choose(good, a[i * n + j], nan);
}
template <class T>
static __attribute__((noinline)) void triangular_(
    const T *a, T *x, i8 n, i8 columns, bool lower, bool transposed, bool unit, i8 row, i8 column)
{   /* x is overwritten; its entry (i, j) lies at i * row + j * column */
    const bool forward = lower != transposed;
    for (i8 s = 0; s < n; s++) {
        const i8 i = forward ? s : n - 1 - s;
        const i8 from = forward ? 0 : i + 1, to = forward ? i : n;
        const T d = a[i * n + i];
        for (i8 j = 0; j < columns; j++) {
            T y = x[i * row + j * column];
            for (i8 k = from; k < to; k++)
                y -= (transposed ? a[k * n + i] : a[i * n + k]) * x[k * row + j * column];
            x[i * row + j * column] = unit ? y : y / d;
        }
    }
}
template <class T, class K>
static __attribute__((noinline)) void lu_(T *a, K *pivots, K *permutation, i8 n)
{
    for (i8 i = 0; i < n; i++) permutation[i] = K{} + i;
    for (i8 j = 0; j < n; j++) {
        T best = abs_(a[j * n + j]);
        K where = K{} + j;
        for (i8 i = j + 1; i < n; i++) {
            const T x = abs_(a[i * n + j]);
            const auto more = x > best;
            best = choose(more, x, best);
            where = choose(more, K{} + i, where);
        }
        pivots[j] = where;
        for (i8 i = j + 1; i < n; i++) {
            const auto swap = where == i;
            if (!any(swap)) continue;
            for (i8 k = 0; k < n; k++) {
                const T x = a[i * n + k], y = a[j * n + k];
                a[i * n + k] = choose(swap, y, x); a[j * n + k] = choose(swap, x, y);
            }
            const K x = permutation[i], y = permutation[j];
            permutation[i] = choose(swap, y, x); permutation[j] = choose(swap, x, y);
        }
        for (i8 i = j + 1; i < n; i++) {
            const T f = a[i * n + j] / a[j * n + j];
            a[i * n + j] = f;
            for (i8 k = j + 1; k < n; k++) a[i * n + k] -= f * a[j * n + k];
        }
    }
}
template <class T, int n>
static __attribute__((noinline)) LOOPS void solve_(const T *from, const T *b, T *x, T *a)
{   /* x = from^-1 b. Rows with nothing beside the diagonal are solved first; the others are
       gathered in a with their right-hand sides, and eliminated with partial pivoting. */
    typedef decltype(to_int(T{})) K;
    i8 full[n], alone[n], m = 0, o = 0;
    for (i8 i = 0; i < n; i++) {
        auto some = T{} != T{};
        for (i8 k = 0; k < i; k++) some = some | (from[i * n + k] != 0);
        for (i8 k = i + 1; k < n; k++) some = some | (from[i * n + k] != 0);
        if (any(some)) full[m++] = i;
        else { alone[o++] = i; x[i] = b[i] / from[i * n + i]; }
    }
    const i8 w = m + 1;
    for (i8 r = 0; r < m; r++) {
        const T *const row = from + full[r] * n;
        T y = b[full[r]];
        for (i8 s = 0; s < o; s++) y -= row[alone[s]] * x[alone[s]];
        for (i8 c = 0; c < m; c++) a[r * w + c] = row[full[c]];
        a[r * w + m] = y;
    }
    for (i8 j = 0; j < m; j++) {
        T *const top = a + j * w;
        T best = abs_(top[j]);
        K where = K{} + j;
        for (i8 i = j + 1; i < m; i++) {
            const T y = abs_(a[i * w + j]);
            const auto more = y > best;
            best = choose(more, y, best);
            where = choose(more, K{} + i, where);
        }
        for (i8 i = j + 1; i < m; i++) {
            const auto swap = where == i;
            if (!any(swap)) continue;
            for (i8 k = j; k < w; k++) {
                const T y = a[i * w + k], z = top[k];
                a[i * w + k] = choose(swap, z, y); top[k] = choose(swap, y, z);
            }
        }
        const T inverse = 1.0 / top[j];
        for (i8 i = j + 1; i < m; i++) {
            T *const row = a + i * w;
            const T f = row[j] * inverse;
            if (!any(f != 0)) continue;
            for (i8 k = j + 1; k < w; k++) row[k] -= f * top[k];
        }
    }
    for (i8 j = m - 1; j >= 0; j--) {
        const T y = a[j * w + m] / a[j * w + j];
        x[full[j]] = y;
        for (i8 i = 0; i < j; i++) a[i * w + m] -= a[i * w + j] * y;
    }
}
template <class T> F void rotate_(T *x, T *y, T c, T s)
{
    const T a = *x, b = *y;
    *x = c * a - s * b; *y = s * a + c * b;
}
template <class T> static __attribute__((noinline)) bool jacobi_(T *a, T *v, i8 n, T small)
{   /* one turn for each pair of axes; whether there was one */
    bool turned = false;
    for (i8 p = 0; p < n; p++) for (i8 q = p + 1; q < n; q++) {
        const T x = a[p * n + q];
        const auto wanted = abs_(x) > small;
        if (!any(wanted)) continue;
        turned = true;
        const T r = (a[q * n + q] - a[p * n + p]) / (x + x), one = T{} + 1.0;
        T t = choose(r < 0, -one, one) / (abs_(r) + sqrt_(r * r + 1.0));
        t = choose(wanted, t, T{});
        const T c = one / sqrt_(t * t + 1.0), s = t * c;
        for (i8 k = 0; k < n; k++) {
            rotate_(v + k * n + p, v + k * n + q, c, s);
            if (k == p || k == q) continue;
            rotate_(a + k * n + p, a + k * n + q, c, s);
            a[p * n + k] = a[k * n + p]; a[q * n + k] = a[k * n + q];
        }
        a[p * n + p] -= t * x; a[q * n + q] += t * x;
        a[p * n + q] = a[q * n + p] = choose(wanted, T{}, x);
    }
    return turned;
}
template <class T> static __attribute__((noinline)) void eigh_(T *a, T *v, T *w, i8 n, bool lower)
{   /* a is overwritten; eigenvalues ascend, eigenvectors are the columns of v */
    T size = T{};
    for (i8 i = 0; i < n; i++) for (i8 j = 0; j <= i; j++) {
        const T x = lower ? a[i * n + j] : a[j * n + i];
        a[i * n + j] = a[j * n + i] = x;
        v[i * n + j] = v[j * n + i] = T{} + (double)(i == j);
        size = max_(size, abs_(x));
    }
    for (int sweep = 0; sweep < 50 && jacobi_(a, v, n, (T)(1e-17 * size)); sweep++) {}
    const auto good = finite_(size);
    const T nan = T{} + __builtin_nan("");
    for (i8 i = 0; i < n; i++) w[i] = choose(good, a[i * n + i], nan);
    for (i8 k = 0; k < n * n; k++) v[k] = choose(good, v[k], nan);
    for (i8 last = 1; last < n; last++) for (i8 j = last; j > 0; j--) {
        const auto swap = w[j - 1] > w[j];
        for (i8 k = -1; k < n; k++) {
            T *const x = k < 0 ? w + j - 1 : v + k * n + j - 1;
            const T low = choose(swap, x[1], x[0]);
            x[1] = choose(swap, x[0], x[1]); x[0] = low;
        }
    }
}
"""


def prelude(lanes: int, rare: bool = False) -> str:
    """The text for so many lanes. If events are `rare` in the steps of a run, it is over sooner if
    the compiler leaves the code for them as it is. All that is said about levels holds where the
    compiler optimises at all."""
    level = "O0" if rare else "O1"
    scalar = TRIG.replace("@T@", "double").replace("@I@", "i8")
    vector = VECTOR_TRIG + TRIG.replace("@T@", "vd").replace("@I@", "vl")
    width = lanes if lanes > 1 else PACK
    each = " between ".join(f"f({k})" for k in range(width))
    text = (
        f"#define L {width}\n"
        f"#define LANES(f, between) {each}\n"
        + (LANES_AT_ONCE if lanes > 1 else "")
        + LEVELS.replace("@LEVEL@", level)
        + COMMON
        + SCALAR
        + scalar
        + vector
    )
    if lanes > 1:
        return text + VECTOR + MEMORY
    same = "".join(f"F {t} S({t} x) {{ return x; }}\n" for t in ("double", "i8", "bool"))
    return text + same + MEMORY
