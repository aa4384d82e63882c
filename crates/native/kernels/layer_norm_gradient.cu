// Layer normalisation backward, the residual gradient and three column sums in one pass.
//
// Why fused: the gradient that leaves here is the residual stream's, so the branch's gradient is added in the same pass, and its column
// sum is the bias gradient of the linear layer that wrote this residual (attention projection or feed-forward down projection). Read
// separately, the sum alone would cost another read of the tensor.
//
//   h = (x - mean) r      g = dy gain
//   dx = r (g - sum(g)/n - h sum(g h)/n) + incoming
//   dgain = sum over rows of dy h      dshift = sum over rows of dy      dbias = sum over rows of dx
//
// Bytes per element: 2 (dy) + 2 (x; 4 with an fp32 residual stream) + 2 (incoming) read, 2 written.
// Each block keeps the three sums in registers over all its rows and writes them once: partial[block][3][COLUMNS], fp32.
// `finish_sums` adds the blocks in order; no atomics, so the bits do not depend on the run. The number of blocks is part of the result.
// Rows are walked from the last to the first, while the last ones are still in the L2 cache.
//
// Grid: any number of blocks up to one a multiprocessor (a block fills the registers); fewer leave room for a matmul beside it.

#ifndef COLUMNS
#define COLUMNS 768
#endif
static_assert(COLUMNS % 256 == 0, "a warp holds a row as vectors of eight");
constexpr int VECTORS = COLUMNS / 256;
constexpr int WARPS = COLUMNS <= 768 ? 12 : 8;  // as many as the registers of the three sums allow

// Adds v over the block's warps in a fixed tree; warp 0 writes COLUMNS sums.
__device__ __forceinline__ void sum_over_warps(float (&v)[VECTORS][8], float* scratch, float* destination) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int active = WARPS; active > 1;) {
    const int half = (active + 1) / 2;
    if (warp >= half && warp < active)
#pragma unroll
      for (int i = 0; i < VECTORS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) scratch[(((warp - half) * VECTORS + i) * 8 + j) * 32 + lane] = v[i][j];
    __syncthreads();
    if (warp + half < active)
#pragma unroll
      for (int i = 0; i < VECTORS; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) v[i][j] += scratch[((warp * VECTORS + i) * 8 + j) * 32 + lane];
    __syncthreads();
    active = half;
  }
  if (warp == 0)
#pragma unroll
    for (int i = 0; i < VECTORS; i++) store8(destination + (i * 32 + lane) * 8, v[i]);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
layer_norm_gradient(const bf16* __restrict__ dy, const residual* __restrict__ x, const float2* __restrict__ statistics,
                    const float* __restrict__ gain, const bf16* __restrict__ incoming, bf16* __restrict__ dx,
                    float* __restrict__ partial, int rows) {
  __shared__ __align__(16) float shared_gain[COLUMNS];
  __shared__ float scratch[(WARPS / 2) * COLUMNS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int column = threadIdx.x; column < COLUMNS; column += WARPS * 32) shared_gain[column] = gain[column];
  __syncthreads();

  float sum_gain[VECTORS][8] = {}, sum_shift[VECTORS][8] = {}, sum_bias[VECTORS][8] = {};
  for (int row = rows - 1 - (int)(blockIdx.x * WARPS + warp); row >= 0; row -= gridDim.x * WARPS) {
    const size_t base = (size_t)row * COLUMNS + lane * 8;
    uint4 raw_dy[VECTORS], raw_incoming[VECTORS];
    float h[VECTORS][8];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) raw_dy[i] = *reinterpret_cast<const uint4*>(dy + base + i * 256);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) load8(x + base + i * 256, h[i]);
    const float2 s = statistics[row];
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
      raw_incoming[i] = incoming ? *reinterpret_cast<const uint4*>(incoming + base + i * 256) : make_uint4(0, 0, 0, 0);
    float sum_g = 0.f, sum_gh = 0.f;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      float d[8], w[8];
      unpack8(raw_dy[i], d);
      load8(shared_gain + (i * 32 + lane) * 8, w);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        h[i][j] = (h[i][j] - s.x) * s.y;
        sum_gain[i][j] += d[j] * h[i][j];
        sum_shift[i][j] += d[j];
        const float g = d[j] * w[j];
        sum_g += g;
        sum_gh += g * h[i][j];
      }
    }
    const float mean_g = warp_sum(sum_g) * (1.f / COLUMNS), mean_gh = warp_sum(sum_gh) * (1.f / COLUMNS);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      float d[8], w[8], out[8];
      unpack8(raw_dy[i], d);
      unpack8(raw_incoming[i], out);
      load8(shared_gain + (i * 32 + lane) * 8, w);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        out[j] += s.y * (d[j] * w[j] - mean_g - h[i][j] * mean_gh);
        sum_bias[i][j] += out[j];
      }
      store8(dx + base + i * 256, out);
    }
  }
  float* destination = partial + (size_t)blockIdx.x * 3 * COLUMNS;
  sum_over_warps(sum_gain, scratch, destination);
  sum_over_warps(sum_shift, scratch, destination + COLUMNS);
  sum_over_warps(sum_bias, scratch, destination + 2 * COLUMNS);
}
