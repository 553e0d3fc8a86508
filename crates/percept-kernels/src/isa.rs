//! Instruction sets: which one a program uses, and how a kernel written once is compiled for each.

use std::fmt;

use thiserror::Error;

use crate::simd::{Simd, run_portable};

/// The environment variable that forces an instruction set.
pub const ISA_VARIABLE: &str = "PERCEPT_ISA";

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What every CPU of the architecture has; runs everywhere.
    Portable,
    /// AVX2 with fused multiply-add.
    Avx2,
}

/// Why an instruction set cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum IsaError {
    /// The name is not one of ours.
    #[error("unknown instruction set '{name}': expected portable or avx2")]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// This CPU cannot run it.
    #[error("this CPU does not support the instruction set {isa}")]
    Unsupported {
        /// The instruction set asked for.
        isa: Isa,
    },
}

impl Isa {
    /// The best instruction set of this CPU, or the one that `PERCEPT_ISA` names.
    pub fn detect() -> Result<Isa, IsaError> {
        match std::env::var(ISA_VARIABLE) {
            Ok(name) => Isa::parse(&name)?.check(),
            Err(_) if Isa::Avx2.is_supported() => Ok(Isa::Avx2),
            Err(_) => Ok(Isa::Portable),
        }
    }

    /// Reads `portable` or `avx2`, in any case.
    pub fn parse(name: &str) -> Result<Isa, IsaError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "portable" => Ok(Isa::Portable),
            "avx2" => Ok(Isa::Avx2),
            _ => Err(IsaError::Unknown {
                name: name.to_owned(),
            }),
        }
    }

    /// All instruction sets that this CPU can run: what a test loops over.
    pub fn available() -> Vec<Isa> {
        [Isa::Portable, Isa::Avx2]
            .into_iter()
            .filter(|isa| isa.is_supported())
            .collect()
    }

    /// Whether this CPU can run it.
    pub fn is_supported(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 => false,
        }
    }

    /// Itself when this CPU can run it, else an error.
    pub fn check(self) -> Result<Isa, IsaError> {
        if self.is_supported() {
            Ok(self)
        } else {
            Err(IsaError::Unsupported { isa: self })
        }
    }

    /// Runs a kernel compiled for this instruction set.
    ///
    /// # Panics
    /// When this CPU does not support it.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        assert!(
            self.is_supported(),
            "{}",
            IsaError::Unsupported { isa: self }
        );
        match self {
            Isa::Portable => run_portable(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: support was asserted above.
            Isa::Avx2 => unsafe { crate::simd::run_avx2(kernel) },
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 => unreachable!("unsupported instruction sets were refused above"),
        }
    }
}

/// A kernel's arguments, with the kernel itself written once for every [`Simd`].
///
/// `run` and everything that it calls per element must be `#[inline(always)]`: the code is compiled with AVX2 because it
/// is inlined into a function that has it enabled. A closure that touches vectors must be inlined too, so prefer plain
/// functions and loops.
pub trait Kernel {
    /// What the kernel returns.
    type Output;
    /// The kernel on one instruction set.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in [Isa::Portable, Isa::Avx2] {
            assert_eq!(Isa::parse(&isa.to_string()), Ok(isa));
        }
        assert_eq!(
            Isa::parse("sse9"),
            Err(IsaError::Unknown {
                name: "sse9".into()
            })
        );
    }

    #[test]
    fn portable_is_always_available() {
        assert!(Isa::available().contains(&Isa::Portable));
    }
}
