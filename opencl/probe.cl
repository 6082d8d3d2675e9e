// probe: what the probe kernels share.
//
// The types are called as functions too, in all languages: u32(x) is a cast.

typedef int i32;
typedef ulong u64;
typedef long i64;
typedef uint4 quad;
#define i32(x) ((i32)(x))
#define u32(x) ((u32)(x))
#define i64(x) ((i64)(x))
#define u64(x) ((u64)(x))

static quad words(u32 a, u32 b, u32 c, u32 d) {
    return (uint4)(a, b, c, d);
}
