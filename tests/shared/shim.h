// Enough of CUDA to compile drbench/device/gpu/kernels.cu with g++ and run it on the host: a launch runs its blocks one after another and
// the threads of a block as coroutines on the thread that launches, so that __syncthreads waits for all of them; where the first of them
// ends without it, no other may call it, and all run as they are.
// Several host threads may launch at once; then the atomic operations are atomic between them.

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <ucontext.h>
#include <utility>

#define __CUDA_ARCH__ 900
#define __global__
#define __launch_bounds__(threads)
#define __device__
#define __shared__ static thread_local

struct Index { unsigned x, y, z; };
static thread_local Index blockIdx, threadIdx, blockDim, gridDim;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

static void atomicAdd_system(float* to, float x) { std::atomic_ref<float>(*to).fetch_add(x); }
static void atomicAdd_system(double* to, double x) { std::atomic_ref<double>(*to).fetch_add(x); }
static std::atomic<long long> vector_additions;                // so that a test can tell which kernel added
static void atomicAdd_system(float4* to, float4 v) {
    if ((size_t)to % 16) __builtin_trap();                     // a GPU reports a misaligned address
    vector_additions += 1;
    atomicAdd_system(&to->x, v.x); atomicAdd_system(&to->y, v.y); atomicAdd_system(&to->z, v.z); atomicAdd_system(&to->w, v.w);
}

struct Coroutine { ucontext_t context; Index index; bool done; std::unique_ptr<char[]> stack; };
static thread_local ucontext_t scheduler;
static thread_local Coroutine* running;
static thread_local void (*body)(void**);
static thread_local void** body_arguments;
static constexpr size_t STACK = 32 << 10;

static void __syncthreads() {
    if (!running) __builtin_trap();                            // some threads of a block wait and others do not
    swapcontext(&running->context, &scheduler);
}
static void run_thread() { body(body_arguments); running->done = true; }
extern "C" long long vector_additions_so_far() { return vector_additions; }
