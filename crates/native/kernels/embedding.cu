// Token and position embedding: forward, and both gradients without atomics.
//
// Forward: x[m] = token_table[token[m]] + position_table[m % positions]. Bytes per element: 2 + 2 (cached) read, 2 or 4 written.
//
// Position gradient: dposition[t] = sum over the batch of dx[b * positions + t], in order of b. Bytes per element: 2 read.
//
// Token gradient: dtoken[v] += sum of dx[m] over the m with token[m] == v, in order of m. The slot already holds the output layer's part
// (tied weights). Instead of sorting the tokens, each of OWNERS blocks owns every OWNERS-th row of the table and scans all tokens (128 KB, from the
// L2 cache) for its own; found ones are listed in order in shared memory and added up in that order. Bytes per element of dx: 2 read, and
// 8 for each table row that occurs. A frequent token is added up by one block: its share of dx comes through one multiprocessor.
// Dynamic shared memory of token_gradient: LISTED * 12 + 8 * COLUMNS * 4 + ROWS_A_BLOCK * 4 bytes, below 57 KiB up to 1024 columns.

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

constexpr int OWNERS = 1024;       // blocks; a token's row belongs to block token % OWNERS, so that neighbours in the table are spread
constexpr int ROWS_A_BLOCK = 64;   // up to 65536 tokens
constexpr int TILE = 1024;        // tokens looked at in one go: four a thread
constexpr int LISTED = 2 * TILE;  // room for what one tile can add to a list that is not yet emptied
constexpr int FEW = 24;           // a row that occurs more often is added up by the whole block

struct Found { unsigned short row, unused; int position; };

struct Lists {
  Found all[LISTED];
  int positions[LISTED];      // of the row that the whole block adds up
  float parts[8][COLUMNS];    // each warp's sum
  int counts[ROWS_A_BLOCK];
};

// Adds dx[positions[k]] for k in [from, to), in order; four rows are in flight at a time.
__device__ __forceinline__ void add_rows(float (&sum)[VECTORS][8], const int* positions, int from, int to, const bf16* dx) {
  const int lane = threadIdx.x % 32;
#pragma unroll 4
  for (int k = from; k < to; k++) {
    const bf16* source = dx + (size_t)positions[k] * COLUMNS + lane * 8;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      float d[8];
      load8(source + i * 256, d);
#pragma unroll
      for (int j = 0; j < 8; j++) sum[i][j] += d[j];
    }
  }
}

// Adds the listed rows of dx to the slot: rows that occur seldom by one warp each, frequent ones by all warps, each warp a run of the
// occurrences and the runs in order. All threads of the block call it.
__device__ __forceinline__ void add_listed(Lists& lists, int count, const bf16* dx, gradient* slot) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int row = warp; row < ROWS_A_BLOCK; row += 8) {
    int occurrences = 0;
    for (int start = 0; start < count; start += 32) {
      const int at = start + lane;
      occurrences += __popc(__ballot_sync(0xffffffffu, at < count && lists.all[at].row == row));
    }
    if (lane == 0) lists.counts[row] = occurrences;
    if (occurrences == 0 || occurrences > FEW) continue;
    float sum[VECTORS][8] = {};
    for (int start = 0; start < count; start += 32) {
      const int at = start + lane;
      u32 mine = __ballot_sync(0xffffffffu, at < count && lists.all[at].row == row);
      while (mine) {
        const int k = start + __ffs(mine) - 1;
        mine &= mine - 1;
        add_rows(sum, &lists.all[k].position, 0, 1, dx);
      }
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      gradient* place = slot + ((size_t)row * OWNERS + blockIdx.x) * COLUMNS + (i * 32 + lane) * 8;
      float old[8];
      load8(place, old);
#pragma unroll
      for (int j = 0; j < 8; j++) old[j] += sum[i][j];
      store8(place, old);
    }
  }
  __syncthreads();
  for (int row = 0; row < ROWS_A_BLOCK; row++) {
    const int occurrences = lists.counts[row];
    if (occurrences <= FEW) continue;
    if (warp == 0) {  // the row's positions, in order
      int place = 0;
      for (int start = 0; start < count; start += 32) {
        const int at = start + lane;
        const bool is_mine = at < count && lists.all[at].row == row;
        const u32 mine = __ballot_sync(0xffffffffu, is_mine);
        if (is_mine) lists.positions[place + __popc(mine & ((1u << lane) - 1u))] = lists.all[at].position;
        place += __popc(mine);
      }
    }
    __syncthreads();
    float sum[VECTORS][8] = {};
    add_rows(sum, lists.positions, occurrences * warp / 8, occurrences * (warp + 1) / 8, dx);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) store8(&lists.parts[warp][(i * 32 + lane) * 8], sum[i]);
    __syncthreads();
    for (int column = threadIdx.x; column < COLUMNS; column += 256) {
      float total = 0.f;
#pragma unroll
      for (int w = 0; w < 8; w++) total += lists.parts[w][column];
      gradient* place = slot + ((size_t)row * OWNERS + blockIdx.x) * COLUMNS + column;
      put(place, value_of(*place) + total);
    }
    __syncthreads();
  }
}

// Grid: OWNERS blocks, 256 threads.
extern "C" __global__ void __launch_bounds__(256)
token_gradient(const int4* __restrict__ tokens, const bf16* __restrict__ dx, gradient* __restrict__ slot, int rows) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  Lists& lists = *reinterpret_cast<Lists*>(dynamic);
  __shared__ int warp_counts[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int count = 0;
  for (int tile = 0; tile < rows; tile += TILE) {
    const int start = tile + threadIdx.x * 4;
    const int4 t = start < rows ? tokens[start / 4] : make_int4(-1, -1, -1, -1);
    const int token[4] = {t.x, t.y, t.z, t.w};
    bool owned[4];
    int mine = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      owned[j] = token[j] >= 0 && token[j] % OWNERS == (int)blockIdx.x;
      mine += owned[j];
    }
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
      if (owned[j]) lists.all[place++] = Found{(unsigned short)(token[j] / OWNERS), 0, start + j};
    count += found;
    __syncthreads();
    if (count > LISTED - TILE) {
      add_listed(lists, count, dx, slot);
      count = 0;
      __syncthreads();
    }
  }
  __syncthreads();
  add_listed(lists, count, dx, slot);
}
