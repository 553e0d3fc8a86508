//! Smooth random fields over space, the same on every machine: integer hashes and products of f32, nothing else.

/// A well-mixed word from a place on a lattice.
#[inline]
pub(crate) fn lattice(x: i32, y: i32, z: i32, seed: u32) -> u32 {
    let mut word = seed
        .wrapping_add((x as u32).wrapping_mul(0x8da6_b343))
        .wrapping_add((y as u32).wrapping_mul(0xd816_3841))
        .wrapping_add((z as u32).wrapping_mul(0xcb1a_b31f));
    word = (word ^ (word >> 16)).wrapping_mul(0x7feb_352d);
    word = (word ^ (word >> 15)).wrapping_mul(0x846c_a68b);
    word ^ (word >> 16)
}

/// A number in [0, 1) from a word.
#[inline]
pub(crate) fn share(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / (1u32 << 24) as f32)
}

/// The cell of a coordinate, and where in the cell it is, 0..1.
#[inline]
pub(crate) fn cell(v: f32) -> (i32, f32) {
    let floor = v.floor();
    (floor as i32, v - floor)
}

/// Smooth noise in 0..=1 over the plane, with features about one unit wide.
#[inline]
pub(crate) fn noise2(x: f32, y: f32, seed: u32) -> f32 {
    let ((i, u), (j, v)) = (cell(x), cell(y));
    let (u, v) = (ease(u), ease(v));
    let corner = |di: i32, dj: i32| share(lattice(i + di, j + dj, 0, seed));
    let near = corner(0, 0) + u * (corner(1, 0) - corner(0, 0));
    let far = corner(0, 1) + u * (corner(1, 1) - corner(0, 1));
    near + v * (far - near)
}

/// Noise in 0..=1 of two scales, the finer one half as strong.
#[inline]
pub(crate) fn rough2(x: f32, y: f32, seed: u32) -> f32 {
    (2.0 * noise2(x, y, seed) + noise2(2.7 * x + 11.3, 2.7 * y - 4.1, seed ^ 0x55)) * (1.0 / 3.0)
}

/// Smooth noise in 0..=1 through space.
#[inline]
pub(crate) fn noise3([x, y, z]: [f32; 3], seed: u32) -> f32 {
    let (k, w) = cell(z);
    let layer = |k: i32| noise2(x, y, lattice(k, 17, 0, seed));
    let low = layer(k);
    low + ease(w) * (layer(k + 1) - low)
}

#[inline]
fn ease(t: f32) -> f32 {
    t * t * (3.0 - 2.0 * t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_smooth_bounded_and_fills_its_range() {
        let (mut low, mut high) = (1.0f32, 0.0f32);
        for step in 0..20_000 {
            let x = step as f32 * 0.01 - 100.0;
            let here = noise3([x, 0.37 * x, 1.3 - 0.2 * x], 5);
            let beside = noise3([x + 0.01, 0.37 * x, 1.3 - 0.2 * x], 5);
            assert!((0.0..=1.0).contains(&here) && (here - beside).abs() < 0.03);
            (low, high) = (low.min(here), high.max(here));
        }
        assert!(low < 0.1 && high > 0.9, "{low} {high}");
        assert!((0.0..=1.0).contains(&rough2(3.3, -7.1, 1)));
    }
}
