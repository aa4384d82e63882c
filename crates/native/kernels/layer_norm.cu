// Layer normalisation forward over rows of COLUMNS values, one warp a row; with or without adding a branch to the residual stream first.
//
// Why its own kernel: the row stays in registers, so one read and one write are all there is, and mean and variance are two exact passes
// and not a difference of squares. Where the matmul before has added the residual stream as its C operand, `layer_norm_forward` reads the
// sum; where that makes the matmul slower, `residual_layer_norm_forward` adds the branch itself and writes the sum as well.
//
//   x = residual + branch (second form)
//   mean = sum(x) / n      variance = sum((x - mean)^2) / n      r = 1 / sqrt(variance + epsilon)
//   y = (x - mean) r gain + shift
//
// Bytes per element with a bf16 residual stream: 2 read + 2 written; second form 4 read + 4 written. An fp32 stream adds 2 to each of its
// accesses. gain and shift are the fp32 master weights, 8 bytes a column from cache. statistics: mean and r of each row, fp32, for the
// backward pass. x is normalised as it was rounded for memory, since the backward pass reads it from there.

#ifndef COLUMNS
#define COLUMNS 768
#endif
static_assert(COLUMNS % 256 == 0, "a warp holds a row as vectors of eight");
constexpr int VECTORS = COLUMNS / 256;

__device__ __forceinline__ float rounded(float x, const float*) { return x; }
__device__ __forceinline__ float rounded(float x, const bf16*) { return first_of(pair_of(x, 0.f)); }

__device__ __forceinline__ void normalise(float (&v)[VECTORS][8], const float* gain, const float* shift, bf16* y, float2* statistics, int row,
                                          float epsilon) {
  const int lane = threadIdx.x % 32;
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < VECTORS; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) sum += v[i][j];
  const float mean = warp_sum(sum) * (1.f / COLUMNS);
  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < VECTORS; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) {
      v[i][j] -= mean;
      squares += v[i][j] * v[i][j];
    }
  const float r = rsqrtf(warp_sum(squares) * (1.f / COLUMNS) + epsilon);
  if (lane == 0) statistics[row] = make_float2(mean, r);
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const int column = (i * 32 + lane) * 8;
    float g[8], s[8];
    load8(gain + column, g);
    load8(shift + column, s);
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = v[i][j] * r * g[j] + s[j];
    store8(y + (size_t)row * COLUMNS + column, v[i]);
  }
}

// Grid: rows / 8, rounded up; 256 threads.
extern "C" __global__ void __launch_bounds__(256)
layer_norm_forward(const residual* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ shift,
                   bf16* __restrict__ y, float2* __restrict__ statistics, int rows, float epsilon) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float v[VECTORS][8];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) load8(x + (size_t)row * COLUMNS + (i * 32 + lane) * 8, v[i]);
  normalise(v, gain, shift, y, statistics, row, epsilon);
}

extern "C" __global__ void __launch_bounds__(256)
residual_layer_norm_forward(const bf16* __restrict__ branch, const residual* __restrict__ before, residual* __restrict__ x,
                            const float* __restrict__ gain, const float* __restrict__ shift, bf16* __restrict__ y,
                            float2* __restrict__ statistics, int rows, float epsilon) {
  const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const size_t base = (size_t)row * COLUMNS + lane * 8;
  float v[VECTORS][8];
  uint4 added[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) load8(before + base + i * 256, v[i]);
#pragma unroll
  for (int i = 0; i < VECTORS; i++) added[i] = *reinterpret_cast<const uint4*>(branch + base + i * 256);
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    float b[8];
    unpack8(added[i], b);
#pragma unroll
    for (int j = 0; j < 8; j++) v[i][j] = rounded(v[i][j] + b[j], x);
    store8(x + base + i * 256, v[i]);
  }
  normalise(v, gain, shift, y, statistics, row, epsilon);
}
