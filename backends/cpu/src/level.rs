//! Which instructions the kernels use: chosen once, the same for every launch of a backend.
//!
//! A level changes how fast a kernel is, never a byte: each is a candidate of its own in golden.
//! [`per_level`] compiles a function once for each level and picks at the call. `unsafe` lives here
//! because a function compiled for more instructions than the processor has must not be called; a
//! [`Level`] can only be had for instructions that were found.

use std::fmt;
use std::sync::LazyLock;

/// Name of the variable that overrides the choice.
pub const VARIABLE: &str = "LAYERLET_CPU";

/// A set of instructions that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub(crate) Kind);

/// The sets that there is code for, narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// What every processor of the target has.
    Portable,
    /// 256-bit integers and floats.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors and four-term byte dot products.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl Kind {
    const ALL: &[Kind] = &[
        Kind::Portable,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512Vnni,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => "avx512-vnni",
        }
    }

    /// Must ask for every feature that [`per_level`] compiles this level with.
    fn is_present(self) -> bool {
        match self {
            Kind::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => {
                Kind::Avx2.is_present()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
        }
    }
}

/// Why a level cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LevelError {
    /// No level has this name.
    Unknown(String),
    /// The processor lacks its instructions.
    Absent(&'static str),
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LevelError::Unknown(name) => {
                let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
                write!(
                    f,
                    "no level is called {name:?}; there are {}",
                    names.join(", ")
                )
            }
            LevelError::Absent(name) => write!(f, "this processor has no {name}"),
        }
    }
}

impl std::error::Error for LevelError {}

impl Level {
    /// What every processor can run.
    pub const PORTABLE: Level = Level(Kind::Portable);

    /// Every level that this processor can run, narrowest first.
    pub fn available() -> Vec<Level> {
        let present = Kind::ALL.iter().copied().filter(|kind| kind.is_present());
        present.map(Level).collect()
    }

    /// Names of the levels that there is code for but no processor here.
    pub fn missing() -> Vec<&'static str> {
        let absent = Kind::ALL.iter().filter(|kind| !kind.is_present());
        absent.map(|kind| kind.name()).collect()
    }

    /// The widest one, looked up once.
    pub fn widest() -> Level {
        static WIDEST: LazyLock<Level> =
            LazyLock::new(|| Level::available().pop().unwrap_or(Level::PORTABLE));
        *WIDEST
    }

    /// The level of this name.
    pub fn named(name: &str) -> Result<Level, LevelError> {
        let mut kinds = Kind::ALL.iter().copied();
        let kind = kinds.find(|kind| kind.name() == name);
        let kind = kind.ok_or_else(|| LevelError::Unknown(name.into()))?;
        match kind.is_present() {
            true => Ok(Level(kind)),
            false => Err(LevelError::Absent(kind.name())),
        }
    }

    /// What `LAYERLET_CPU` asks for, else the widest.
    pub fn from_environment() -> Result<Level, LevelError> {
        match std::env::var_os(VARIABLE) {
            None => Ok(Level::widest()),
            Some(name) => Level::named(&name.to_string_lossy()),
        }
    }

    /// The name, as `LAYERLET_CPU` takes it.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

/// Compiles a function once for each level; the generated function takes the level first.
///
/// The body, and what it is to be compiled with, must be `#[inline(always)]`: that is how it comes
/// to be compiled with the caller's instructions.
macro_rules! per_level {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $([$($generics:tt)*] [$($passed:ident),*])? (
            $($arg:ident: $ty:ty),* $(,)?
        ) $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$($generics)*>)? (level: $crate::level::Level, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<$($generics)*>)? ($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi2")]
            fn avx2 $(<$($generics)*>)? ($($arg: $ty),*) $(-> $ret)? {
                body $(::<$($passed),*>)? ($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            fn avx512 $(<$($generics)*>)? ($($arg: $ty),*) $(-> $ret)? {
                body $(::<$($passed),*>)? ($($arg),*)
            }

            match level.0 {
                $crate::level::Kind::Portable => body $(::<$($passed),*>)? ($($arg),*),
                // SAFETY: a level of this kind exists only where the processor was found to have
                // these instructions (`Kind::is_present`).
                #[cfg(target_arch = "x86_64")]
                #[allow(unsafe_code)]
                $crate::level::Kind::Avx2 => unsafe { avx2 $(::<$($passed),*>)? ($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                #[allow(unsafe_code)]
                $crate::level::Kind::Avx512Vnni => unsafe { avx512 $(::<$($passed),*>)? ($($arg),*) },
            }
        }
    )*};
}
pub(crate) use per_level;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_by_their_names() {
        for level in Level::available() {
            assert_eq!(Level::named(level.name()), Ok(level));
        }
        assert_eq!(Level::available().first(), Some(&Level::PORTABLE));
        assert_eq!(Level::available().last(), Some(&Level::widest()));
    }

    #[test]
    fn others_are_refused() {
        let error = Level::named("sse9").unwrap_err().to_string();
        assert!(
            error.contains("sse9") && error.contains("portable"),
            "{error}"
        );
        for name in Level::missing() {
            assert_eq!(Level::named(name), Err(LevelError::Absent(name)));
        }
    }
}
