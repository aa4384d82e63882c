// Slow, plain kernels in double precision: the reference that fast engines are held against at sampled points.
// One block a sample. T is the 16-bit type; values are widened exactly.
typedef unsigned short bits;
typedef long long i64;

__device__ __forceinline__ double wide(bits v) {
#ifdef BF16
    return (double)__uint_as_float((unsigned)v << 16);
#else
    float f;
    asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "h"(v));
    return (double)f;
#endif
}

// Sum over a block of 256 threads; the result is valid in thread 0.
__device__ double total(double v) {
    __shared__ double part[256];
    part[threadIdx.x] = v;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    double sum = part[0];
    __syncthreads();
    return sum;
}

struct Geometry {
    i64 n, c, h, w, k, r, s, p, q, before_h, before_w, stride;
};

// An activation as the convolution sees it: x, or max(0, x scale + bias).
__device__ __forceinline__ double activation(const bits* x, const bits* scale, const bits* bias, i64 at, i64 c) {
    double v = wide(x[at]);
    if (scale) v = fmax(0.0, v * wide(scale[c]) + wide(bias[c]));
    return v;
}

// y at sampled positions (linear indices of N P Q K).
extern "C" __global__ void convolution(Geometry g, const bits* x, const bits* w, const bits* scale, const bits* bias,
                                       const i64* samples, double* expected) {
    i64 at = samples[blockIdx.x];
    i64 k = at % g.k, q = at / g.k % g.q, p = at / g.k / g.q % g.p, n = at / g.k / g.q / g.p;
    double sum = 0;
    for (i64 e = threadIdx.x; e < g.r * g.s * g.c; e += 256) {
        i64 c = e % g.c, s = e / g.c % g.s, r = e / g.c / g.s;
        i64 h = p * g.stride + r - g.before_h, v = q * g.stride + s - g.before_w;
        if (h < 0 || v < 0 || h >= g.h || v >= g.w) continue;
        sum += activation(x, scale, bias, ((n * g.h + h) * g.w + v) * g.c + c, c)
             * wide(w[((k * g.r + r) * g.s + s) * g.c + c]);
    }
    sum = total(sum);
    if (threadIdx.x == 0) expected[blockIdx.x] = sum;
}

// dx at sampled positions (linear indices of N H W C). With `mean`, masked where the batch-normalised input is not
// positive.
extern "C" __global__ void data_gradient(Geometry g, const bits* dy, const bits* w, const bits* x, const float* mean,
                                         const float* inverse, const float* scale, const float* bias,
                                         const i64* samples, double* expected) {
    i64 at = samples[blockIdx.x];
    i64 c = at % g.c, v = at / g.c % g.w, h = at / g.c / g.w % g.h, n = at / g.c / g.w / g.h;
    double sum = 0;
    for (i64 e = threadIdx.x; e < g.r * g.s * g.k; e += 256) {
        i64 k = e % g.k, s = e / g.k % g.s, r = e / g.k / g.s;
        i64 top = h + g.before_h - r, left = v + g.before_w - s;
        if (top < 0 || left < 0 || top % g.stride || left % g.stride) continue;
        i64 p = top / g.stride, q = left / g.stride;
        if (p >= g.p || q >= g.q) continue;
        sum += wide(dy[((n * g.p + p) * g.q + q) * g.k + k]) * wide(w[((k * g.r + r) * g.s + s) * g.c + c]);
    }
    sum = total(sum);
    if (threadIdx.x == 0) {
        if (mean) {
            double normal = (wide(x[at]) - mean[c]) * inverse[c] * scale[c] + bias[c];
            if (!(normal > 0)) sum = 0;
        }
        expected[blockIdx.x] = sum;
    }
}

// dw at sampled positions (linear indices of K R S C).
extern "C" __global__ void weight_gradient(Geometry g, const bits* x, const bits* dy, const bits* scale, const bits* bias,
                                           const i64* samples, double* expected) {
    i64 at = samples[blockIdx.x];
    i64 c = at % g.c, s = at / g.c % g.s, r = at / g.c / g.s % g.r, k = at / g.c / g.s / g.r;
    double sum = 0;
    for (i64 e = threadIdx.x; e < g.n * g.p * g.q; e += 256) {
        i64 q = e % g.q, p = e / g.q % g.p, n = e / g.q / g.p;
        i64 h = p * g.stride + r - g.before_h, v = q * g.stride + s - g.before_w;
        if (h < 0 || v < 0 || h >= g.h || v >= g.w) continue;
        sum += activation(x, scale, bias, ((n * g.h + h) * g.w + v) * g.c + c, c) * wide(dy[e * g.k + k]);
    }
    sum = total(sum);
    if (threadIdx.x == 0) expected[blockIdx.x] = sum;
}

// For each of `channels` channels (one block each) the sum and the sum of squares of y; with `x`, the sum of y and
// of y times the normalised x.
extern "C" __global__ void channel_sums(const bits* y, const bits* x, const float* mean, const float* inverse,
                                        i64 pixels, i64 channels, double* first, double* second) {
    i64 c = blockIdx.x;
    double a = 0, b = 0;
    for (i64 e = threadIdx.x; e < pixels; e += 256) {
        double v = wide(y[e * channels + c]);
        a += v;
        b += x ? v * ((wide(x[e * channels + c]) - mean[c]) * inverse[c]) : v * v;
    }
    a = total(a);
    b = total(b);
    if (threadIdx.x == 0) {
        first[c] = a;
        second[c] = b;
    }
}

// Sum over k of left[i, k] right[k, j] at sampled (i, j) of a rows x columns output; strides in elements.
extern "C" __global__ void product(const bits* left, i64 left_row, i64 left_inner, const bits* right, i64 right_inner,
                                   i64 right_column, i64 inner, i64 columns, const i64* samples, double* expected) {
    i64 at = samples[blockIdx.x], i = at / columns, j = at % columns;
    double sum = 0;
    for (i64 e = threadIdx.x; e < inner; e += 256)
        sum += wide(left[i * left_row + e * left_inner]) * wide(right[e * right_inner + j * right_column]);
    sum = total(sum);
    if (threadIdx.x == 0) expected[blockIdx.x] = sum;
}

// values[i] = from[samples[i]], widened; `wide_values` says that `from` is fp32.
extern "C" __global__ void gather(const void* from, int wide_values, const i64* samples, int count, double* values) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    i64 at = samples[i];
    values[i] = wide_values ? (double)((const float*)from)[at] : wide(((const bits*)from)[at]);
}

// Counts the elements in which two buffers differ, for each of three parts. Element e is of part e / step % 3.
extern "C" __global__ void differing(const bits* a, const bits* b, i64 count, i64 step, unsigned long long* counts) {
    unsigned long long found[3] = {0, 0, 0};
    for (i64 e = blockIdx.x * 256ll + threadIdx.x; e < count; e += gridDim.x * 256ll)
        if (a[e] != b[e]) found[e / step % 3]++;
    for (int part = 0; part < 3; part++)
        if (found[part]) atomicAdd(counts + part, found[part]);
}
