// Kernels of the CUDA device. Matrices are row-major: an address, a leading dimension in elements, rows and columns.
//
// Every kernel loops over its rows and columns in strides of its grid, so any grid does the whole work and a small one leaves most
// multiprocessors to GEMMs. Threads are numbered x along a row (neighbours access neighbouring elements) and y across rows.
// There are no includes, and only atomicAdd_system, shared memory and __syncthreads are used, so that NVRTC, nvcc and, through
// a shim, g++ compile the same text: the tests run these kernels on the host.

typedef long long i64;
typedef unsigned int u32;
struct bf16 { unsigned short bits; };

#define EACH_ROW(r, rows) for (i64 r = (i64)blockIdx.y * blockDim.y + threadIdx.y; r < (rows); r += (i64)gridDim.y * blockDim.y)
#define EACH_COLUMN(c, columns) for (i64 c = (i64)blockIdx.x * blockDim.x + threadIdx.x; c < (columns); c += (i64)gridDim.x * blockDim.x)
// 1024 threads, the largest block that is launched: the compiler may give each at most 64 registers on every architecture.
#define KERNEL extern "C" __global__ void __launch_bounds__(1024)

union Word { u32 bits; float value; };

static __device__ double widened(float x) { return x; }
static __device__ double widened(double x) { return x; }
static __device__ double widened(bf16 x) { Word w; w.bits = (u32)x.bits << 16; return w.value; }

static __device__ void store(float* to, float x) { *to = x; }
static __device__ void store(double* to, double x) { *to = x; }
static __device__ void store(bf16* to, float x) {              // rounded to nearest, ties to even; x is finite
    Word w; w.value = x;
    to->bits = (unsigned short)((w.bits + 0x7FFFu + ((w.bits >> 16) & 1u)) >> 16);
}

// -- target += value: atomic at system scope, because other GPUs and processes add to the same tile

template <class T>
static __device__ void accumulate(T* target, i64 ldt, const T* __restrict__ value, i64 ldv, i64 rows, i64 columns) {
    EACH_ROW(r, rows) EACH_COLUMN(c, columns) atomicAdd_system(target + r * ldt + c, value[r * ldv + c]);
}

KERNEL accumulate_f32(float* target, i64 ldt, const float* value, i64 ldv, i64 rows, i64 columns) {
    accumulate(target, ldt, value, ldv, rows, columns);
}

KERNEL accumulate_f64(double* target, i64 ldt, const double* value, i64 ldv, i64 rows, i64 columns) {
    accumulate(target, ldt, value, ldv, rows, columns);
}

// -- the same for words of 16 bytes, four rows at once: a thread has four loads in flight, so that few multiprocessors fill a link.
//    Addresses, leading dimensions and rows are multiples of 16 bytes; columns and leading dimensions count words.

#define ROWS_AT_ONCE 4

template <class Word16, class Make, class Put>
static __device__ void in_words(Word16* target, i64 ldt, const Word16* source, i64 lds, i64 rows, i64 columns, Make make, Put put) {
    const i64 step = (i64)gridDim.y * blockDim.y;
    for (i64 first = (i64)blockIdx.y * blockDim.y + threadIdx.y; first < rows; first += ROWS_AT_ONCE * step) {
        EACH_COLUMN(c, columns) {
            Word16 made[ROWS_AT_ONCE];
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; ++i) {
                const i64 r = first + i * step;
                if (r < rows) made[i] = make(target + r * ldt + c, source + r * lds + c);
            }
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; ++i) {
                const i64 r = first + i * step;
                if (r < rows) put(target + r * ldt + c, made[i]);
            }
        }
    }
}

struct Source { template <class T> __device__ T operator()(const T*, const T* source) const { return *source; } };
struct Write { template <class T> __device__ void operator()(T* target, T made) const { *target = made; } };

struct Sum {
    __device__ float4 operator()(const float4* target, const float4* source) const {
        const float4 x = *target, y = *source;
        return float4{x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
    }
};

struct AddAtomically {                                         // each of the four is atomic by itself
    __device__ void operator()(float4* target, float4 made) const {
#if __CUDA_ARCH__ >= 900
        atomicAdd_system(target, made);
#else
        atomicAdd_system(&target->x, made.x);
        atomicAdd_system(&target->y, made.y);
        atomicAdd_system(&target->z, made.z);
        atomicAdd_system(&target->w, made.w);
#endif
    }
};

KERNEL accumulate_f32x4(float4* target, i64 ldt, const float4* value, i64 ldv, i64 rows, i64 columns) {
    in_words(target, ldt, value, ldv, rows, columns, Source{}, AddAtomically{});
}

KERNEL add_f32x4(float4* target, i64 ldt, const float4* value, i64 ldv, i64 rows, i64 columns) {
    in_words(target, ldt, value, ldv, rows, columns, Sum{}, Write{});
}

KERNEL copy_rows(uint4* target, i64 ldt, const uint4* source, i64 lds, i64 rows, i64 columns) {
    in_words(target, ldt, source, lds, rows, columns, Source{}, Write{});
}

// -- target += value while no other thread writes; elements of a row of the value are `across` apart, so it may be column-major

template <class T>
static __device__ void add(T* target, i64 ldt, const T* value, i64 down, i64 across, i64 rows, i64 columns) {
    EACH_ROW(r, rows) EACH_COLUMN(c, columns) target[r * ldt + c] += value[r * down + c * across];
}

KERNEL add_f32(float* target, i64 ldt, const float* value, i64 down, i64 across, i64 rows, i64 columns) {
    add(target, ldt, value, down, across, rows, columns);
}

KERNEL add_f64(double* target, i64 ldt, const double* value, i64 down, i64 across, i64 rows, i64 columns) {
    add(target, ldt, value, down, across, rows, columns);
}

// -- target *= factor

template <class T>
static __device__ void scale(T* target, i64 ldt, i64 rows, i64 columns, T factor) {
    EACH_ROW(r, rows) EACH_COLUMN(c, columns) target[r * ldt + c] *= factor;
}

KERNEL scale_f32(float* target, i64 ldt, i64 rows, i64 columns, float factor) { scale(target, ldt, rows, columns, factor); }
KERNEL scale_f64(double* target, i64 ldt, i64 rows, i64 columns, double factor) { scale(target, ldt, rows, columns, factor); }

// -- target = 0, by the size of an element: zero is all bits zero in every dtype

template <class T>
static __device__ void zero(T* target, i64 ldt, i64 rows, i64 columns) {
    EACH_ROW(r, rows) EACH_COLUMN(c, columns) target[r * ldt + c] = 0;
}

KERNEL zero_b2(unsigned short* target, i64 ldt, i64 rows, i64 columns) { zero(target, ldt, rows, columns); }
KERNEL zero_b4(u32* target, i64 ldt, i64 rows, i64 columns) { zero(target, ldt, rows, columns); }
KERNEL zero_b8(i64* target, i64 ldt, i64 rows, i64 columns) { zero(target, ldt, rows, columns); }

// -- target = source: runs of rows x rows x runs of columns x columns, any strides (in units of T) on both sides.
//    Index arithmetic in 32 bits, because a division by 64 bits would cost more than the memory access.

template <class T>
static __device__ void copy(T* target, i64 t0, i64 t1, i64 t2, i64 t3, const T* source, i64 s0, i64 s1, i64 s2, i64 s3,
                            u32 n0, u32 n1, u32 n2, u32 n3) {
    EACH_ROW(r, (i64)n0 * n1) {
        const i64 i0 = (u32)r / n1, i1 = (u32)r % n1;
        EACH_COLUMN(c, (i64)n2 * n3) {
            const i64 i2 = (u32)c / n3, i3 = (u32)c % n3;
            target[i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3] = source[i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3];
        }
    }
}

#define COPY(name, T) \
    KERNEL name(T* target, i64 t0, i64 t1, i64 t2, i64 t3, const T* source, i64 s0, i64 s1, i64 s2, i64 s3, u32 n0, u32 n1, u32 n2, u32 n3) { \
        copy(target, t0, t1, t2, t3, source, s0, s1, s2, s3, n0, n1, n2, n3); \
    }
COPY(copy_b2, unsigned short)
COPY(copy_b4, u32)
COPY(copy_b8, i64)
COPY(copy_b16, uint4)

// -- the elements of A and B, as drbench/host/fill.py makes them: range is levels + 256*bound for integers, 0 for uniform

static __device__ u32 mix(u32 x) {
    x ^= x >> 16; x *= 0x7FEB352Du;
    x ^= x >> 15; x *= 0x846CA68Bu;
    return x ^ (x >> 16);
}

static __device__ float hashed(i64 row, i64 column, u32 salt, u32 range) {
    u32 x = mix((u32)row ^ salt) ^ (mix((u32)column + salt) * 0x9E3779B1u + 0x7F4A7C15u);
    x *= 0x9E3779B1u;
    x ^= x >> 15;
    x *= 0x85EBCA77u;
    x >>= 8;                                                   // 24 good bits: exact in float
    if (!range) return (float)x * 1.1920928955078125e-07f - 1.0f;      // 2^-23
    const int level = (int)((x * (range & 255)) >> 24) - (int)((range & 255) / 2), bound = (int)(range >> 8);
    return -bound <= level && level <= bound ? (float)level : 0.0f;
}

template <class T>
static __device__ void fill(T* out, i64 ld, i64 rows, i64 columns, i64 row0, i64 col0, u32 transposed, u32 salt, u32 range) {
    EACH_ROW(r, rows) EACH_COLUMN(c, columns) {                // transposed: the matrix is stored transposed
        store(out + r * ld + c, transposed ? hashed(row0 + c, col0 + r, salt, range) : hashed(row0 + r, col0 + c, salt, range));
    }
}

KERNEL fill_f32(float* out, i64 ld, i64 rows, i64 columns, i64 row0, i64 col0, u32 transposed, u32 salt, u32 range) {
    fill(out, ld, rows, columns, row0, col0, transposed, salt, range);
}

KERNEL fill_f64(double* out, i64 ld, i64 rows, i64 columns, i64 row0, i64 col0, u32 transposed, u32 salt, u32 range) {
    fill(out, ld, rows, columns, row0, col0, transposed, salt, range);
}

KERNEL fill_bf16(bf16* out, i64 ld, i64 rows, i64 columns, i64 row0, i64 col0, u32 transposed, u32 salt, u32 range) {
    fill(out, ld, rows, columns, row0, col0, transposed, salt, range);
}

// -- matrix * x in double: block (i, j) makes element (i, j) of the result, x being columns x vectors. The sum is always made in
//    the same order: each thread every THREADS-th column, then the first thread over the threads.

#define THREADS 128

template <class Matrix>
static __device__ void multiply_by_vectors(Matrix matrix, i64 columns, const double* x, i64 vectors, double* out) {
    __shared__ double part[THREADS];
    const i64 row = blockIdx.x, vector = blockIdx.y;
    double sum = 0;
    for (i64 c = threadIdx.x; c < columns; c += THREADS) sum += matrix(row, c) * x[c * vectors + vector];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int t = 0; t < THREADS; ++t) sum += part[t];
        out[row * vectors + vector] = sum;
    }
}

template <class T>
struct Stored {
    const T* tile;
    i64 ld;
    __device__ double operator()(i64 r, i64 c) const { return widened(tile[r * ld + c]); }
};

struct Hashed {                                                // regenerated, so that the check is independent of the matrix
    i64 row0;
    u32 salt, range;
    __device__ double operator()(i64 r, i64 c) const { return hashed(row0 + r, c, salt, range); }
};

KERNEL times_f32(const float* tile, i64 ld, i64 columns, const double* x, i64 vectors, double* out) {
    multiply_by_vectors(Stored<float>{tile, ld}, columns, x, vectors, out);
}

KERNEL times_f64(const double* tile, i64 ld, i64 columns, const double* x, i64 vectors, double* out) {
    multiply_by_vectors(Stored<double>{tile, ld}, columns, x, vectors, out);
}

KERNEL times_bf16(const bf16* tile, i64 ld, i64 columns, const double* x, i64 vectors, double* out) {
    multiply_by_vectors(Stored<bf16>{tile, ld}, columns, x, vectors, out);
}

KERNEL hashed_times(i64 row0, u32 salt, u32 range, i64 columns, const double* x, i64 vectors, double* out) {
    multiply_by_vectors(Hashed{row0, salt, range}, columns, x, vectors, out);
}

// -- flag = 1 if an element is NaN or infinite: then, and only then, x - x is not 0; if whole, also if one has a fraction

template <class T>
static __device__ void not_finite(const T* tile, i64 ld, i64 rows, i64 columns, u32 whole, u32* flag) {
    EACH_ROW(r, rows) EACH_COLUMN(c, columns) {
        const double x = widened(tile[r * ld + c]);
        if (x - (whole && x > -9e15 && x < 9e15 ? (double)(i64)x : x) != 0) *flag = 1;  // beyond 2^53 all are whole
    }
}

KERNEL not_finite_f32(const float* tile, i64 ld, i64 rows, i64 columns, u32 whole, u32* flag) { not_finite(tile, ld, rows, columns, whole, flag); }
KERNEL not_finite_f64(const double* tile, i64 ld, i64 rows, i64 columns, u32 whole, u32* flag) { not_finite(tile, ld, rows, columns, whole, flag); }
KERNEL not_finite_bf16(const bf16* tile, i64 ld, i64 rows, i64 columns, u32 whole, u32* flag) { not_finite(tile, ld, rows, columns, whole, flag); }
