//! Sparse convolution by its definition: every output site looks for every tap's input site.

use std::collections::BTreeMap;

use super::Real;
use crate::sparse::Window;

fn sites(flat: &[i32]) -> Vec<[i32; 4]> {
    flat.as_chunks::<4>().0.to_vec()
}

/// Calls `pair(output row, tap, input row)` for every pair of a convolution.
fn for_each_pair(
    window: &Window,
    input_sites: &[i32],
    output_sites: &[i32],
    mut pair: impl FnMut(usize, usize, usize),
) {
    let input_rows: BTreeMap<[i32; 4], usize> = sites(input_sites)
        .into_iter()
        .enumerate()
        .map(|(row, site)| (site, row))
        .collect();
    let [taps_z, taps_y, taps_x] = window.kernel;
    for (output, [batch, z, y, x]) in sites(output_sites).into_iter().enumerate() {
        for tap in 0..taps_z * taps_y * taps_x {
            let taps = [tap / (taps_y * taps_x), tap / taps_x % taps_y, tap % taps_x];
            let at = |site: i32, axis: usize| {
                site * window.stride[axis] as i32 - window.padding[axis] as i32 + taps[axis] as i32
            };
            if let Some(&input) = input_rows.get(&[batch, at(z, 0), at(y, 1), at(x, 2)]) {
                pair(output, tap, input);
            }
        }
    }
}

/// y[o] = bias + Σ weight[.., tap, ..] · x[i], with weights `[out_channels][taps][in_channels]`.
pub fn sparse_conv<T: Real>(
    window: &Window,
    [in_channels, out_channels]: [usize; 2],
    input_sites: &[i32],
    output_sites: &[i32],
    x: &[T],
    weight: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
) {
    for (at, y) in y.iter_mut().enumerate() {
        *y = bias.map_or(T::ZERO, |bias| bias[at % out_channels]);
    }
    for_each_pair(window, input_sites, output_sites, |output, tap, input| {
        for k in 0..out_channels {
            for c in 0..in_channels {
                let w = weight[(k * window.taps() + tap) * in_channels + c];
                y[output * out_channels + k] += w * x[input * in_channels + c];
            }
        }
    });
}

/// The number of pairs of a convolution.
pub fn sparse_pairs(window: &Window, input_sites: &[i32], output_sites: &[i32]) -> usize {
    let mut count = 0;
    for_each_pair(window, input_sites, output_sites, |_, _, _| count += 1);
    count
}

/// The output sites by trying every site of the output grid.
pub fn sparse_output_sites(window: &Window, cells: [usize; 3], input_sites: &[i32]) -> Vec<i32> {
    let samples = sites(input_sites).last().map_or(0, |site| site[0] + 1);
    let [depth, height, width] = window.output_cells(cells).map(|side| side as i32);
    let mut active = Vec::new();
    for batch in 0..samples {
        for z in 0..depth {
            for y in 0..height {
                for x in 0..width {
                    let site = [batch, z, y, x];
                    if sparse_pairs(window, input_sites, &site) > 0 {
                        active.extend(site);
                    }
                }
            }
        }
    }
    active
}
