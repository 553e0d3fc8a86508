use percept_data::points::ObjectClass;

use super::motion::Motion;
use super::objects::{Model, Rider};
use super::solid::Part;

/// An object of one of the ten classes: what it looks like and how it moves. Its instance is its number in the
/// scene, counted from 1.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) class: ObjectClass,
    /// Length, width, height.
    pub(crate) size: [f64; 3],
    pub(crate) parts: Vec<Part>,
    pub(crate) motion: Motion,
    pub(crate) rider: Rider,
}

impl Body {
    pub(crate) fn new(model: Model, motion: Motion, rider: Rider) -> Self {
        Self {
            class: model.class,
            size: model.size,
            parts: model.parts,
            motion,
            rider,
        }
    }
}
