//! Boxes seen from above: how much two of them overlap, and which of many to keep.

mod footprint;
mod overlap;
mod suppress;

pub use footprint::BevBox;
pub use overlap::iou_bev;
pub use suppress::{Suppression, suppress};
