// probe: what the probe kernels share.
//
// The types are called as functions too, in all languages: u32(x) is a cast.

alias quad = vec4<u32>;

fn words(a: u32, b: u32, c: u32, d: u32) -> quad {
    return quad(a, b, c, d);
}
