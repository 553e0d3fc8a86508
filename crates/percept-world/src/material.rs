//! What surfaces do to a laser pulse.

/// How a surface answers a beam.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Material {
    /// Share of the light that comes back from a perpendicular hit, 0..=1.
    pub(crate) reflectivity: f64,
    /// Share of the hits that give no return at all (glass).
    pub(crate) loss: f64,
    /// Twigs, leaves and meshes let beams through: hits per metre of way inside; infinite for solid things.
    pub(crate) density_per_m: f64,
}

impl Material {
    pub(crate) const ASPHALT: Self = Self::solid(0.11);
    pub(crate) const MARKING: Self = Self::solid(0.45);
    pub(crate) const PAVING: Self = Self::solid(0.22);
    pub(crate) const KERB: Self = Self::solid(0.28);
    pub(crate) const GRASS: Self = Self::solid(0.35);
    pub(crate) const GRAVEL: Self = Self::solid(0.25);
    pub(crate) const GLASS: Self = Self {
        loss: 0.6,
        ..Self::solid(0.15)
    };
    pub(crate) const RUBBER: Self = Self::solid(0.06);
    pub(crate) const METAL: Self = Self::solid(0.4);
    pub(crate) const BARK: Self = Self::solid(0.3);
    pub(crate) const WOOD: Self = Self::solid(0.4);
    pub(crate) const RETROREFLECTOR: Self = Self::solid(1.0);
    pub(crate) const LEAVES: Self = Self {
        density_per_m: 1.1,
        ..Self::solid(0.45)
    };
    pub(crate) const HEDGE: Self = Self {
        density_per_m: 4.0,
        ..Self::solid(0.42)
    };
    pub(crate) const MESH: Self = Self {
        density_per_m: 12.0,
        ..Self::solid(0.35)
    };
    pub(crate) const SPOKES: Self = Self {
        density_per_m: 18.0,
        ..Self::solid(0.3)
    };

    /// Opaque, with this reflectivity.
    pub(crate) const fn solid(reflectivity: f64) -> Self {
        Self {
            reflectivity,
            loss: 0.0,
            density_per_m: f64::INFINITY,
        }
    }
}
