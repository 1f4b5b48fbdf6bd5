//! Stop strings over a text that comes in chunks.

use super::partial::{held, take};

/// Looks for stop strings. The one that is complete first ends the text; of several that end together, the longest.
pub struct StopStrings {
    stops: Vec<String>,
    /// Whether the text that is shown ends with the stop string or before it.
    include: bool,
    pending: String,
}

/// What a chunk of text turned into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Text that is settled.
    pub text: String,
    /// The stop string that ended the text.
    pub stopped: Option<String>,
}

impl StopStrings {
    /// Empty strings stop nothing.
    pub fn new(stops: impl IntoIterator<Item = String>, include: bool) -> StopStrings {
        StopStrings {
            stops: stops.into_iter().filter(|s| !s.is_empty()).collect(),
            include,
            pending: String::new(),
        }
    }

    /// Scans a chunk; after a stop nothing more may come.
    pub fn push(&mut self, chunk: &str) -> Scanned {
        self.pending.push_str(chunk);
        let found = self.stops.iter().filter_map(|stop| {
            let start = self.pending.find(stop.as_str())?;
            Some((start + stop.len(), start, stop))
        });
        if let Some((end, start, stop)) = found.min_by_key(|(end, start, _)| (*end, *start)) {
            let stopped = Some(stop.clone());
            self.pending
                .truncate(if self.include { end } else { start });
            let text = std::mem::take(&mut self.pending);
            return Scanned { text, stopped };
        }
        let held = self.stops.iter().map(|stop| held(&self.pending, stop));
        let settled = self.pending.len() - held.max().unwrap_or(0);
        Scanned {
            text: take(&mut self.pending, settled),
            stopped: None,
        }
    }

    /// What was held back, when no chunk follows.
    pub fn finish(self) -> String {
        self.pending
    }
}

#[cfg(test)]
mod tests {
    use super::StopStrings;
    use proptest::prelude::*;

    /// The text shown and the stop that ended it, with the text cut before these bytes.
    fn run(text: &str, stops: &[&str], include: bool, cuts: &[usize]) -> (String, Option<String>) {
        let mut scanner = StopStrings::new(stops.iter().map(|s| s.to_string()), include);
        let (mut shown, mut from) = (String::new(), 0);
        let ends = cuts.iter().copied().chain([text.len()]);
        for end in ends {
            let scanned = scanner.push(&text[from..end]);
            shown.push_str(&scanned.text);
            if scanned.stopped.is_some() {
                return (shown, scanned.stopped);
            }
            from = end;
        }
        (shown + &scanner.finish(), None)
    }

    #[test]
    fn the_first_complete_stop_ends_the_text() {
        let check = |text, stops: &[&str], shown: &str, stop: Option<&str>| {
            let found = run(text, stops, false, &[]);
            assert_eq!(
                found,
                (shown.into(), stop.map(Into::into)),
                "{text} {stops:?}"
            );
        };
        check("one two three", &["two"], "one ", Some("two"));
        check("abcd", &["abcd", "bc"], "a", Some("bc"));
        check("abc", &["c", "bc"], "a", Some("bc"));
        check("abc", &["x", ""], "abc", None);
        check("ab", &["abc"], "ab", None);
        check("a\n\nb", &["\n\n"], "a", Some("\n\n"));
    }

    #[test]
    fn it_may_be_shown() {
        assert_eq!(
            run("a.b", &["."], true, &[1]),
            ("a.".into(), Some(".".into()))
        );
    }

    #[test]
    fn text_that_cannot_be_a_stop_is_not_held() {
        let mut scanner = StopStrings::new(["END".to_string()], false);
        assert_eq!(scanner.push("the E").text, "the ");
        assert_eq!(scanner.push("nd").text, "End");
    }

    proptest! {
        #[test]
        fn case_30_chunks_change_nothing(
            text in "[abé]{0,24}",
            stops in prop::collection::vec("[abé]{1,4}", 0..3),
            include: bool,
            cuts in prop::collection::vec(0usize..25, 0..12),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&c| text.is_char_boundary(c)).collect();
            cuts.sort_unstable();
            let by_char: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            let whole = run(&text, &stops, include, &[]);
            prop_assert_eq!(&run(&text, &stops, include, &cuts), &whole);
            prop_assert_eq!(&run(&text, &stops, include, &by_char), &whole);
            if whole.1.is_none() {
                prop_assert_eq!(whole.0, text);
            }
        }
    }
}
