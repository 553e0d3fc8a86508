//! One file a verb.

pub mod bench;
pub mod doctor;
pub mod elastic;
pub mod eval;
pub mod export;
pub mod features;
pub mod inspect;
pub mod models;
pub mod place;
pub mod profile;
pub mod quantize;
pub mod run;
pub mod train;
pub mod verify;
pub mod world;
