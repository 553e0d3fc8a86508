//! The run record and its faces: terminal table, JSON, trace.
//!
//! Numbers carry their units in their names (`time_ms`, `live_bytes`); text faces are readable without colour.

mod profile;
mod spread;
mod table;
mod trace;
mod units;

pub use profile::{Grouping, Order, Profile, ProfileRow, Selection, StepProfile, StepRow};
pub use spread::Spread;
pub use table::{Align, Table};
pub use trace::chrome_trace;
pub use units::{bytes, count, counted, milliseconds, percent};

/// Version of every JSON record that percept prints. It changes when a field changes its meaning or goes away.
pub const SCHEMA_VERSION: u32 = 2;
