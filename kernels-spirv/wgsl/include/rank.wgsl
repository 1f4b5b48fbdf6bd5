// The order of logits: larger first, the lowest id on ties, NaN below every number.
fn better(a: f32, a_id: u32, b: f32, b_id: u32) -> bool {
    if (is_nan(a)) { return is_nan(b) && a_id < b_id; }
    if (is_nan(b)) { return true; }
    return a > b || (a == b && a_id < b_id);
}
