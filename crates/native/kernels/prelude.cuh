// What every kernel shares: bf16 as bits, vectors of eight, warp and block sums, bulk copies into shared memory.
//
// Put in front of each kernel's text before NVRTC sees it, so that no CUDA header is needed. All statistics are fp32; bf16 values are
// rounded to nearest even. Sums over a warp or a block have one fixed order, so a result has the same bits in every run.
//
// Macros set at compile time: RESIDUAL (float or bf16, the residual stream), GRADIENT (float or bf16, the gradient slots).

typedef unsigned int u32;
typedef unsigned long long u64;

struct bf16 { unsigned short bits; };

#ifndef RESIDUAL
#define RESIDUAL bf16
#endif
#ifndef GRADIENT
#define GRADIENT float
#endif
typedef RESIDUAL residual;
typedef GRADIENT gradient;

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

// ---- bf16 pairs: the lower half word is the first element
__device__ __forceinline__ float first_of(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float second_of(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ u32 pair_of(float first, float second) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
__device__ __forceinline__ u32 larger_of_pairs(u32 a, u32 b) {
  u32 pair;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  return pair;
}
__device__ __forceinline__ float value_of(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float value_of(float x) { return x; }
__device__ __forceinline__ void put(bf16* p, float x) { p->bits = (unsigned short)(pair_of(x, 0.f) & 0xffffu); }
__device__ __forceinline__ void put(float* p, float x) { *p = x; }

// ---- eight values: one 16-byte access in bf16, two in fp32
__device__ __forceinline__ void unpack8(uint4 raw, float (&v)[8]) {
  v[0] = first_of(raw.x); v[1] = second_of(raw.x); v[2] = first_of(raw.y); v[3] = second_of(raw.y);
  v[4] = first_of(raw.z); v[5] = second_of(raw.z); v[6] = first_of(raw.w); v[7] = second_of(raw.w);
}
__device__ __forceinline__ uint4 pack8(const float (&v)[8]) {
  return make_uint4(pair_of(v[0], v[1]), pair_of(v[2], v[3]), pair_of(v[4], v[5]), pair_of(v[6], v[7]));
}
__device__ __forceinline__ void load8(const bf16* p, float (&v)[8]) { unpack8(*reinterpret_cast<const uint4*>(p), v); }
__device__ __forceinline__ void load8(const float* p, float (&v)[8]) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  v[0] = a.x; v[1] = a.y; v[2] = a.z; v[3] = a.w; v[4] = b.x; v[5] = b.y; v[6] = b.z; v[7] = b.w;
}
__device__ __forceinline__ void store8(bf16* p, const float (&v)[8]) { *reinterpret_cast<uint4*>(p) = pack8(v); }
__device__ __forceinline__ void store8(float* p, const float (&v)[8]) {
  reinterpret_cast<float4*>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

// ---- arithmetic with the special function unit
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- reductions
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}
__device__ __forceinline__ float warp_largest(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}
// Every thread of a block of WARPS warps gets the sum (or the largest); `scratch` holds WARPS floats and is free after the call.
template <int WARPS>
__device__ __forceinline__ float block_sum(float x, float* scratch) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0.f;
#pragma unroll
  for (int warp = 0; warp < WARPS; warp++) total += scratch[warp];
  __syncthreads();
  return total;
}
template <int WARPS>
__device__ __forceinline__ float block_largest(float x, float* scratch) {
  x = warp_largest(x);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float largest = scratch[0];
#pragma unroll
  for (int warp = 1; warp < WARPS; warp++) largest = fmaxf(largest, scratch[warp]);
  __syncthreads();
  return largest;
}

// ---- bulk copy engine: global to shared memory, completion counted in bytes by a barrier in shared memory
__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_start(u64* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barriers_visible() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void bulk_load(void* shared, const void* global, u32 bytes, u64* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
// Waits for the barrier's first phase: one load per barrier and launch.
__device__ __forceinline__ void bulk_wait(u64* barrier) {
  u32 done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(shared_address(barrier))
        : "memory");
  }
}
