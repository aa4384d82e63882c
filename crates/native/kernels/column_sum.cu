// Column sums of a [rows, columns] bf16 matrix, the same together with the gradient of GELU, and the end of all sums of a step.
//
// Why: the bias gradient of a linear layer whose output gradient is written by a library (attention's dQKV), for shapes where the
// matmul's own bias-gradient epilogue is slower than reading the matrix once more; and the plain alternative to the DGELU epilogue.
//
//   gelu(u) = u (1 + tanh(a (u + c u^3))) / 2,  a = sqrt(2 / pi), c = 0.044715
//   gelu'(u) = (1 + t) / 2 + u (1 - t^2) a (1 + 3 c u^2) / 2,  t = tanh(a (u + c u^3))
//
// Bytes per element: column_sum 2 read; gelu_gradient 4 read, 2 written (in place over dy). Rows are walked from the last to the first,
// while the last ones are still in the L2 cache.
// Grid: (columns / 256, parts). A warp takes a row of 256 columns at a time. partial[part][columns], fp32, for `finish_sums`; no atomics,
// so the number of parts is part of the result. A block of column_sum holds a multiprocessor's threads to a half: with few parts it
// leaves other multiprocessors to a matmul beside it.

constexpr int SUM_WARPS = 32;
constexpr int GELU_WARPS = 8;

template <int WARPS>
__device__ __forceinline__ void write_part(float (&sum)[8], float* __restrict__ partial, int columns) {
  __shared__ float scratch[WARPS][256];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int j = 0; j < 8; j++) scratch[warp][j * 32 + lane] = sum[j];
  __syncthreads();
  if (threadIdx.x >= 256) return;
  float total = 0.f;
#pragma unroll
  for (int other = 0; other < WARPS; other++) total += scratch[other][threadIdx.x];
  partial[(size_t)blockIdx.y * columns + blockIdx.x * 256 + (threadIdx.x % 32) * 8 + threadIdx.x / 32] = total;
}

// 1024 threads.
extern "C" __global__ void __launch_bounds__(SUM_WARPS * 32, 2)
column_sum(const bf16* __restrict__ x, float* __restrict__ partial, int rows, int columns) {
  const bf16* source = x + blockIdx.x * 256 + threadIdx.x % 32 * 8;
  float sum[8] = {};
#pragma unroll 4
  for (int row = rows - 1 - (int)(blockIdx.y * SUM_WARPS + threadIdx.x / 32); row >= 0; row -= gridDim.y * SUM_WARPS) {
    float v[8];
    load8(source + (size_t)row * columns, v);
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] += v[j];
  }
  write_part<SUM_WARPS>(sum, partial, columns);
}

// 256 threads.
extern "C" __global__ void __launch_bounds__(GELU_WARPS * 32)
gelu_gradient(bf16* __restrict__ dy, const bf16* __restrict__ u, float* __restrict__ partial, int rows, int columns) {
  const size_t first = blockIdx.x * 256 + threadIdx.x % 32 * 8;
  float sum[8] = {};
#pragma unroll 2
  for (int row = rows - 1 - (int)(blockIdx.y * GELU_WARPS + threadIdx.x / 32); row >= 0; row -= gridDim.y * GELU_WARPS) {
    const size_t at = (size_t)row * columns + first;
    float d[8], x[8];
    load8(dy + at, d);
    load8(u + at, x);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const float a = 0.7978845608028654f, c = 0.044715f, square = x[j] * x[j];
      // tanh(z) = 1 - 2 / (1 + exp(2 z))
      const float t = 1.f - __fdividef(2.f, 1.f + power_of_two(2.f * LOG2_E * a * x[j] * (1.f + c * square)));
      d[j] *= 0.5f * (1.f + t) + 0.5f * x[j] * (1.f - t * t) * a * (1.f + 3.f * c * square);
      sum[j] += d[j];
    }
    store8(dy + at, d);
  }
  write_part<GELU_WARPS>(sum, partial, columns);
}

// One row of sums that is still in parts.
struct Parts {
  long long source;  // first element of the first part
  long long stride;  // elements from one part to the next
  long long count;   // parts
  long long slot;    // first element in the gradient slots, or -1 for sums that nobody wants
};

// Adds the parts in order into the gradient slots: all bias, gain and shift gradients of a step in one launch.
// Grid: (row length / 32, number of rows of sums), 256 threads: 8 groups of parts by 32 columns. Bytes: 4 per partial sum, read once.
extern "C" __global__ void __launch_bounds__(256)
finish_sums(const float* __restrict__ partial, const Parts* __restrict__ rows_of_sums, gradient* __restrict__ gradients) {
  __shared__ float group_sum[8][32];
  const Parts parts = rows_of_sums[blockIdx.y];
  if (parts.slot < 0) return;
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float sum = 0.f;
#pragma unroll 4
  for (int part = group; part < parts.count; part += 8) sum += partial[parts.source + part * parts.stride + column];
  group_sum[group][lane] = sum;
  __syncthreads();
  if (group == 0) {
#pragma unroll
    for (int other = 1; other < 8; other++) sum += group_sum[other][lane];
    put(gradients + parts.slot + column, sum);
  }
}
