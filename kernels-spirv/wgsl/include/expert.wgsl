// The expert of a grouped row, EXPERTS for a row past the last group.
fn expert_of(row: u32) -> u32 {
    var low = 0u;
    var high = EXPERTS;
    // The last expert whose rows start at or before this one.
    while (low < high) {
        let middle = (low + high) / 2u;
        if (offsets[middle + 1u] <= row) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}
