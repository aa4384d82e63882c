// Token and position embedding: forward, and both gradients without atomics.
//
// Forward: x[m] = token_table[token[m]] + position_table[m % positions]. Bytes per element: 2 + 2 (cached) read, 2 or 4 written.
//
// Position gradient: dposition[t] = sum over the batch of dx[b * positions + t], in order of b. Bytes per element: 2 read.
//
// Token gradient: dtoken[v] += sum of dx[m] over the m with token[m] == v, in order of m. The slot already holds the output layer's part
// (tied weights). Instead of sorting the tokens, each block owns ROWS_A_BLOCK rows of the table and scans all tokens (128 KB, from the
// L2 cache) for its own; found ones are listed in order in shared memory and one warp adds up one row. Bytes per element of dx: 2 read,
// and 8 for each table row that occurs. A token that fills the whole batch is added up by one warp: correct, but slow.

#ifndef COLUMNS
#define COLUMNS 768
#endif
static_assert(COLUMNS % 256 == 0, "a warp holds a row as vectors of eight");
constexpr int VECTORS = COLUMNS / 256;

// Copies batch number *step % batches into the fixed place that the captured step reads. Bytes: 16 a token. tokens is a multiple of 4.
extern "C" __global__ void __launch_bounds__(256)
select_batch(const int4* __restrict__ all_tokens, const int4* __restrict__ all_targets, int4* __restrict__ tokens,
             int4* __restrict__ targets, const u32* __restrict__ step, int batches, int vectors) {
  const size_t from = (size_t)(*step % (u32)batches) * vectors;
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= vectors) return;
  tokens[i] = all_tokens[from + i];
  targets[i] = all_targets[from + i];
}

extern "C" __global__ void __launch_bounds__(256)
embedding_forward(const int* __restrict__ tokens, const bf16* __restrict__ token_table, const bf16* __restrict__ position_table,
                  residual* __restrict__ x, int rows, int positions) {
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * 8 + threadIdx.x / 32;
  if (row >= rows) return;
  const size_t token = (size_t)tokens[row] * COLUMNS, position = (size_t)(row % positions) * COLUMNS;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const int column = (i * 32 + lane) * 8;
    float a[8], b[8];
    load8(token_table + token + column, a);
    load8(position_table + position + column, b);
#pragma unroll
    for (int j = 0; j < 8; j++) a[j] += b[j];
    store8(x + (size_t)row * COLUMNS + column, a);
  }
}

extern "C" __global__ void __launch_bounds__(128)
position_gradient(const bf16* __restrict__ dx, gradient* __restrict__ slot, int batch, int positions) {
  const int vectors = positions * (COLUMNS / 8);
  const int v = blockIdx.x * 128 + threadIdx.x;
  if (v >= vectors) return;
  const uint4* source = reinterpret_cast<const uint4*>(dx) + v;
  float sum[8] = {};
#pragma unroll 8
  for (int b = 0; b < batch; b++) {
    float d[8];
    unpack8(source[(size_t)b * vectors], d);
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j] += d[j];
  }
  store8(slot + (size_t)v * 8, sum);
}

constexpr int ROWS_A_BLOCK = 48;
constexpr int TILE = 1024;           // tokens looked at in one go: four a thread
constexpr int LISTED = 2 * TILE;     // room for what one tile can add to a list that is not yet emptied

struct Found { int position; int row; };

// Adds the listed rows of dx to the slot, one warp a table row.
__device__ __forceinline__ void add_listed(const Found* list, int count, const bf16* dx, gradient* slot, int first_row) {
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < ROWS_A_BLOCK; row += 8) {
    float sum[VECTORS][8] = {};
    bool any = false;
    for (int start = 0; start < count; start += 32) {
      const int at = start + lane;
      u32 mine = __ballot_sync(0xffffffffu, at < count && list[at].row == row);
      any |= mine != 0;
      while (mine) {
        const int position = list[start + __ffs(mine) - 1].position;
        mine &= mine - 1;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
          float d[8];
          load8(dx + (size_t)position * COLUMNS + (i * 32 + lane) * 8, d);
#pragma unroll
          for (int j = 0; j < 8; j++) sum[i][j] += d[j];
        }
      }
    }
    if (!any) continue;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      gradient* place = slot + (size_t)(first_row + row) * COLUMNS + (i * 32 + lane) * 8;
      float old[8];
      load8(place, old);
#pragma unroll
      for (int j = 0; j < 8; j++) old[j] += sum[i][j];
      store8(place, old);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
token_gradient(const int4* __restrict__ tokens, const bf16* __restrict__ dx, gradient* __restrict__ slot, int rows) {
  __shared__ Found list[LISTED];
  __shared__ int warp_counts[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_row = blockIdx.x * ROWS_A_BLOCK;
  int count = 0;
  for (int tile = 0; tile < rows; tile += TILE) {
    const int start = tile + threadIdx.x * 4;
    const int4 t = start < rows ? tokens[start / 4] : make_int4(-1, -1, -1, -1);
    const int local[4] = {t.x - first_row, t.y - first_row, t.z - first_row, t.w - first_row};
    int mine = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) mine += (u32)local[j] < (u32)ROWS_A_BLOCK;
    if (__syncthreads_or(mine) == 0) continue;
    int before = mine;  // inclusive prefix sum over the warp, then over the warps: the list keeps the order of positions
#pragma unroll
    for (int offset = 1; offset < 32; offset <<= 1) {
      const int other = __shfl_up_sync(0xffffffffu, before, offset);
      if (lane >= offset) before += other;
    }
    if (lane == 31) warp_counts[warp] = before;
    __syncthreads();
    int place = count + before - mine, found = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) {
      if (w < warp) place += warp_counts[w];
      found += warp_counts[w];
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
      if ((u32)local[j] < (u32)ROWS_A_BLOCK) list[place++] = Found{start + j, local[j]};
    count += found;
    __syncthreads();
    if (count > LISTED - TILE) {
      add_listed(list, count, dx, slot, first_row);
      count = 0;
      __syncthreads();
    }
  }
  __syncthreads();
  add_listed(list, count, dx, slot, first_row);
}
