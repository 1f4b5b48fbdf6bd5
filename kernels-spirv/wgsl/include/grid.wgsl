// Workgroups beyond the 65,535 of one dimension go on in y.
fn flat_group(group: vec3<u32>, groups: vec3<u32>) -> u32 { return group.y * groups.x + group.x; }

const NONE: u32 = 0xffffffffu;
