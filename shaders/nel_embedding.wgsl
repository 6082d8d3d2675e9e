// nel_embedding: y[t] = row ids[t] of embed, i8[V,N]: operation 1 of nel-mini-w8a8; the reference is
// cpu_ref/nel_mini_w8a8.py.
//
// Group x is 64 columns, group y the token.

override SCHEDULE: u32 = 0u;
override KNOWN_BAD: u32 = 0u;
override NONCE: u32 = 0u;

const COLUMNS: u32 = 64u;

// tokens, columns
@group(0) @binding(0) var<storage, read> params: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read> embed: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>;
@group(0) @binding(4) var<storage, read_write> receipt: array<u32>;

@compute @workgroup_size(64, 1, 1)
fn embed_tokens(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>) {
    let N = params[1];
    let token = group.y;
    let column = group.x * COLUMNS + lane.x;
    if (group.x + group.y + lane.x == 0u) {
        receipt[0] = NONCE;
    }
    if (column < N) {
        let at = (ids[token] ^ KNOWN_BAD) * N + column;
        y[token * N + column] = i8_of(embed[at >> 2u], at);
    }
}
