// Fused fp32 kernels for train.py. On a CPU this small a model is bound by memory traffic and by
// the number of operator launches, not by multiplications: each function here replaces five to
// fifty tensor operations that would otherwise stream the same few megabytes in and out.
// model.py holds the same maths in plain torch, uses it when no C compiler is found, and
// `python model.py --check` compares the two.
//
// Every sum over rows is split into PARTS fixed ranges that the caller adds up, so results do not
// depend on the number of threads.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <immintrin.h>

#define PARTS 16
#ifndef DK
#define DK 32
#define DV 48
#endif
#define CHUNK 32

int dims(int which) { return which == 0 ? DK : which == 1 ? DV : which == 2 ? PARTS : CHUNK; }

// Denormals appear in strongly decayed states and cost a hundred cycles each.
static void flush_denormals(void) {
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

static inline float sigmoidf(float x) { return 1.0f / (1.0f + expf(-x)); }

// s = x + m; y = s * rsqrt(mean(s^2) + eps) * (1 + w).  m may be NULL (then s is not written).
void add_rmsnorm_fwd(long n, int d, const float *x, const float *m, const float *w, float eps,
                     float *s, float *y, float *rs) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) {
    const float *xi = x + i * d;
    float ss = 0;
    if (m) {
      float *si = s + i * d;
      const float *mi = m + i * d;
      for (int j = 0; j < d; j++) si[j] = xi[j] + mi[j];
      xi = si;
    }
    for (int j = 0; j < d; j++) ss += xi[j] * xi[j];
    float r = 1.0f / sqrtf(ss / d + eps);
    rs[i] = r;
    float *yi = y + i * d;
    for (int j = 0; j < d; j++) yi[j] = xi[j] * r * (1.0f + w[j]);
  }
}

// dx = gs + d(norm); gs may be NULL.  dw is [PARTS, d].
void add_rmsnorm_bwd(long n, int d, const float *gy, const float *gs, const float *s, const float *w,
                     const float *rs, float *dx, float *dw) {
#pragma omp parallel for schedule(static)
  for (int p = 0; p < PARTS; p++) {
    float *dwp = dw + (long)p * d;
    memset(dwp, 0, d * sizeof(float));
    for (long i = n * p / PARTS; i < n * (p + 1) / PARTS; i++) {
      const float *g = gy + i * d, *x = s + i * d;
      float *o = dx + i * d;
      float r = rs[i], dot = 0;
      for (int j = 0; j < d; j++) {
        dot += g[j] * (1.0f + w[j]) * x[j];
        dwp[j] += g[j] * x[j] * r;
      }
      float c = dot * r * r * r / d;
      if (gs) {
        const float *h = gs + i * d;
        for (int j = 0; j < d; j++) o[j] = h[j] + g[j] * (1.0f + w[j]) * r - x[j] * c;
      } else {
        for (int j = 0; j < d; j++) o[j] = g[j] * (1.0f + w[j]) * r - x[j] * c;
      }
    }
  }
}

// y = o * rsqrt(mean(o^2) + eps) * w * silu(z)
void gated_norm_fwd(long n, int d, const float *o, const float *z, const float *w, float eps, float *y) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) {
    const float *a = o + i * d, *b = z + i * d;
    float ss = 0;
    for (int j = 0; j < d; j++) ss += a[j] * a[j];
    float r = 1.0f / sqrtf(ss / d + eps);
    float *yi = y + i * d;
    for (int j = 0; j < d; j++) yi[j] = a[j] * r * w[j] * b[j] * sigmoidf(b[j]);
  }
}

void gated_norm_bwd(long n, int d, const float *gy, const float *o, const float *z, const float *w, float eps,
                    float *go, float *gz, float *dw) {
#pragma omp parallel for schedule(static)
  for (int p = 0; p < PARTS; p++) {
    float *dwp = dw + (long)p * d;
    memset(dwp, 0, d * sizeof(float));
    float t[512];
    for (long i = n * p / PARTS; i < n * (p + 1) / PARTS; i++) {
      const float *a = o + i * d, *b = z + i * d, *g = gy + i * d;
      float ss = 0, dot = 0;
      for (int j = 0; j < d; j++) ss += a[j] * a[j];
      float r = 1.0f / sqrtf(ss / d + eps);
      for (int j = 0; j < d; j++) {
        float sg = sigmoidf(b[j]), sz = b[j] * sg;
        dwp[j] += g[j] * a[j] * r * sz;
        gz[i * d + j] = g[j] * a[j] * r * w[j] * sg * (1.0f + b[j] * (1.0f - sg));
        t[j] = g[j] * w[j] * sz;
        dot += t[j] * a[j];
      }
      float c = dot * r * r * r / d;
      for (int j = 0; j < d; j++) go[i * d + j] = t[j] * r - a[j] * c;
    }
  }
}

// gu is [n, 2d]: gate then up.  a = silu(gate) * up
void silu_mul_fwd(long n, int d, const float *gu, float *a) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) {
    const float *g = gu + i * 2 * d, *u = g + d;
    for (int j = 0; j < d; j++) a[i * d + j] = g[j] * sigmoidf(g[j]) * u[j];
  }
}

void silu_mul_bwd(long n, int d, const float *ga, const float *gu, float *dgu) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) {
    const float *g = gu + i * 2 * d, *u = g + d, *y = ga + i * d;
    float *o = dgu + i * 2 * d;
    for (int j = 0; j < d; j++) {
      float s = sigmoidf(g[j]);
      o[j] = y[j] * u[j] * s * (1.0f + g[j] * (1.0f - s));
      o[d + j] = y[j] * g[j] * s;
    }
  }
}

// Causal depthwise convolution of width 4 with zero history, then silu.  x [b,t,c], w [4,c].
void conv_fwd(int b, int t, int c, const float *x, const float *w, float *y) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < (long)b * t; i++) {
    int tt = i % t;
    const float *x0 = x + i * c;
    float *yi = y + i * c;
    if (tt >= 3) {
      for (int j = 0; j < c; j++) {
        float v = w[j] * x0[j - 3 * c] + w[c + j] * x0[j - 2 * c] + w[2 * c + j] * x0[j - c] + w[3 * c + j] * x0[j];
        yi[j] = v * sigmoidf(v);
      }
    } else {
      for (int j = 0; j < c; j++) {
        float v = 0;
        for (int k = 0; k <= tt; k++) v += w[(3 - k) * c + j] * x0[j - k * c];
        yi[j] = v * sigmoidf(v);
      }
    }
  }
}

// dw is [b, 4, c]; dx must be zero on entry.
void conv_bwd(int b, int t, int c, const float *gy, const float *x, const float *w, float *dx, float *dw) {
#pragma omp parallel for schedule(static)
  for (int bi = 0; bi < b; bi++) {
    float *dwp = dw + (long)bi * 4 * c;
    memset(dwp, 0, 4 * c * sizeof(float));
    float *dv = malloc(c * sizeof(float));
    for (int tt = 0; tt < t; tt++) {
      long i = (long)bi * t + tt;
      const float *x0 = x + i * c, *g = gy + i * c;
      int m = tt < 3 ? tt : 3;
      if (m == 3) {
        for (int j = 0; j < c; j++) {
          float v = w[j] * x0[j - 3 * c] + w[c + j] * x0[j - 2 * c] + w[2 * c + j] * x0[j - c] + w[3 * c + j] * x0[j];
          float s = sigmoidf(v);
          dv[j] = g[j] * s * (1.0f + v * (1.0f - s));
        }
      } else {
        for (int j = 0; j < c; j++) {
          float v = 0;
          for (int k = 0; k <= m; k++) v += w[(3 - k) * c + j] * x0[j - k * c];
          float s = sigmoidf(v);
          dv[j] = g[j] * s * (1.0f + v * (1.0f - s));
        }
      }
      for (int k = 0; k <= m; k++) {
        const float *xk = x0 - k * c, *wk = w + (3 - k) * c;
        float *dxk = dx + (i - k) * c, *dwk = dwp + (3 - k) * c;
        for (int j = 0; j < c; j++) {
          dxk[j] += dv[j] * wk[j];
          dwk[j] += dv[j] * xk[j];
        }
      }
    }
    free(dv);
  }
}

static inline float l2(const float *x, float *o, float scale) {
  float ss = 0;
  for (int i = 0; i < DK; i++) ss += x[i] * x[i];
  float r = 1.0f / sqrtf(ss + 1e-6f);
  for (int i = 0; i < DK; i++) o[i] = x[i] * r * scale;
  return r;
}

static inline void l2_bwd(const float *x, float r, float scale, const float *g, float *o) {
  float dot = 0;
  for (int i = 0; i < DK; i++) dot += x[i] * g[i];
  dot *= r * r;
  for (int i = 0; i < DK; i++) o[i] = scale * r * (g[i] - x[i] * dot);
}

// One step of the gated delta rule, in place on s; d receives the written value, rd what was read.
static inline void step(float (*restrict s)[DV], const float *k, const float *v, float eg, float beta,
                        float *restrict d, float *restrict rd) {
  float r[DV];
  for (int j = 0; j < DV; j++) r[j] = 0;
  for (int i = 0; i < DK; i++)
    for (int j = 0; j < DV; j++) {
      s[i][j] *= eg;
      r[j] += k[i] * s[i][j];
    }
  for (int j = 0; j < DV; j++) {
    rd[j] = r[j];
    d[j] = (v[j] - r[j]) * beta;
  }
}

// qkv [b,t,2*hk*DK + hv*DV]; g, beta [b,t,hv]; o [b,t,hv,DV]; ck [b,hv,t/CHUNK,DK,DV].
void gdn_fwd(int b, int t, int hk, int hv, const float *qkv, const float *g, const float *beta, float *o, float *ck) {
  const int rep = hv / hk, c = 2 * hk * DK + hv * DV, nc = (t + CHUNK - 1) / CHUNK;
  const float scale = 1.0f / sqrtf((float)DK);
#pragma omp parallel for schedule(static)
  for (int u = 0; u < b * hv; u++) {
    flush_denormals();
    int bi = u / hv, h = u % hv, kh = h / rep;
    float s[DK][DV] __attribute__((aligned(64)));
    memset(s, 0, sizeof s);
    for (int tt = 0; tt < t; tt++) {
      if (tt % CHUNK == 0) memcpy(ck + ((long)u * nc + tt / CHUNK) * DK * DV, s, sizeof s);
      long row = (long)bi * t + tt;
      const float *x = qkv + row * c, *v = x + 2 * hk * DK + h * DV;
      float q[DK], k[DK], d[DV], rd[DV], y[DV];
      l2(x + kh * DK, q, scale);
      l2(x + (hk + kh) * DK, k, 1.0f);
      step(s, k, v, expf(g[row * hv + h]), beta[row * hv + h], d, rd);
      for (int j = 0; j < DV; j++) y[j] = 0;
      for (int i = 0; i < DK; i++)
        for (int j = 0; j < DV; j++) {
          s[i][j] += k[i] * d[j];
          y[j] += q[i] * s[i][j];
        }
      memcpy(o + (row * hv + h) * DV, y, sizeof y);
    }
  }
}

void gdn_bwd(int b, int t, int hk, int hv, const float *qkv, const float *g, const float *beta, const float *ck,
             const float *go, float *dqkv, float *dg, float *dbeta) {
  const int rep = hv / hk, c = 2 * hk * DK + hv * DV, nc = (t + CHUNK - 1) / CHUNK;
  const float scale = 1.0f / sqrtf((float)DK);
#pragma omp parallel for schedule(static)
  for (int u = 0; u < b * hk; u++) {
    flush_denormals();
    int bi = u / hk, kh = u % hk;
    float(*sp)[DK][DV] = aligned_alloc(64, sizeof(float) * (CHUNK + 1) * DK * DV);
    float(*ds)[DK][DV] = aligned_alloc(64, sizeof(float) * rep * DK * DV);
    memset(ds, 0, sizeof(float) * rep * DK * DV);
    float q[CHUNK][DK], k[CHUNK][DK], rq[CHUNK], rk[CHUNK], dq[CHUNK][DK], dk[CHUNK][DK], d[CHUNK][DV], rd[CHUNK][DV];
    for (int ci = nc - 1; ci >= 0; ci--) {
      int t0 = ci * CHUNK, len = t - t0 < CHUNK ? t - t0 : CHUNK;
      memset(dq, 0, sizeof dq);
      memset(dk, 0, sizeof dk);
      for (int i = 0; i < len; i++) {
        const float *x = qkv + ((long)bi * t + t0 + i) * c;
        rq[i] = l2(x + kh * DK, q[i], scale);
        rk[i] = l2(x + (hk + kh) * DK, k[i], 1.0f);
      }
      for (int rr = 0; rr < rep; rr++) {
        int h = kh * rep + rr;
        memcpy(sp[0], ck + (((long)bi * hv + h) * nc + ci) * DK * DV, sizeof(float) * DK * DV);
        for (int i = 0; i < len; i++) {
          long row = (long)bi * t + t0 + i;
          const float *v = qkv + row * c + 2 * hk * DK + h * DV;
          memcpy(sp[i + 1], sp[i], sizeof(float) * DK * DV);
          step(sp[i + 1], k[i], v, expf(g[row * hv + h]), beta[row * hv + h], d[i], rd[i]);
          for (int a = 0; a < DK; a++)
            for (int j = 0; j < DV; j++) sp[i + 1][a][j] += k[i][a] * d[i][j];
        }
        float(*restrict e)[DV] = ds[rr];
        for (int i = len - 1; i >= 0; i--) {
          long row = (long)bi * t + t0 + i;
          const float *v = qkv + row * c + 2 * hk * DK + h * DV, *y = go + (row * hv + h) * DV;
          float(*restrict s0)[DV] = sp[i], (*restrict s1)[DV] = sp[i + 1];
          float eg = expf(g[row * hv + h]), bt = beta[row * hv + h], dd[DV], dr[DV], acc[DV], db = 0, de = 0;
          for (int j = 0; j < DV; j++) dd[j] = 0;
          for (int a = 0; a < DK; a++) {
            float x0 = 0, x1 = 0, qa = q[i][a], ka = k[i][a];
            for (int j = 0; j < DV; j++) {
              float z = e[a][j] + qa * y[j];
              e[a][j] = z;
              x0 += s1[a][j] * y[j];
              x1 += z * d[i][j];
              dd[j] += ka * z;
            }
            dq[i][a] += x0;
            dk[i][a] += x1;
          }
          float *dv = dqkv + row * c + 2 * hk * DK + h * DV;
          for (int j = 0; j < DV; j++) {
            db += dd[j] * (v[j] - rd[i][j]);
            dv[j] = dd[j] * bt;
            dr[j] = -dd[j] * bt;
            acc[j] = 0;
          }
          for (int a = 0; a < DK; a++) {
            float x1 = 0, ka = k[i][a];
            for (int j = 0; j < DV; j++) {
              float z = e[a][j] + ka * dr[j];
              x1 += s0[a][j] * dr[j];
              acc[j] += z * s0[a][j];
              e[a][j] = eg * z;
            }
            dk[i][a] += eg * x1;
          }
          for (int j = 0; j < DV; j++) de += acc[j];
          dg[row * hv + h] = de * eg;
          dbeta[row * hv + h] = db;
        }
      }
      for (int i = 0; i < len; i++) {
        long row = (long)bi * t + t0 + i;
        l2_bwd(qkv + row * c + kh * DK, rq[i], scale, dq[i], dqkv + row * c + kh * DK);
        l2_bwd(qkv + row * c + (hk + kh) * DK, rk[i], 1.0f, dk[i], dqkv + row * c + (hk + kh) * DK);
      }
    }
    free(sp);
    free(ds);
  }
}

// xs[i] = h[tok[i]]
void gather(long n, int d, const float *h, const long *tok, float *xs) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) memcpy(xs + i * d, h + tok[i] * d, d * sizeof(float));
}

// out = s * sigmoid(gl) + sum_j w[n,j] * ys[inv[n,j]]
void combine_fwd(long n, int d, int k, const float *ys, const long *inv, const float *w, const float *s,
                 const float *gl, float *out) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) {
    float sg = sigmoidf(gl[i]);
    float *o = out + i * d;
    for (int j = 0; j < d; j++) o[j] = s[i * d + j] * sg;
    for (int e = 0; e < k; e++) {
      const float *y = ys + inv[i * k + e] * d;
      float we = w[i * k + e];
      for (int j = 0; j < d; j++) o[j] += we * y[j];
    }
  }
}

void combine_bwd(long n, int d, int k, const float *go, const float *ys, const long *inv, const float *w,
                 const float *s, const float *gl, float *dys, float *dw, float *dsh, float *dgl) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) {
    const float *g = go + i * d;
    float sg = sigmoidf(gl[i]), dot = 0;
    for (int j = 0; j < d; j++) {
      dot += g[j] * s[i * d + j];
      dsh[i * d + j] = g[j] * sg;
    }
    dgl[i] = dot * sg * (1.0f - sg);
    for (int e = 0; e < k; e++) {
      long r = inv[i * k + e] * d;
      float we = w[i * k + e], x = 0;
      for (int j = 0; j < d; j++) {
        x += g[j] * ys[r + j];
        dys[r + j] = we * g[j];
      }
      dw[i * k + e] = x;
    }
  }
}

// dh[n] += sum_j dxs[inv[n,j]]
void scatter_add(long n, int d, int k, const float *dxs, const long *inv, float *dh) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++)
    for (int e = 0; e < k; e++) {
      const float *y = dxs + inv[i * k + e] * d;
      for (int j = 0; j < d; j++) dh[i * d + j] += y[j];
    }
}

// Weighted cross entropy.  z [n, v] becomes (softmax - onehot) * weight; loss[i] = weight * nll.
void xent(long n, int v, float *z, const long *target, const float *weight, float *loss) {
#pragma omp parallel for schedule(static)
  for (long i = 0; i < n; i++) {
    float *r = z + i * v, m = -1e30f, s = 0;
    for (int j = 0; j < v; j++) m = r[j] > m ? r[j] : m;
    float zt = r[target[i]] - m;
    for (int j = 0; j < v; j++) {
      r[j] = expf(r[j] - m);
      s += r[j];
    }
    loss[i] = weight[i] * (logf(s) - zt);
    float c = weight[i] / s;
    for (int j = 0; j < v; j++) r[j] *= c;
    r[target[i]] -= weight[i];
  }
}
