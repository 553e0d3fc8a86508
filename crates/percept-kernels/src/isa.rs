//! Instruction sets: which one a program uses, and how a kernel written once is compiled for each.

use std::fmt;

use thiserror::Error;

#[cfg(target_arch = "x86_64")]
use crate::gemm::wide::Wide;
use crate::simd::{Simd, run_portable};

/// The environment variable that forces an instruction set.
pub const ISA_VARIABLE: &str = "PERCEPT_ISA";

/// An instruction set that the kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What every CPU of the architecture has; runs everywhere.
    Portable,
    /// AVX2 with fused multiply-add and conversions of half-precision numbers.
    Avx2,
    /// The same, and dot products of bytes: AVX-512 VNNI on 256-bit vectors, or AVX-VNNI. Kernels on floats are those of
    /// [`Isa::Avx2`].
    Vnni,
    /// The same, and matrix products and attention on vectors of 16 floats: AVX-512 F, DQ, VL and VNNI. Kernels have the bits of
    /// [`Isa::Avx2`], but 1x1 convolutions may run with another one (`choose_for_kept_weights`), whose sums begin with the bias.
    Avx512,
    /// The same, and products of whole tiles of bytes: AMX. Kernels on floats are those of [`Isa::Avx512`].
    Amx,
}

/// Why an instruction set cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum IsaError {
    /// The name is not one of ours.
    #[error(
        "unknown instruction set '{name}': {ISA_VARIABLE} may be portable, avx2, vnni, avx512 or amx"
    )]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// This CPU cannot run it, or the system does not let it.
    #[error("the instruction set {isa} cannot be used here: this machine has {}", names(&Isa::usable()))]
    Unsupported {
        /// The instruction set asked for.
        isa: Isa,
    },
}

impl Isa {
    /// All that there are. Each has what those before it have.
    const ALL: [Isa; 5] = [Isa::Portable, Isa::Avx2, Isa::Vnni, Isa::Avx512, Isa::Amx];

    /// The best instruction set of this CPU, or the one that `PERCEPT_ISA` names; an empty name is none.
    pub fn detect() -> Result<Isa, IsaError> {
        match std::env::var(ISA_VARIABLE) {
            Ok(name) if !name.trim().is_empty() => Isa::parse(&name)?.check(),
            _ => Ok(Isa::usable().pop().unwrap_or(Isa::Portable)),
        }
    }

    /// The instruction sets of this CPU, the best one last.
    pub fn usable() -> Vec<Isa> {
        Isa::supported_of(Isa::ALL)
    }

    /// Reads `portable`, `avx2`, `vnni`, `avx512` or `amx`, in any case.
    pub fn parse(name: &str) -> Result<Isa, IsaError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "portable" => Ok(Isa::Portable),
            "avx2" => Ok(Isa::Avx2),
            "vnni" => Ok(Isa::Vnni),
            "avx512" => Ok(Isa::Avx512),
            "amx" => Ok(Isa::Amx),
            _ => Err(IsaError::Unknown {
                name: name.to_owned(),
            }),
        }
    }

    /// The instruction sets of this CPU that kernels on floats differ in: what their tests loop over.
    pub fn available() -> Vec<Isa> {
        Isa::supported_of([Isa::Portable, Isa::Avx2, Isa::Avx512])
    }

    /// The instruction sets of this CPU that kernels on bytes differ in: what their tests loop over.
    pub fn available_for_bytes() -> Vec<Isa> {
        Isa::supported_of([Isa::Portable, Isa::Avx2, Isa::Vnni, Isa::Amx])
    }

    fn supported_of<const N: usize>(all: [Isa; N]) -> Vec<Isa> {
        all.into_iter().filter(|isa| isa.is_supported()).collect()
    }

    /// Whether this CPU can run it.
    pub fn is_supported(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Vnni => {
                let evex =
                    is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl");
                Isa::Avx2.is_supported() && (evex || is_x86_feature_detected!("avxvnni"))
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Vnni.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    // Whoever has AVX-512 has these; asked for because code is compiled with them.
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => Isa::Avx512.is_supported() && crate::int8::has_matrix_tiles(),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Vnni | Isa::Avx512 | Isa::Amx => false,
        }
    }

    /// Whether it has instructions for dot products of bytes.
    pub fn has_byte_dots(self) -> bool {
        matches!(self, Isa::Vnni | Isa::Avx512 | Isa::Amx)
    }

    /// Whether kernels on floats take vectors of 16.
    pub fn has_wide_floats(self) -> bool {
        matches!(self, Isa::Avx512 | Isa::Amx)
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
        self.assert_supported();
        match self {
            Isa::Portable => run_portable(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: support was asserted above.
            Isa::Avx2 | Isa::Vnni => unsafe { crate::simd::run_avx2(kernel, None) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 | Isa::Amx => unsafe { crate::simd::run_avx2(kernel, Some(Wide::new())) },
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Vnni | Isa::Avx512 | Isa::Amx => {
                unreachable!("unsupported instruction sets were refused above")
            }
        }
    }

    /// As [`Isa::run`], but compiled once for AVX2 alone and once more for [`Isa::Avx512`]: for kernels that use vectors of 16 floats
    /// in many places (where [`Simd::wide`] proves them), not behind calls.
    ///
    /// # Panics
    /// When this CPU does not support it.
    pub(crate) fn run_widened<K: Kernel>(self, kernel: K) -> K::Output {
        self.assert_supported();
        match self {
            Isa::Portable => run_portable(kernel),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: support was asserted above.
            Isa::Avx2 | Isa::Vnni => unsafe { crate::simd::run_avx2_alone(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 | Isa::Amx => unsafe { crate::simd::run_avx512(kernel, Wide::new()) },
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Vnni | Isa::Avx512 | Isa::Amx => {
                unreachable!("unsupported instruction sets were refused above")
            }
        }
    }

    fn assert_supported(self) {
        let error = IsaError::Unsupported { isa: self };
        assert!(self.is_supported(), "{error}");
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

fn names(isas: &[Isa]) -> String {
    let names: Vec<String> = isas.iter().map(Isa::to_string).collect();
    names.join(", ")
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Vnni => "vnni",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in Isa::ALL {
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

    /// What a machine is said to have is all that it may be told to use, and what tests loop over is part of that.
    #[test]
    fn usable_sets_are_those_that_can_be_used() {
        let usable = Isa::usable();
        for isa in Isa::ALL {
            assert_eq!(usable.contains(&isa), isa.check().is_ok(), "{isa}");
        }
        for isa in Isa::available()
            .into_iter()
            .chain(Isa::available_for_bytes())
        {
            assert!(usable.contains(&isa), "{isa}");
        }
        if std::env::var_os(ISA_VARIABLE).is_none() {
            assert_eq!(Isa::detect().ok().as_ref(), usable.last());
        }
        let refused = IsaError::Unsupported { isa: Isa::Amx }.to_string();
        assert!(
            refused.contains("amx") && refused.contains("portable"),
            "{refused}"
        );
    }
}
