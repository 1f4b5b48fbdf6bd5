//! A part of all launches, as people write it: `1/1000`.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// `of_these / of_all`, neither nothing nor more than everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    part: u64,
    whole: u64,
}

/// Why a text is no share.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no share: expected a fraction such as 1/1000, above 0 and at most 1/1")]
pub struct ShareError(String);

impl Share {
    /// Whether this launch is one of them.
    pub(super) fn draws(self, rng: &mut fastrand::Rng) -> bool {
        rng.u64(..self.whole) < self.part
    }
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Share, ShareError> {
        let failed = || ShareError(text.into());
        let (part, whole) = text.split_once('/').ok_or_else(failed)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| failed());
        let (part, whole) = (number(part)?, number(whole)?);
        match 0 < part && part <= whole {
            true => Ok(Share { part, whole }),
            false => Err(failed()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn fractions_and_nothing_else() {
        let check = |text: &str, expect: Option<&str>| {
            let parsed = text.parse::<Share>().ok().map(|s| s.to_string());
            assert_eq!(parsed.as_deref(), expect, "{text}");
        };
        check("1/1000", Some("1/1000"));
        check("1/1", Some("1/1"));
        check("0/5", None);
        check("1/0", None);
        check("2/1", None);
        check("0.001", None);
        check("-1/2", None);
        check("", None);
    }

    #[test]
    fn the_share_that_is_drawn_is_the_share_that_was_asked_for() {
        let mut rng = fastrand::Rng::with_seed(7);
        let share: Share = "3/10".parse().unwrap();
        let drawn = (0..10_000).filter(|_| share.draws(&mut rng)).count();
        assert!((2_800..3_200).contains(&drawn), "{drawn}");
        let all: Share = "5/5".parse().unwrap();
        assert!((0..1_000).all(|_| all.draws(&mut rng)));
    }
}
