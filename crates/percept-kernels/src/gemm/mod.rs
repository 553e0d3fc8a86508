//! Matrix products: the register tile that all of them share, packing, and the two products on row-major matrices.
//!
//! A product `C[rows, columns] = A[rows, depth] * B[depth, columns]` runs on packed operands. A is cut into groups of
//! [`TILE_ROWS`] rows, stored `[depth][4]`; B into panels of [`TILE_COLUMNS`] columns, stored `[depth][24]`, the last panel
//! as narrow as whole vectors allow. A tile multiplies one group with one panel in registers. The panel stays in the
//! first-level cache while the groups, which fit the second level, pass by. With AVX-512 a tile takes several groups and two panels.

pub(crate) mod blocking;
pub(crate) mod columns;
mod finish;
mod linear;
mod matmul;
mod narrow;
pub(crate) mod pack;
pub(crate) mod pixels;
pub(crate) mod product;
pub(crate) mod thin;
pub(crate) mod tile;
pub(crate) mod wide;
mod wide_product;
pub(crate) mod wide_tile;

pub use linear::{PackedLinear, linear};
pub use matmul::{MatmulShape, matmul};
pub(crate) use tile::{TILE_COLUMNS, TILE_ROWS};
