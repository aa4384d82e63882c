// AdamW over one flat range of parameters: master weights, both moments and the bf16 working copy in one pass.
//
// Why flat: gradients, masters, moments and working copies share one order (256-byte slots), so one launch replaces a kernel and a cast
// for each parameter, and a shard of the optimizer is a range. Decay is decoupled and applies to every parameter.
//
//   m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
//   w = w (1 - lr decay) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
//
// Bytes per parameter: 4 (or 2) gradient + 12 read, 12 + 2 written: 30 (28). Epsilon stands outside the root.

// What the optimizer needs of a step; lives in device memory because a captured launch freezes its arguments.
struct Scalars {
  u32 step;               // steps done before this one
  float learning_rate, first_decay, second_decay, epsilon, weight_decay;
  float first_correction; // 1 / (1 - b1^t)
  float second_correction;  // 1 / sqrt(1 - b2^t)
  double first_power, second_power;  // b1^t, b2^t as running products
};

// One thread: the step's number and corrections. Runs once, before the first range of the step is updated.
extern "C" __global__ void next_step(Scalars* s) {
  s->step += 1;
  s->first_power *= (double)s->first_decay;
  s->second_power *= (double)s->second_decay;
  s->first_correction = (float)(1.0 / (1.0 - s->first_power));
  s->second_correction = (float)(1.0 / sqrt(1.0 - s->second_power));
}

// count is a multiple of 8; eight parameters a thread.
extern "C" __global__ void __launch_bounds__(256)
adamw(const gradient* __restrict__ gradients, float* __restrict__ master, float* __restrict__ first, float* __restrict__ second,
      bf16* __restrict__ working, const Scalars* __restrict__ scalars, u64 count) {
  const u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * 8;
  if (i >= count) return;
  float g[8], w[8], m[8], v[8];
  load8(gradients + i, g);
  load8(master + i, w);
  load8(first + i, m);
  load8(second + i, v);
  const float rate = scalars->learning_rate, b1 = scalars->first_decay, b2 = scalars->second_decay, epsilon = scalars->epsilon;
  const float keep = 1.f - rate * scalars->weight_decay;
  const float step_size = rate * scalars->first_correction, second_correction = scalars->second_correction;
#pragma unroll
  for (int j = 0; j < 8; j++) {
    m[j] = b1 * m[j] + (1.f - b1) * g[j];
    v[j] = b2 * v[j] + (1.f - b2) * g[j] * g[j];
    w[j] = w[j] * keep - step_size * __fdividef(m[j], sqrtf(v[j]) * second_correction + epsilon);
  }
  store8(first + i, m);
  store8(second + i, v);
  store8(master + i, w);
  store8(working + i, w);
}

// The working copy from the master weights, at the start. Bytes per parameter: 4 read, 2 written.
extern "C" __global__ void __launch_bounds__(256)
write_working_copy(const float* __restrict__ master, bf16* __restrict__ working, u64 count) {
  const u64 i = ((u64)blockIdx.x * 256 + threadIdx.x) * 8;
  if (i >= count) return;
  float w[8];
  load8(master + i, w);
  store8(working + i, w);
}
