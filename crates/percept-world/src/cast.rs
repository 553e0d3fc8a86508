//! The first thing that a ray meets, and how much light comes through.

use percept_data::points::PointLabel;
use percept_data::points::pose::add_scaled;

use super::ground::{Ground, GroundHit};
use super::look::noise::{lattice, share};
use super::material::Material;
use super::scene::Solids;
use super::solid::PlacedSolid;
use percept_data::random::{hash, unit};

/// What rays are cast into. A room has no ground.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    pub(crate) ground: Option<&'a Ground>,
    /// What stands, and what moves, placed for this moment.
    pub(crate) solids: [&'a Solids; 2],
}

pub(crate) struct Ray {
    pub(crate) origin: [f64; 3],
    pub(crate) direction: [f64; 3],
    /// Seconds before the end of the turn (so at most 0).
    pub(crate) time_s: f64,
    pub(crate) gaps: Gaps,
}

/// Where leaves, meshes and spokes let a ray through.
#[derive(Clone, Copy)]
pub(crate) enum Gaps {
    /// By chance: a beam meets another leaf in every turn. The word is the beam's own.
    Random(u64),
    /// At places of their own, clump by clump, so that a tree looks the same in every picture.
    Clumps,
}

/// Clumps of leaves are this wide.
const CLUMP_M: f64 = 0.11;
/// From bar to bar of what is thin: fences, spokes.
const BAR_M: f64 = 0.12;
/// Denser than this are bars.
const BARS_PER_M: f64 = 10.0;

pub(crate) struct Hit<'a> {
    pub(crate) distance_m: f64,
    /// Of any length.
    pub(crate) normal: [f64; 3],
    pub(crate) material: &'a Material,
    pub(crate) label: PointLabel,
    pub(crate) met: Met<'a>,
}

pub(crate) enum Met<'a> {
    Ground {
        ground: &'a Ground,
        hit: GroundHit,
    },
    Solid {
        solid: &'a PlacedSolid,
        /// How far into the solid: more than 0 among leaves.
        depth_m: f64,
    },
}

impl<'a> Stage<'a> {
    /// Looks along `ray` up to `farthest_m` away.
    pub(crate) fn first_hit(&self, ray: &Ray, farthest_m: f64) -> Option<Hit<'a>> {
        let mut nearest = None;
        let mut limit_m = farthest_m;
        // The ground first: it shortens most rays, and the trees then need not look far.
        if let Some(ground) = self.ground
            && let Some(hit) = ground.cast(ray.origin, ray.direction, limit_m)
        {
            limit_m = hit.distance;
            nearest = Some(Hit {
                distance_m: hit.distance,
                normal: hit.normal,
                material: if hit.on_kerb {
                    &Material::KERB
                } else {
                    hit.surface.material()
                },
                label: PointLabel {
                    class: hit.surface.class(),
                    instance: 0,
                },
                met: Met::Ground { ground, hit },
            });
        }
        for (group, solids) in self.solids.into_iter().enumerate() {
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
                        let draw = match ray.gaps {
                            Gaps::Random(key) => unit(hash(key, 1 + group as u64, item as u64)),
                            Gaps::Clumps => clump(solid, ray, span.enter),
                        };
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
                        material: &solid.material,
                        label: PointLabel {
                            class: solid.class,
                            instance: solid.instance,
                        },
                        met: Met::Solid {
                            solid,
                            depth_m: distance_m - span.enter.max(0.0),
                        },
                    });
                    distance_m
                });
            limit_m = nearest.as_ref().map_or(limit_m, |hit| hit.distance_m);
        }
        nearest
    }

    /// The share of the light that comes along `ray` from `farthest_m` away: 0 behind anything solid, less the more
    /// leaves there are on the way. The ground throws no shadow: its hills are gentle and its kerbs low.
    pub(crate) fn light_along(&self, ray: &Ray, farthest_m: f64) -> f32 {
        let mut through = 1.0f32;
        for solids in self.solids {
            solids
                .tree
                .cast(ray.origin, ray.direction, farthest_m, |item, limit_m| {
                    let solid = &solids.list[item];
                    let Some(span) = solid.span(ray.origin, ray.direction, ray.time_s) else {
                        return limit_m;
                    };
                    if span.exit <= 0.0 || span.enter >= limit_m {
                        return limit_m;
                    }
                    let density = solid.material.density_per_m;
                    if density.is_finite() {
                        let way_m = span.exit.min(limit_m) - span.enter.max(0.0);
                        through *= libm::expf((-density * way_m) as f32);
                    } else {
                        through = 0.0;
                    }
                    if through < 0.02 { -1.0 } else { limit_m }
                });
            if through < 0.02 {
                return 0.0;
            }
        }
        through
    }
}

/// A number in 0..1 that belongs to the clump where `ray` enters a solid with gaps.
fn clump(solid: &PlacedSolid, ray: &Ray, enter: f64) -> f64 {
    let at = add_scaled(ray.origin, enter.max(0.0), ray.direction);
    let own = solid.own_place(at, ray.time_s);
    if solid.material.density_per_m > BARS_PER_M {
        let within = own[0] / BAR_M;
        return within - within.floor();
    }
    let [x, y, z] = own.map(|v| (v / CLUMP_M).floor() as i32);
    f64::from(share(lattice(x, y, z, 41)))
}
