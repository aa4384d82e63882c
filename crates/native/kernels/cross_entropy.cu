// Softmax cross-entropy over the vocabulary: the loss of every row, and its gradient in place of the logits.
//
// Why fused: the logits are the step's largest tensor (3.3 GB for 32768 rows of 50304); this reads and writes them once. A row
// (100 KB in bf16) is brought into shared memory by the bulk copy engine in four pieces; the largest value is found piece by piece
// while the rest is still arriving. Two blocks share a multiprocessor, so one computes while the other loads. The gradient may be written
// at forward time because the seed, `scale` = 1 / rows, is known.
//
//   loss = log(sum(exp(z))) - z[target]      dz = (exp(z - largest) / sum - [column == target]) scale
//
// Columns from `classes` to `columns` are padding: they count as minus infinity, their gradient is 0.
// Bytes per element: 2 read + 2 written. Special functions per element: 2 exponentials.
// Dynamic shared memory: columns * 2 bytes. columns is a multiple of 8.

constexpr int THREADS = 512;
constexpr int PIECES = 4;

extern "C" __global__ void __launch_bounds__(THREADS, 2)
cross_entropy(bf16* __restrict__ logits, const int* __restrict__ targets, float* __restrict__ losses, int classes, int columns,
              float scale) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  __shared__ __align__(8) u64 barriers[PIECES];
  __shared__ float scratch[THREADS / 32];
  uint4* row = reinterpret_cast<uint4*>(dynamic);
  uint4* source = reinterpret_cast<uint4*>(logits + (size_t)blockIdx.x * columns);
  const int vectors = columns / 8, piece = (vectors + PIECES - 1) / PIECES;
  const int target = targets[blockIdx.x];

  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) barrier_start(&barriers[i]);
    barriers_visible();
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const int from = min(i * piece, vectors), to = min(from + piece, vectors);
      if (to > from) bulk_load(row + from, source + from, (u32)(to - from) * 16u, &barriers[i]);
    }
  }
  __syncthreads();

  u32 largest_pair = 0xff80ff80u;
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    const int from = min(i * piece, vectors), to = min(from + piece, vectors);
    if (to > from) bulk_wait(&barriers[i]);
    if (to > classes / 8) {  // uniform over the block: this piece holds padding
      unsigned short* values = reinterpret_cast<unsigned short*>(dynamic);
      for (int column = max(classes, from * 8) + (int)threadIdx.x; column < to * 8; column += THREADS) values[column] = 0xff80;
      __syncthreads();
    }
    for (int v = from + threadIdx.x; v < to; v += THREADS) {
      const uint4 raw = row[v];
      largest_pair = larger_of_pairs(largest_pair, larger_of_pairs(larger_of_pairs(raw.x, raw.y), larger_of_pairs(raw.z, raw.w)));
    }
  }
  const float largest =
      block_largest<THREADS / 32>(fmaxf(first_of(largest_pair), second_of(largest_pair)), scratch);

  const float offset = -largest * LOG2_E;
  float sum = 0.f;
  for (int v = threadIdx.x; v < vectors; v += THREADS) {
    float z[8];
    unpack8(row[v], z);
#pragma unroll
    for (int j = 0; j < 8; j++) sum += power_of_two(fmaf(z[j], LOG2_E, offset));
  }
  const float total = block_sum<THREADS / 32>(sum, scratch);

  const float shifted = offset + log2f(scale / total);  // exp2(z log2(e) + shifted) = scale exp(z - largest) / total
  for (int v = threadIdx.x; v < vectors; v += THREADS) {
    float z[8];
    unpack8(row[v], z);
#pragma unroll
    for (int j = 0; j < 8; j++) z[j] = power_of_two(fmaf(z[j], LOG2_E, shifted));
    source[v] = pack8(z);
  }
  if (threadIdx.x == (target / 8) % THREADS) {  // the thread that wrote the target's vector writes the target over it
    const float z = value_of(reinterpret_cast<const bf16*>(dynamic)[target]);
    losses[blockIdx.x] = logf(total) + largest - z;
    put(logits + (size_t)blockIdx.x * columns + target, power_of_two(fmaf(z, LOG2_E, shifted)) - scale);
  }
}

// The mean of the rows' losses into history[step % length], one block; also the end of a deterministic sum. Bytes: 4 a row.
extern "C" __global__ void __launch_bounds__(1024)
mean_loss(const float* __restrict__ losses, float* __restrict__ history, const u32* __restrict__ step, int rows, int length) {
  __shared__ float scratch[32];
  float sum = 0.f;
  for (int row = threadIdx.x; row < rows; row += 1024) sum += losses[row];
  const float total = block_sum<32>(sum, scratch);
  if (threadIdx.x == 0) history[*step % (u32)length] = total / (float)rows;
}
