// The fixed tree over 32 lane sums that lie in the workgroup's `lanes` from `at` on.
fn fold16(at: u32) -> f32 { return lanes[at] + lanes[at + 16u]; }
fn fold8(at: u32) -> f32 { return fold16(at) + fold16(at + 8u); }
fn fold4(at: u32) -> f32 { return fold8(at) + fold8(at + 4u); }
fn fold2(at: u32) -> f32 { return fold4(at) + fold4(at + 2u); }
fn fold_lanes(at: u32) -> f32 { return plus_zero(fold2(at) + fold2(at + 1u)); }
