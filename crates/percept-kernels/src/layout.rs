//! Copies that change a tensor's layout: permute, slice, expand, concatenate, pad, pick rows.

use std::ops::Range;

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::rows::for_each_block;
use crate::strides::{Odometer, broadcast_dims, broadcast_strides, collapse, contiguous_strides};

/// A number of any type that tensors hold.
pub trait Element: Copy + Send + Sync {}
impl<T: Copy + Send + Sync> Element for T {}

/// y with the axes of x (`dims`) in the order `axes`: axis i of y is axis `axes[i]` of x.
pub fn permute<T: Element>(cpu: &Cpu, dims: &[usize], axes: &[usize], x: &[T], y: &mut [T]) {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    assert!(
        sorted.iter().copied().eq(0..dims.len()),
        "{axes:?} is no order of {dims:?}'s axes"
    );
    let strides = contiguous_strides(dims);
    let pick = |values: &[usize]| axes.iter().map(|&axis| values[axis]).collect::<Vec<_>>();
    copy_strided(cpu, &pick(dims), &pick(&strides), 0, x, y);
}

/// y = the part of x (`dims`) inside one range an axis.
pub fn slice<T: Element>(cpu: &Cpu, dims: &[usize], ranges: &[Range<usize>], x: &[T], y: &mut [T]) {
    assert_eq!(ranges.len(), dims.len(), "one range per axis");
    let inside = dims
        .iter()
        .zip(ranges)
        .all(|(&len, range)| range.start <= range.end && range.end <= len);
    assert!(inside, "{ranges:?} of {dims:?}");
    let strides = contiguous_strides(dims);
    let offset = ranges
        .iter()
        .zip(&strides)
        .map(|(range, stride)| range.start * stride)
        .sum();
    let out_dims: Vec<_> = ranges.iter().map(|range| range.len()).collect();
    copy_strided(cpu, &out_dims, &strides, offset, x, y);
}

/// y (`target`) = x (`dims`), repeated along missing axes and axes of 1, as NumPy broadcasts.
pub fn expand<T: Element>(cpu: &Cpu, dims: &[usize], target: &[usize], x: &[T], y: &mut [T]) {
    let broadcast = broadcast_dims(dims, target);
    assert_eq!(
        broadcast.as_deref(),
        Some(target),
        "{dims:?} does not expand to {target:?}"
    );
    copy_strided(cpu, target, &broadcast_strides(dims, target), 0, x, y);
}

/// y (dense, `dims`) = the numbers of x at `offset` + index * strides. Slices with steps, permutations, expansions and
/// diagonals are all of this form.
pub fn copy_strided<T: Element>(
    cpu: &Cpu,
    dims: &[usize],
    strides: &[usize],
    offset: usize,
    x: &[T],
    y: &mut [T],
) {
    assert_eq!(dims.len(), strides.len(), "one stride per axis");
    assert_eq!(y.len(), dims.iter().product(), "length of y {dims:?}");
    if y.is_empty() {
        return;
    }
    let last = dims
        .iter()
        .zip(strides)
        .map(|(len, stride)| (len - 1) * stride)
        .sum::<usize>();
    assert!(
        offset + last < x.len(),
        "x has {} numbers, {} needed",
        x.len(),
        offset + last + 1
    );
    let x = &x[offset..];
    let (mut dims, [mut strides]) = collapse(dims, [strides.to_vec()]);
    let run = dims.pop().unwrap_or(1);
    let step = strides.pop().unwrap_or(1);
    // A transposition: the axis before runs through memory instead.
    if step > 1 && strides.last() == Some(&1) {
        let rows = dims.pop().unwrap_or(1);
        strides.pop();
        let starts: Vec<_> = Odometer::new(&dims, &strides).collect();
        return transpose_planes(cpu, &starts, rows, run, step, x, y);
    }
    for_each_block(cpu, y.len() / run, run, run, y, |rows, y| {
        let starts = Odometer::starting_at(rows.start, &dims, &strides);
        for (start, y) in starts.zip(y.chunks_exact_mut(run)) {
            match step {
                0 => y.fill(x[start]),
                1 => y.copy_from_slice(&x[start..start + run]),
                _ => y
                    .iter_mut()
                    .zip(x[start..].iter().step_by(step))
                    .for_each(|(y, &x)| *y = x),
            }
        }
    });
}

/// Rows of a tile of a transposition: a cache line of f32 read, a few lines written.
const TILE: usize = 16;

/// For each start: y [rows, columns] = x\[start + row + column * step\].
fn transpose_planes<T: Element>(
    cpu: &Cpu,
    starts: &[usize],
    rows: usize,
    columns: usize,
    step: usize,
    x: &[T],
    y: &mut [T],
) {
    let strips = rows.div_ceil(TILE);
    let y = SharedMut::new(y);
    cpu.parallel(starts.len() * strips, &|index, _| {
        let (plane, strip) = (index / strips, index % strips);
        let first = strip * TILE;
        let count = TILE.min(rows - first);
        let begin = (plane * rows + first) * columns;
        // SAFETY: each strip of rows of each plane belongs to one block.
        let y = unsafe { y.slice(begin..begin + count * columns) };
        let x = &x[starts[plane] + first..];
        for left in (0..columns).step_by(TILE) {
            let right = columns.min(left + TILE);
            for (row, y) in y.chunks_exact_mut(columns).enumerate() {
                for (column, y) in (left..right).zip(&mut y[left..right]) {
                    *y = x[row + column * step];
                }
            }
        }
    });
}

/// Concatenates along an axis: each part has `outer` rows, made of everything from that axis on.
pub fn concat<T: Element>(cpu: &Cpu, outer: usize, parts: &[&[T]], y: &mut [T]) {
    let total: usize = parts.iter().map(|part| part.len()).sum();
    assert_eq!(y.len(), total, "length of y");
    if total == 0 {
        return;
    }
    assert!(
        parts.iter().all(|part| part.len().is_multiple_of(outer)),
        "each part has {outer} equal rows"
    );
    for_each_block(cpu, outer, total / outer, total / outer, y, |rows, y| {
        for (row, mut y) in rows.zip(y.chunks_exact_mut(total / outer)) {
            for part in parts {
                let len = part.len() / outer;
                let (head, tail) = std::mem::take(&mut y).split_at_mut(len);
                head.copy_from_slice(&part[row * len..][..len]);
                y = tail;
            }
        }
    });
}

/// y = x (`dims`) with `before` and `after` copies of `value` added on each axis.
pub fn pad<T: Element>(
    cpu: &Cpu,
    dims: &[usize],
    before: &[usize],
    after: &[usize],
    value: T,
    x: &[T],
    y: &mut [T],
) {
    let rank = dims.len();
    assert!(
        before.len() == rank && after.len() == rank,
        "one padding per axis and side"
    );
    assert_eq!(x.len(), dims.iter().product(), "length of x {dims:?}");
    let padded: Vec<_> = (0..rank)
        .map(|axis| before[axis] + dims[axis] + after[axis])
        .collect();
    assert_eq!(y.len(), padded.iter().product(), "length of y {padded:?}");
    let Some(&out_width) = padded.last() else {
        return y.copy_from_slice(x);
    };
    if y.is_empty() {
        return;
    }
    let width = dims[rank - 1];
    let left = before[rank - 1];
    for_each_block(
        cpu,
        y.len() / out_width,
        out_width,
        out_width,
        y,
        |rows, y| {
            for (row, y) in rows.zip(y.chunks_exact_mut(out_width)) {
                y.fill(value);
                if let Some(source) = unpadded_row(row, &dims[..rank - 1], before, &padded) {
                    y[left..left + width].copy_from_slice(&x[source * width..][..width]);
                }
            }
        },
    );
}

/// The row of the unpadded tensor that row `row` of the padded one holds, if any; `dims` are the axes before the last.
fn unpadded_row(row: usize, dims: &[usize], before: &[usize], padded: &[usize]) -> Option<usize> {
    let (mut rest, mut source, mut stride) = (row, 0, 1);
    for axis in (0..dims.len()).rev() {
        let index = (rest % padded[axis]).checked_sub(before[axis])?;
        if index >= dims[axis] {
            return None;
        }
        rest /= padded[axis];
        source += index * stride;
        stride *= dims[axis];
    }
    Some(source)
}

/// y\[i\] = the row `indices[i]` of x, rows having `width` numbers. Panics when an index is out of range.
pub fn gather_rows<T: Element>(cpu: &Cpu, width: usize, x: &[T], indices: &[usize], y: &mut [T]) {
    if width == 0 {
        return;
    }
    assert!(
        x.len().is_multiple_of(width),
        "{} numbers are not whole rows of {width}",
        x.len()
    );
    let rows = x.len() / width;
    if let Some(index) = indices.iter().find(|&&index| index >= rows) {
        panic!("row {index} of {rows}");
    }
    for_each_block(cpu, indices.len(), width, width, y, |items, y| {
        for (&index, y) in indices[items].iter().zip(y.chunks_exact_mut(width)) {
            y.copy_from_slice(&x[index * width..][..width]);
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rows::BLOCK_LEN;

    /// Counts, so that every number says where it came from.
    fn counts(dims: &[usize]) -> Vec<usize> {
        (0..dims.iter().product()).collect()
    }

    /// Runs a copy on 1 and 3 threads.
    fn run(len: usize, copy: impl Fn(&Cpu, &mut [usize])) -> Vec<usize> {
        let [one, three] = [1, 3].map(|threads| {
            let mut y = vec![usize::MAX; len];
            copy(&Cpu::new(threads).unwrap(), &mut y);
            y
        });
        assert_eq!(one, three);
        one
    }

    fn index_of(mut flat: usize, dims: &[usize]) -> Vec<usize> {
        let mut index = vec![0; dims.len()];
        for axis in (0..dims.len()).rev() {
            index[axis] = flat % dims[axis];
            flat /= dims[axis];
        }
        index
    }

    fn flat_of(index: &[usize], dims: &[usize]) -> usize {
        index
            .iter()
            .zip(dims)
            .fold(0, |flat, (i, len)| flat * len + i)
    }

    fn dims() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(0usize..20, 0..5)
            .prop_filter("small", |dims| dims.iter().product::<usize>() < 20_000)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn permutations(
            (dims, axes) in dims().prop_flat_map(|dims| {
                let axes: Vec<usize> = (0..dims.len()).collect();
                (Just(dims), Just(axes).prop_shuffle())
            })
        ) {
            let x = counts(&dims);
            let y = run(x.len(), |cpu, y| permute(cpu, &dims, &axes, &x, y));
            let out_dims: Vec<_> = axes.iter().map(|&axis| dims[axis]).collect();
            for (i, &value) in y.iter().enumerate() {
                let (to, from) = (index_of(i, &out_dims), index_of(value, &dims));
                prop_assert!(axes.iter().zip(to).all(|(&axis, to)| from[axis] == to));
            }
        }

        #[test]
        fn slices_and_pads_are_inverse(
            axes in prop::collection::vec((0usize..8, 0usize..4, 0usize..4), 0..5)
        ) {
            let dims: Vec<_> = axes.iter().map(|axis| axis.0).collect();
            let before: Vec<_> = axes.iter().map(|axis| axis.1).collect();
            let after: Vec<_> = axes.iter().map(|axis| axis.2).collect();
            let padded: Vec<_> = axes.iter().map(|axis| axis.0 + axis.1 + axis.2).collect();
            let x = counts(&dims);
            let wide_len = padded.iter().product();
            let wide = run(wide_len, |cpu, y| pad(cpu, &dims, &before, &after, 9999, &x, y));
            prop_assert_eq!(wide.iter().filter(|&&v| v == 9999).count(), wide_len - x.len());
            let ranges: Vec<_> = (0..dims.len()).map(|i| before[i]..before[i] + dims[i]).collect();
            let back = run(x.len(), |cpu, y| slice(cpu, &padded, &ranges, &wide, y));
            prop_assert_eq!(back, x);
        }

        #[test]
        fn expansion(axes in prop::collection::vec((0usize..9, any::<bool>()), 0..5), missing in 0usize..3) {
            let target: Vec<_> = axes.iter().map(|axis| axis.0).collect();
            let dims: Vec<_> = axes.iter().map(|&(n, one)| if one { 1 } else { n }).skip(missing).collect();
            let x = counts(&dims);
            let y = run(target.iter().product(), |cpu, y| expand(cpu, &dims, &target, &x, y));
            for (i, &value) in y.iter().enumerate() {
                let index = index_of(i, &target);
                let own: Vec<_> = index[target.len() - dims.len()..]
                    .iter()
                    .zip(&dims)
                    .map(|(&i, &len)| if len == 1 { 0 } else { i })
                    .collect();
                prop_assert_eq!(value, flat_of(&own, &dims));
            }
        }

        #[test]
        fn concatenation(outer in 1usize..50, lens in prop::collection::vec(0usize..700, 0..4)) {
            let parts: Vec<Vec<usize>> =
                lens.iter().enumerate().map(|(i, &len)| (0..outer * len).map(|v| v * 4 + i).collect()).collect();
            let views: Vec<&[usize]> = parts.iter().map(|part| &part[..]).collect();
            let total: usize = lens.iter().sum();
            let y = run(outer * total, |cpu, y| concat(cpu, outer, &views, y));
            let expected: Vec<usize> = (0..outer)
                .flat_map(|row| views.iter().zip(&lens).flat_map(move |(part, &len)| &part[row * len..(row + 1) * len]))
                .copied()
                .collect();
            prop_assert_eq!(y, expected);
        }
    }

    #[test]
    fn big_maps_become_tokens() {
        let (channels, area) = (70, BLOCK_LEN / 16 + 3);
        let x = counts(&[channels, area]);
        let y = run(x.len(), |cpu, y| {
            permute(cpu, &[channels, area], &[1, 0], &x, y)
        });
        assert!((0..x.len()).all(|i| y[i] == i % channels * area + i / channels));
    }

    #[test]
    fn steps_and_rows() {
        let x = counts(&[20]);
        assert_eq!(
            run(4, |cpu, y| copy_strided(cpu, &[4], &[3], 2, &x, y)),
            [2, 5, 8, 11]
        );
        assert_eq!(
            run(4, |cpu, y| gather_rows(cpu, 2, &x, &[3, 0], y)),
            [6, 7, 0, 1]
        );
    }

    #[test]
    #[should_panic(expected = "row 10 of 10")]
    fn a_row_out_of_range_is_refused() {
        gather_rows(&Cpu::new(1).unwrap(), 2, &counts(&[20]), &[10], &mut [0, 0]);
    }
}
