// One step of an LSTM or a GRU after its two matrix products, and its gradient; a thread per element of the state.
//
// X, G (N, gates H): what a step gets from its input and from its last state, with the gates i f g o of an LSTM or r z
// n of a GRU next to each other. K keeps what the gradient needs: i f g o, or r z n and the last third of G.
// Grid: ceil(N H / 256). Block: 256. No shared memory, no macros. All arrays are float.
#include "common/cuda.h"

constexpr int THREADS = 256;

__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + exp(-x)); }

// Where element i = n H + j of the state has gate 0, of `gates` in a row.
__device__ __forceinline__ long long first_gate(long long i, long long H, int gates) {
  return i / H * gates * H + i % H;
}

// C1 = f C + i g, Y = o tanh(C1).
extern "C" __global__ void __launch_bounds__(THREADS)
    lstm(float* __restrict__ K, float* __restrict__ C1, float* __restrict__ Y, const float* __restrict__ X,
         const float* __restrict__ G, const float* __restrict__ C, long long H, long long elements) {
  const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (e >= elements) return;
  const long long at = first_gate(e, H, 4);
  const float i = sigmoid(X[at] + G[at]), f = sigmoid(X[at + H] + G[at + H]);
  const float g = tanh(X[at + 2 * H] + G[at + 2 * H]), o = sigmoid(X[at + 3 * H] + G[at + 3 * H]);
  const float c = f * C[e] + i * g;
  K[at] = i, K[at + H] = f, K[at + 2 * H] = g, K[at + 3 * H] = o;
  C1[e] = c;
  Y[e] = o * tanh(c);
}

// dG of the four gates and dC of the state before, from dY and from dC of the state behind.
extern "C" __global__ void __launch_bounds__(THREADS)
    lstm_gradient(float* __restrict__ dG, float* __restrict__ dC, const float* __restrict__ dY,
                  const float* __restrict__ dC1, const float* __restrict__ K, const float* __restrict__ C,
                  const float* __restrict__ C1, long long H, long long elements) {
  const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (e >= elements) return;
  const long long at = first_gate(e, H, 4);
  const float i = K[at], f = K[at + H], g = K[at + 2 * H], o = K[at + 3 * H], t = tanh(C1[e]), dy = dY[e];
  const float dc = dC1[e] + dy * o * (1 - t * t);
  dG[at] = dc * g * i * (1 - i);
  dG[at + H] = dc * C[e] * f * (1 - f);
  dG[at + 2 * H] = dc * i * (1 - g * g);
  dG[at + 3 * H] = dy * t * o * (1 - o);
  dC[e] = dc * f;
}

// r and z as sigmoids, n = tanh(X_n + r G_n), Y = n + z (S - n).
extern "C" __global__ void __launch_bounds__(THREADS)
    gru(float* __restrict__ K, float* __restrict__ Y, const float* __restrict__ X, const float* __restrict__ G,
        const float* __restrict__ S, long long H, long long elements) {
  const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (e >= elements) return;
  const long long at = first_gate(e, H, 3), kept = first_gate(e, H, 4);
  const float r = sigmoid(X[at] + G[at]), z = sigmoid(X[at + H] + G[at + H]), own = G[at + 2 * H];
  const float n = tanh(X[at + 2 * H] + r * own);
  K[kept] = r, K[kept + H] = z, K[kept + 2 * H] = n, K[kept + 3 * H] = own;
  Y[e] = n + z * (S[e] - n);
}

// dX and dG of the three gates, and dS, the part of the gradient of the state before that goes through no gate.
extern "C" __global__ void __launch_bounds__(THREADS)
    gru_gradient(float* __restrict__ dX, float* __restrict__ dG, float* __restrict__ dS, const float* __restrict__ dY,
                 const float* __restrict__ K, const float* __restrict__ S, long long H, long long elements) {
  const long long e = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (e >= elements) return;
  const long long at = first_gate(e, H, 3), kept = first_gate(e, H, 4);
  const float r = K[kept], z = K[kept + H], n = K[kept + 2 * H], own = K[kept + 3 * H], dy = dY[e];
  const float dn = dy * (1 - z) * (1 - n * n), dr = dn * own * r * (1 - r), dz = dy * (S[e] - n) * z * (1 - z);
  dX[at] = dr, dX[at + H] = dz, dX[at + 2 * H] = dn;
  dG[at] = dr, dG[at + H] = dz, dG[at + 2 * H] = dn * r;
  dS[e] = dy * z;
}
