//! The first thing that a ray meets.

use percept_data::points::PointLabel;

use super::material::Material;
use super::scene::{Scene, Solids};
use percept_data::random::{hash, unit};

pub(crate) struct Ray {
    pub(crate) origin: [f64; 3],
    pub(crate) direction: [f64; 3],
    /// Seconds before the end of the turn (so at most 0).
    pub(crate) time_s: f64,
    pub(crate) key: u64,
}

pub(crate) struct Hit {
    pub(crate) distance_m: f64,
    /// Of any length.
    pub(crate) normal: [f64; 3],
    pub(crate) material: Material,
    pub(crate) label: PointLabel,
}

/// Looks from `ray` up to `farthest_m` away; `moving` are the solids placed for this turn.
pub(crate) fn first_hit(scene: &Scene, moving: &Solids, ray: &Ray, farthest_m: f64) -> Option<Hit> {
    let mut nearest = None;
    let mut limit_m = farthest_m;
    // The ground first: it shortens most rays, and the trees then need not look far.
    if let Some(hit) = scene.ground.cast(ray.origin, ray.direction, limit_m) {
        limit_m = hit.distance;
        nearest = Some(Hit {
            distance_m: hit.distance,
            normal: hit.normal,
            material: if hit.on_kerb {
                Material::KERB
            } else {
                hit.surface.material()
            },
            label: PointLabel {
                class: hit.surface.class(),
                instance: 0,
            },
        });
    }
    for (group, solids) in [&scene.still, moving].into_iter().enumerate() {
        solids
            .tree
            .cast(ray.origin, ray.direction, limit_m, |item, limit_m| {
                let solid = &solids.list[item];
                let Some(span) = solid.span(ray.origin, ray.direction, ray.time_s) else {
                    return limit_m;
                };
                let density = solid.material.density_per_m;
                let distance_m = if density.is_finite() {
                    // Leaves: the way into the solid until something is met is exponentially distributed.
                    let draw = unit(hash(ray.key, 1 + group as u64, item as u64));
                    let depth_m = -libm::log(1.0 - draw) / density;
                    let met = span.enter.max(0.0) + depth_m;
                    if met > span.exit { f64::INFINITY } else { met }
                } else {
                    span.enter
                };
                if distance_m <= 0.0 || distance_m >= limit_m {
                    return limit_m;
                }
                nearest = Some(Hit {
                    distance_m,
                    normal: span.normal,
                    material: solid.material,
                    label: PointLabel {
                        class: solid.class,
                        instance: solid.instance,
                    },
                });
                distance_m
            });
        limit_m = nearest.as_ref().map_or(limit_m, |hit| hit.distance_m);
    }
    nearest
}
