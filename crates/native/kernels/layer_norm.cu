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
// accesses. Rows are walked from the last to the first: the matmul before has just written the last ones, which are still in the L2 cache,
// and the matmul after starts with the first ones. gain and shift are the fp32 master weights, 8 bytes a column from cache. statistics: mean and r of each row, fp32, for the
// backward pass. x is normalised as it was rounded for memory, since the backward pass reads it from there.

#ifndef COLUMNS
#define COLUMNS 768
#endif
static_assert(COLUMNS % 256 == 0, "a warp holds a row as vectors of eight");
constexpr int VECTORS = COLUMNS / 256;

// A warp's row, as it lies in memory: half the registers of unpacked bf16 leave room for more warps.
template <typename T>
struct Row;
template <>
struct Row<bf16> {
  uint4 raw[VECTORS];
  __device__ __forceinline__ void load(int i, const bf16* p) { raw[i] = *reinterpret_cast<const uint4*>(p); }
  __device__ __forceinline__ void get(int i, float (&v)[8]) const { unpack8(raw[i], v); }
  __device__ __forceinline__ void set(int i, const float (&v)[8]) { raw[i] = pack8(v); }
  __device__ __forceinline__ void store(int i, bf16* p) const { *reinterpret_cast<uint4*>(p) = raw[i]; }
};
template <>
struct Row<float> {
  float values[VECTORS][8];
  __device__ __forceinline__ void load(int i, const float* p) { load8(p, values[i]); }
  __device__ __forceinline__ void get(int i, float (&v)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = values[i][j];
  }
  __device__ __forceinline__ void set(int i, const float (&v)[8]) {
#pragma unroll
    for (int j = 0; j < 8; j++) values[i][j] = v[j];
  }
  __device__ __forceinline__ void store(int i, float* p) const { store8(p, values[i]); }
};

__device__ __forceinline__ void normalise(const Row<residual>& x, const float* gain, const float* shift, bf16* y, float2* statistics,
                                          int row, float epsilon) {
  const int lane = threadIdx.x % 32;
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    float v[8];
    x.get(i, v);
#pragma unroll
    for (int j = 0; j < 8; j++) sum += v[j];
  }
  const float mean = warp_sum(sum) * (1.f / COLUMNS);
  float squares = 0.f;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    float v[8];
    x.get(i, v);
#pragma unroll
    for (int j = 0; j < 8; j++) squares += (v[j] - mean) * (v[j] - mean);
  }
  const float r = rsqrtf(warp_sum(squares) * (1.f / COLUMNS) + epsilon);
  if (lane == 0) statistics[row] = make_float2(mean, r);
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const int column = (i * 32 + lane) * 8;
    float v[8], g[8], s[8];
    x.get(i, v);
    load8(gain + column, g);
    load8(shift + column, s);
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = (v[j] - mean) * r * g[j] + s[j];
    store8(y + (size_t)row * COLUMNS + column, v);
  }
}

// Grid: any, best as many blocks as the device holds at a time; 256 threads. A warp loads its next row before it works on this one.
extern "C" __global__ void __launch_bounds__(256, sizeof(residual) == 2 ? 4 : 2)
layer_norm_forward(const residual* __restrict__ x, const float* __restrict__ gain, const float* __restrict__ shift,
                   bf16* __restrict__ y, float2* __restrict__ statistics, int rows, float epsilon) {
  const int step = gridDim.x * 8;
  const residual* source = x + threadIdx.x % 32 * 8;
  int row = rows - 1 - (int)(blockIdx.x * 8 + threadIdx.x / 32);
  if (row < 0) return;
  Row<residual> next;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) next.load(i, source + (size_t)row * COLUMNS + i * 256);
  for (; row >= 0; row -= step) {
    const Row<residual> current = next;
    if (row >= step) {
#pragma unroll
      for (int i = 0; i < VECTORS; i++) next.load(i, source + (size_t)(row - step) * COLUMNS + i * 256);
    }
    normalise(current, gain, shift, y, statistics, row, epsilon);
  }
}

// Grid: rows / 8, rounded up; 256 threads.
extern "C" __global__ void __launch_bounds__(256, sizeof(residual) == 2 ? 5 : 4)
residual_layer_norm_forward(const bf16* __restrict__ branch, const residual* __restrict__ before, residual* __restrict__ x,
                            const float* __restrict__ gain, const float* __restrict__ shift, bf16* __restrict__ y,
                            float2* __restrict__ statistics, int rows, float epsilon) {
  const int row = rows - 1 - (int)(blockIdx.x * 8 + threadIdx.x / 32), lane = threadIdx.x % 32;
  if (row < 0) return;
  const size_t base = (size_t)row * COLUMNS + lane * 8;
  Row<residual> v;
  uint4 added[VECTORS];
#pragma unroll
  for (int i = 0; i < VECTORS; i++) v.load(i, before + base + i * 256);
#pragma unroll
  for (int i = 0; i < VECTORS; i++) added[i] = *reinterpret_cast<const uint4*>(branch + base + i * 256);
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    float a[8], b[8];
    v.get(i, a);
    unpack8(added[i], b);
#pragma unroll
    for (int j = 0; j < 8; j++) a[j] += b[j];
    v.set(i, a);
    v.store(i, x + base + i * 256);
  }
  normalise(v, gain, shift, y, statistics, row, epsilon);
}
