//! Places that are found again: an index of descriptors on disk, exact search in it, and what its answers are worth.
//!
//! ```
//! use percept_kernels::Cpu;
//! use percept_places::{Mode, Place, PlaceIndex};
//!
//! let folder = tempfile::tempdir()?;
//! let mode = Mode { network: "lcpr".into(), without: vec![], descriptor: 2 };
//! let mut index = PlaceIndex::open(folder.path().join("town"), &mode)?;
//! let place = |name: &str, x: f64, descriptor| Place { name: name.into(), position: Some([x, 0.0]), descriptor };
//! index.append(&[place("mill", 0.0, vec![1.0, 0.0]), place("well", 30.0, vec![0.0, 1.0])])?;
//! let found = index.search(&Cpu::new(1)?, &[0.6, 0.8], 1)?;
//! assert_eq!(index.place(found[0][0].place).name, "well");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod evaluation;
mod index;

pub use evaluation::{Evaluation, NEAR_M, evaluate};
pub use index::{Found, Mode, Place, PlaceError, PlaceIndex, PlaceRef};
