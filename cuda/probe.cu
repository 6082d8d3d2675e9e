// probe: what the probe kernels share.
//
// The types are called as functions too, in all languages: u32(x) is a cast.

typedef int i32;
typedef unsigned long long u64;
typedef long long i64;
typedef uint4 quad;

static __device__ quad words(u32 a, u32 b, u32 c, u32 d) {
    return make_uint4(a, b, c, d);
}
