// The same tree depth-first, for an invocation that holds a whole column: lane sums come in the order
// of their reversed bits, and at most five partial sums wait.
struct Walk { s0: f32, s1: f32, s2: f32, s3: f32, s4: f32, total: f32 }

fn walk_lane(i: u32) -> u32 { return reverseBits(i) >> 27u; }

fn walk_add(walk: ptr<function, Walk>, i: u32, lane: f32) {
    if ((i & 1u) == 0u) { (*walk).s0 = lane; return; }
    let t1 = (*walk).s0 + lane;
    if ((i & 2u) == 0u) { (*walk).s1 = t1; return; }
    let t2 = (*walk).s1 + t1;
    if ((i & 4u) == 0u) { (*walk).s2 = t2; return; }
    let t3 = (*walk).s2 + t2;
    if ((i & 8u) == 0u) { (*walk).s3 = t3; return; }
    let t4 = (*walk).s3 + t3;
    if ((i & 16u) == 0u) { (*walk).s4 = t4; return; }
    (*walk).total = plus_zero((*walk).s4 + t4);
}
