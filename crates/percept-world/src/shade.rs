//! The light that a surface sends back along a ray.

use percept_data::points::pose::{add_scaled, dot};

use super::cast::{Gaps, Hit, Met, Ray, Stage};
use super::look::{Finish, GroundSpot, Light, Spot, mix};
use super::weather::Illumination;

/// Nothing farther is drawn: haze and roofs hide it.
pub(crate) const FARTHEST_M: f64 = 400.0;
/// How much ambient light a roof overhead takes away where there is no sun.
const ROOF_SHADE: f32 = 0.55;
/// Windows and shop signs at night.
const LAMPLIGHT: Light = [1.0, 0.72, 0.38];

/// What a ray brings back: light, and what it met (nothing is sky).
pub(crate) fn look_along<'a>(
    stage: &Stage<'a>,
    light: &Illumination,
    ray: &Ray,
    pixel_rad: f64,
) -> (Light, Option<Hit<'a>>) {
    match stage.first_hit(ray, FARTHEST_M) {
        None => (light.background(ray.direction), None),
        Some(hit) => (shade(stage, light, ray, &hit, pixel_rad), Some(hit)),
    }
}

fn shade(
    stage: &Stage<'_>,
    light: &Illumination,
    ray: &Ray,
    hit: &Hit<'_>,
    pixel_rad: f64,
) -> Light {
    let length = dot(hit.normal, hit.normal).sqrt();
    let mut normal = hit.normal.map(|v| v / length);
    let facing = dot(normal, ray.direction);
    if facing > 0.0 {
        normal = normal.map(|v| -v);
    }
    let facing = facing.abs().max(0.02);
    let place = add_scaled(ray.origin, hit.distance_m, ray.direction);
    let pixel_m = (hit.distance_m * pixel_rad / facing.sqrt()) as f32;
    let mut finish = finish(hit, place, ray.time_s, pixel_m);
    let mut soft = 1.0f32;
    if let Met::Solid { depth_m, .. } = hit.met
        && hit.material.density_per_m.is_finite()
    {
        // Among leaves light comes from above and fades inwards.
        soft = 1.0 / (1.0 + (0.6 * depth_m * hit.material.density_per_m) as f32);
        normal = [0, 1, 2].map(|i| 0.6 * normal[i] + if i == 2 { 0.4 } else { 0.0 });
    }
    if light.wetness > 0.0 {
        // Water darkens what it soaks, and a street mirrors the sky.
        let is_paved = matches!(hit.met, Met::Ground { hit, .. } if hit.surface.is_paved());
        let (soaked, film) = if is_paved { (0.45, 0.08) } else { (0.2, 0.0) };
        finish.colour = finish.colour.map(|c| c * (1.0 - soaked * light.wetness));
        finish.gloss = finish.gloss.max(film * light.wetness);
    }

    let start = add_scaled(place, 1e-3 + 2e-5 * hit.distance_m, normal);
    let (towards, distance_m, source) = light.towards_source(start);
    let cosine = dot(normal, towards) as f32;
    let has_source = source[0] > 1e-3;
    let mut open = 0.0;
    if cosine > 0.0 {
        let back = Ray {
            origin: start,
            direction: towards,
            time_s: ray.time_s,
            gaps: Gaps::Clumps,
        };
        open = stage.light_along(&back, distance_m);
    }
    let ambient = light.ambient(normal[2] as f32);
    // Without a sun the ray that looked for it tells whether something is overhead.
    let shelter = if has_source || cosine <= 0.0 {
        1.0
    } else {
        1.0 - ROOF_SHADE * (1.0 - open)
    };
    let direct = if has_source {
        cosine.max(0.0) * open
    } else {
        0.0
    };
    let mut sent: Light = std::array::from_fn(|i| {
        finish.colour[i] * soft * (source[i] * direct + ambient[i] * shelter)
    });
    if finish.gloss > 0.0 {
        // Schlick: surfaces mirror more at grazing angles.
        let grazing = 1.0 - facing as f32;
        let squared = grazing * grazing;
        let edge = (6.0 * finish.gloss).min(0.6) * squared * squared * grazing;
        let share = finish.gloss + (1.0 - finish.gloss) * edge;
        let away = add_scaled(ray.direction, -2.0 * dot(ray.direction, normal), normal);
        let mirrored = if away[2] > 0.0 {
            light.mirrored(away)
        } else {
            light.ambient_from_below
        };
        sent = mix(sent, mirrored, share.min(1.0));
    }
    if finish.glow > 0.0 && light.darkness > 0.0 {
        let glow = 0.35 * finish.glow * light.darkness;
        sent = std::array::from_fn(|i| sent[i] + glow * LAMPLIGHT[i] * (0.3 + finish.colour[i]));
    }
    if light.haze_per_m > 0.0 {
        let clear = libm::expf(-light.haze_per_m * hit.distance_m as f32);
        let [x, y, z] = ray.direction;
        sent = mix(light.mirrored([x, y, z.max(0.02)]), sent, clear);
    }
    sent
}

fn finish(hit: &Hit<'_>, place: [f64; 3], time_s: f64, pixel_m: f32) -> Finish {
    match &hit.met {
        Met::Ground {
            ground,
            hit: ground_hit,
        } => GroundSpot {
            surface: ground_hit.surface,
            on_kerb: ground_hit.on_kerb,
            place: [place[0], place[1]],
            cell: ground.cell_lines(ground_hit.cell),
            pixel_m,
        }
        .finish(),
        Met::Solid { solid, .. } => {
            let spot = Spot {
                place: solid.own_place(place, time_s).map(|v| v as f32),
                half: solid.half.map(|v| v as f32),
                facing: solid.facing(hit.normal),
                pixel_m,
            };
            hit.material.look.at(&spot)
        }
    }
}
