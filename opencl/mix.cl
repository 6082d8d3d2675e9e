// mix: o[t,h,d] = round_shift(sum over s of p[h,t,s] * v[s,g,d], 30) over the keys s that query t sees, p Q30, v and o
// Q16, all of 64 bits: op 7 of profile dyadic-q16; the reference is cpu_ref/dyadic_q16.py.
//
// The queries are the last T of the S positions; one sees its own and those before it. Query head h reads value head
// g = floor(h / (H / kv)). Sums are pairs of words by the prelude int64_limbs, exact modulo 2^64. A lane makes one
// output: group x is 64 elements of a head, group y the query, group z the head. Under the schedule tree a workgroup
// makes one output: group x is the element, 64 lanes take turns at the terms, then their sums are added pairwise. Under
// split_k group z is head and part, 8 to a head; entry point combine adds the parts.

#ifndef SCHEDULE
#define SCHEDULE 0u
#endif
#ifndef KNOWN_BAD
#define KNOWN_BAD 0u
#endif
#ifndef NONCE
#define NONCE 0u
#endif

#define PART 6u

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void multiply(
    __global const u32 *params,  // T, S, H, heads to a value head, head width, first query, terms in a part
    __global const u32 *p,
    __global const u32 *v,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *o,
    __global u32 *receipt) {
    __local limbs sums[LANES];
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    const u32 T = params[0];
    const u32 S = params[1];
    const u32 H = params[2];
    const u32 width = params[4];
    const u32 query = params[5] + group.y;
    const u32 terms = S - T + query + 1u - KNOWN_BAD;
    u32 d = group.x * LANES + lane.x;
    if (SCHEDULE == TREE) {
        d = group.x;
    }
    u32 head = group.z;
    u32 part = 0u;
    if (SCHEDULE == SPLIT_K) {
        head = group.z >> 3u;
        part = group.z & 7u;
    }
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[0] = NONCE;
    }

    const u32 begin = first_term(SCHEDULE, part, params[PART], terms);
    const u32 end = end_of_terms(SCHEDULE, begin, params[PART], terms);
    u32 steps = steps_of_terms(SCHEDULE, begin, end, (S + TILE - 1u) >> 5u);
    if (d >= width) {
        steps = 0u;
    }

    const u32 heads = params[3];
    const u32 value_heads = u32_div(H, heads);
    const u32 value_head = u32_div(head, heads);
    const u32 p_at = (head * T + query) * S;
    limbs sum = i64_make(0u, 0u);
    for (u32 step = 0u; step < steps; step++) {
        const u32 key = term_of(SCHEDULE, step, begin, end, order[step >> 5u], lane.x);
        if (key < end) {
            const u32 left = (p_at + key) << 1u;
            const u32 right = ((key * value_heads + value_head) * width + d) << 1u;
            sum = i64_add(sum, i64_mul(i64_make(p[left], p[left + 1u]), i64_make(v[right], v[right + 1u])));
        }
    }

    if (SCHEDULE == TREE) {
        sums[lane.x] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (u32 reach = LANES >> 1u; reach > 0u; reach >>= 1u) {
            if (lane.x < reach) {
                sums[lane.x] = i64_add(sums[lane.x], sums[lane.x + reach]);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        if (lane.x > 0u) {
            return;
        }
        sum = sums[0];
    }
    if (d < width) {
        if (SCHEDULE == SPLIT_K) {
            const u32 at = (((part * T + query) * H + head) * width + d) << 1u;
            scratch[at] = sum.x;
            scratch[at + 1u] = sum.y;
        } else {
            const limbs result = i64_round_shift(sum, 30u);
            const u32 at = ((query * H + head) * width + d) << 1u;
            o[at] = result.x;
            o[at + 1u] = result.y;
        }
    }
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void combine(
    __global const u32 *params,
    __global const u32 *p,
    __global const u32 *v,
    __global const u32 *order,
    __global u32 *scratch,
    __global u32 *o,
    __global u32 *receipt) {
    const uint3 group = (uint3)(get_group_id(0), get_group_id(1), get_group_id(2));
    const uint3 lane = (uint3)(get_local_id(0), get_local_id(1), get_local_id(2));
    if (SCHEDULE != SPLIT_K) {
        return;  // nothing to compile: no other schedule dispatches it
    }
    const u32 T = params[0];
    const u32 H = params[2];
    const u32 width = params[4];
    const u32 query = params[5] + group.y;
    const u32 d = group.x * LANES + lane.x;
    const u32 head = group.z;
    if (group.x + group.y + group.z + lane.x == 0u) {
        receipt[1] = NONCE;
    }
    if (d < width) {
        limbs sum = i64_make(0u, 0u);
        for (u32 part = PARTS; part > 0u; part--) {
            const u32 from_part = ((((part - 1u) * T + query) * H + head) * width + d) << 1u;
            sum = i64_add(sum, i64_make(scratch[from_part], scratch[from_part + 1u]));
        }
        const limbs result = i64_round_shift(sum, 30u);
        const u32 at = ((query * H + head) * width + d) << 1u;
        o[at] = result.x;
        o[at + 1u] = result.y;
    }
}
