//! Tensors on disk by content.
//!
//! - [`Cache`]: what is expensive to compute and can be computed again (neighbour lists, image features), bounded in bytes,
//!   least recently used out, shared by any number of processes.
//! - [`Journal`]: what must not be lost (an index of places): records appended and deleted, never evicted.
//!
//! Both write the same records ([`record`]): typed tensors behind a header and a checksum, laid out so that a mapped file
//! is read in place. A record that is torn, damaged or of another version is never given out.

#[cfg(target_endian = "big")]
compile_error!("records are little-endian and read in place");

pub mod atomic;
mod cache;
mod error;
mod journal;
mod key;
pub mod record;
mod tensor;

pub use cache::{Blob, Cache, Counters, Entry, Verified};
pub use error::StoreError;
pub use journal::{Journal, Recovery};
pub use key::{Collection, Key, KeyBuilder};
pub use tensor::{Element, Number, Tensor, TensorRef};
