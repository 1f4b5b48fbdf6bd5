//! How much of a text's end may be the beginning of a marker.

/// Bytes at the end of `text` that are a proper prefix of `marker`: the longest such end.
pub(super) fn held(text: &str, marker: &str) -> usize {
    let longest = marker.len().saturating_sub(1).min(text.len());
    (1..=longest)
        .rev()
        .find(|&n| marker.is_char_boundary(n) && text.ends_with(&marker[..n]))
        .unwrap_or(0)
}

/// Takes the first `n` bytes off a text.
pub(super) fn take(text: &mut String, n: usize) -> String {
    let rest = text.split_off(n);
    std::mem::replace(text, rest)
}

#[cfg(test)]
mod tests {
    use super::held;

    #[test]
    fn only_a_proper_prefix_is_held() {
        let check =
            |text, marker, expect| assert_eq!(held(text, marker), expect, "{text} {marker}");
        check("a</thi", "</think>", 5);
        check("a</think>", "</think>", 0);
        check("aab", "aabaaa", 3);
        check("aabaab", "aabaaa", 3);
        check("x", "é", 0);
        check("", "stop", 0);
        check("s", "s", 0);
    }
}
