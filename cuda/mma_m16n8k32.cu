// The shape of an mma: 16 x 8 outputs of a warp from 32 terms, signed bytes, in registers of lane 4 g + p:
// word w of A is row g + 8 (w & 1), terms 4 p .. 4 p + 3 of the half w >> 1; word w of B is column g, the terms of half w;
// word w of D is row g + 8 (w >> 1), column 2 p + (w & 1). Those are the fragments of PTX's manual.
#define ROWS 16u
#define STEP 32u
#define WORDS_A 4u
#define WORDS_B 2u
#define WORDS_D 4u

typedef unsigned int u32;

// d plus the products of a and b, by all lanes of a warp together. On a host compiler the runtime computes it.
static __device__ void multiply_add(u32 *d, const u32 *a, const u32 *b) {
#ifdef __CUDA_ARCH__
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    samebits::mma_m16n8k32_s8(d, a, b);
#endif
}
