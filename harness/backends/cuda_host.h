// CUDA on a host C++ compiler, the kernel's side: what a .cu file of this project may use, and nothing else.
// It is included before the kernel; cuda_host.cpp runs the blocks. No standard header is included, so that a
// kernel's names cannot clash with one.
#pragma once

struct uint2 {
    unsigned int x, y;
};

struct uint3 {
    unsigned int x, y, z;
};

struct uint4 {
    unsigned int x, y, z, w;
};

struct dim3 {
    unsigned int x = 1, y = 1, z = 1;
};

inline float __uint_as_float(unsigned int word) { return __builtin_bit_cast(float, word); }
inline unsigned int __float_as_uint(float value) { return __builtin_bit_cast(unsigned int, value); }
inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
inline uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z) { return {x, y, z}; }
inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }

// Not const, not static: they change at every switch of lanes, so the compiler reads them again after a barrier.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

#define __global__
#define __device__
#define __constant__ const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)

// Shared memory is static: a process runs one block at a time. It has a section of its own, so that the runtime can
// poison it before each block. `used`: no optimiser may conclude that only this function writes it.
#define __shared__ static __attribute__((section(".samebits.shared"), used))

namespace samebits {

void barrier(int line);

// The warp's instructions mma.sync ... .s32.s8.s8.s32 without .satfinite; a block of theirs is one warp.
void mma_m8n8k16_s8(unsigned int *d, const unsigned int *a, const unsigned int *b);
void mma_m16n8k32_s8(unsigned int *d, const unsigned int *a, const unsigned int *b);

// A pointer argument of any element type.
struct Argument {
    void *address;
    template <class T> operator T *() const { return static_cast<T *>(address); }
};

// An entry point. The table of them is written behind the kernel and ends with a null name.
struct Entry {
    const char *name;
    unsigned int arguments;
    void (*call)(const Argument *);
};

}  // namespace samebits

#define __syncthreads() samebits::barrier(__LINE__)

inline unsigned int __umulhi(unsigned int a, unsigned int b) {
    return static_cast<unsigned int>(static_cast<unsigned long long>(a) * b >> 32);
}

// Dot products of packed bytes, added to c modulo 2^32. The bytes are taken apart here by casts, in kernels by arithmetic.
// Written out, for g++ makes a slow vector of the loop.
inline int __dp4a(int a, int b, int c) {
    const auto product = [a, b](int shift) {
        return static_cast<signed char>(a >> shift) * static_cast<signed char>(b >> shift);
    };
    return static_cast<int>(
        static_cast<unsigned int>(c) +
        static_cast<unsigned int>(product(0) + product(8) + product(16) + product(24)));
}
inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
    const auto product = [a, b](int shift) {
        return static_cast<unsigned int>(static_cast<unsigned char>(a >> shift)) * static_cast<unsigned char>(b >> shift);
    };
    return c + product(0) + product(8) + product(16) + product(24);
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned int __umul24(unsigned int a, unsigned int b) { return (a & 0xffffffu) * (b & 0xffffffu); }
inline int __mul24(int a, int b) {
    const auto low = [](int x) { return static_cast<unsigned int>(static_cast<int>(static_cast<unsigned int>(x) << 8) >> 8); };
    return static_cast<int>(low(a) * low(b));
}
inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(a)); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(a)); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __popc(unsigned int a) { return __builtin_popcount(a); }
inline unsigned int __brev(unsigned int a) {
    unsigned int reversed = 0;
    for (int i = 0; i < 32; i++) reversed |= (a >> i & 1u) << (31 - i);
    return reversed;
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int count) {
    return static_cast<unsigned int>(((static_cast<unsigned long long>(high) << 32 | low) << (count & 31)) >> 32);
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int count) {
    return static_cast<unsigned int>((static_cast<unsigned long long>(high) << 32 | low) >> (count & 31));
}
inline int min(int a, int b) { return b < a ? b : a; }
inline int max(int a, int b) { return a < b ? b : a; }
inline unsigned int min(unsigned int a, unsigned int b) { return b < a ? b : a; }
inline unsigned int max(unsigned int a, unsigned int b) { return a < b ? b : a; }

// Atomics: lanes of a block never run at once, blocks of other processes do.
template <class T> T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
template <class T> T atomicSub(T *p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); }
template <class T> T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }
template <class T> T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
template <class T> T atomicXor(T *p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); }
template <class T> T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }
template <class T> T atomicCAS(T *p, T old, T v) {
    __atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return old;
}
template <class T> T atomicMin(T *p, T v) {
    T old = *p;
    while (v < old && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
template <class T> T atomicMax(T *p, T v) {
    T old = *p;
    while (old < v && !__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
