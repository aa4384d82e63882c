// Column sums of a [rows, columns] bf16 matrix, and the same together with the gradient of GELU.
//
// Why: the bias gradient of a linear layer whose output gradient is written by a library (attention's dQKV), for shapes where the
// matmul's own bias-gradient epilogue is slower than reading the matrix once more; and the plain alternative to the DGELU epilogue.
//
//   gelu(u) = u (1 + tanh(a (u + c u^3))) / 2,  a = sqrt(2 / pi), c = 0.044715
//   gelu'(u) = (1 + t) / 2 + u (1 - t^2) a (1 + 3 c u^2) / 2,  t = tanh(a (u + c u^3))
//
// Bytes per element: column_sum 2 read; gelu_gradient 4 read, 2 written (in place over dy).
// Grid: (columns / 256, parts), 256 threads: 32 lanes of eight columns by 8 groups of rows. partial[part][columns], fp32; `finish_sums`
// adds the parts in order.

__device__ __forceinline__ void write_part(float (&sum)[8], float* __restrict__ partial, int columns) {
  __shared__ float scratch[8][256];
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
#pragma unroll
  for (int j = 0; j < 8; j++) scratch[group][j * 32 + lane] = sum[j];
  __syncthreads();
  float total = 0.f;
#pragma unroll
  for (int other = 0; other < 8; other++) total += scratch[other][threadIdx.x];
  partial[(size_t)blockIdx.y * columns + blockIdx.x * 256 + (threadIdx.x % 32) * 8 + threadIdx.x / 32] = total;
}

extern "C" __global__ void __launch_bounds__(256)
column_sum(const bf16* __restrict__ x, float* __restrict__ partial, int rows, int columns) {
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const bf16* source = x + blockIdx.x * 256 + lane * 8;
  float sum[8] = {};
#pragma unroll 4
  for (int row = blockIdx.y * 8 + group; row < rows; row += gridDim.y * 8) {
    float v[8];
    load8(source + (size_t)row * columns, v);
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] += v[j];
  }
  write_part(sum, partial, columns);
}

extern "C" __global__ void __launch_bounds__(256)
gelu_gradient(bf16* __restrict__ dy, const bf16* __restrict__ u, float* __restrict__ partial, int rows, int columns) {
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32;
  const size_t first = blockIdx.x * 256 + lane * 8;
  float sum[8] = {};
#pragma unroll 2
  for (int row = blockIdx.y * 8 + group; row < rows; row += gridDim.y * 8) {
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
  write_part(sum, partial, columns);
}

// Grid: columns / 32, 256 threads: 8 groups of parts by 32 columns.
extern "C" __global__ void __launch_bounds__(256)
finish_sums(const float* __restrict__ partial, gradient* __restrict__ slot, int parts, int columns) {
  __shared__ float group_sum[8][32];
  const int lane = threadIdx.x % 32, group = threadIdx.x / 32, column = blockIdx.x * 32 + lane;
  float sum = 0.f;
  for (int part = group; part < parts; part += 8) sum += partial[(size_t)part * columns + column];
  group_sum[group][lane] = sum;
  __syncthreads();
  if (group == 0) {
#pragma unroll
    for (int other = 1; other < 8; other++) sum += group_sum[other][lane];
    put(slot + column, sum);
  }
}
