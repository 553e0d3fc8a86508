//! From floats to bytes and back: maps NCHW to quads, and rows.

use super::finish::{read_quads, write_quads};
use super::scale::ByteScale;
use crate::aligned::SharedMut;
use crate::conv::ConvShape;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd, prefetch_read};

/// Elements of a block.
const BLOCK: usize = 16 * 1024;
/// Numbers of a plane between one that is read and one that is asked for: the CPU alone begins anew at every page.
const AHEAD: usize = 512;

/// Bytes of maps in quads.
pub fn map_len(batch: usize, channels: usize, pixels: usize) -> usize {
    batch * row_len(channels) * pixels
}

/// Panics when a map that a convolution reads has another length.
pub(super) fn check_input(shape: &ConvShape, x: &[i8]) {
    let len = map_len(shape.batch, shape.in_channels, shape.in_pixels());
    assert_eq!(x.len(), len, "length of the input");
}

/// Bytes of a row.
pub fn row_len(columns: usize) -> usize {
    columns.next_multiple_of(4)
}

/// Quantises maps `[batch, channels, pixels]` to quads.
pub fn quantize_map(
    cpu: &Cpu,
    [batch, channels, pixels]: [usize; 3],
    x: &[f32],
    scale: ByteScale,
    y: &mut [i8],
) {
    assert_eq!(x.len(), batch * channels * pixels, "length of the input");
    assert_eq!(
        y.len(),
        map_len(batch, channels, pixels),
        "length of the output"
    );
    let y = SharedMut::new(y);
    for_each_part(cpu, [batch, channels, pixels], &|part| {
        let place = 4 * part.quad_place();
        // SAFETY: parts are disjoint.
        let y = unsafe { y.slice(place..place + 4 * part.len) };
        cpu.isa().run(Quantize { part, x, scale, y });
    });
}

/// Undoes [`quantize_map`], as far as it can be undone.
pub fn dequantize_map(
    cpu: &Cpu,
    [batch, channels, pixels]: [usize; 3],
    x: &[i8],
    scale: f32,
    y: &mut [f32],
) {
    assert_eq!(
        x.len(),
        map_len(batch, channels, pixels),
        "length of the input"
    );
    assert_eq!(y.len(), batch * channels * pixels, "length of the output");
    let y = SharedMut::new(y);
    for_each_part(cpu, [batch, channels, pixels], &|part| {
        let place = 4 * part.quad_place();
        let x = &x[place..][..4 * part.len];
        cpu.isa().run(Dequantize {
            part,
            x,
            scale,
            y: &y,
        });
    });
}

/// Some pixels of one quad of channels.
#[derive(Clone, Copy)]
struct Part {
    sample: usize,
    quad: usize,
    channels: usize,
    pixels: usize,
    first: usize,
    len: usize,
}

impl Part {
    /// The first pixel's place among quads.
    fn quad_place(&self) -> usize {
        (self.sample * self.channels.div_ceil(4) + self.quad) * self.pixels + self.first
    }

    /// The first pixel's place in a channel's plane; `None` past the last channel.
    #[inline(always)]
    fn place(&self, lane: usize) -> Option<usize> {
        let channel = 4 * self.quad + lane;
        let plane = self.sample * self.channels + channel;
        (channel < self.channels).then_some(plane * self.pixels + self.first)
    }
}

fn for_each_part(cpu: &Cpu, [batch, channels, pixels]: [usize; 3], body: &(dyn Fn(Part) + Sync)) {
    let (quads, cuts) = (channels.div_ceil(4), pixels.div_ceil(BLOCK));
    cpu.parallel(batch * quads * cuts, &|block, _| {
        let first = block % cuts * BLOCK;
        body(Part {
            sample: block / cuts / quads,
            quad: block / cuts % quads,
            channels,
            pixels,
            first,
            len: (pixels - first).min(BLOCK),
        });
    });
}

struct Quantize<'a> {
    part: Part,
    x: &'a [f32],
    scale: ByteScale,
    y: &'a mut [i8],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Quantize { part, x, scale, y } = self;
        let steps = scale.steps(s);
        for (index, y) in y.chunks_mut(4 * LANES).enumerate() {
            let (done, n) = (index * LANES, y.len() / 4);
            let mut values = [s.splat(0.0); 4];
            for lane in 0..4 {
                if let Some(place) = part.place(lane) {
                    let x = &x[place + done..][..n];
                    prefetch_read(x.as_ptr().wrapping_add(AHEAD));
                    values[lane] = steps.of(s, s.read(x));
                }
            }
            write_quads(s.to_quads(values), y);
        }
    }
}

struct Dequantize<'a> {
    part: Part,
    x: &'a [i8],
    scale: f32,
    y: &'a SharedMut<'a, f32>,
}

impl Kernel for Dequantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Dequantize { part, x, scale, y } = self;
        for (index, x) in x.chunks(4 * LANES).enumerate() {
            let (done, n) = (index * LANES, x.len() / 4);
            let values = s.widen_quads(read_quads(x));
            for lane in 0..4 {
                if let Some(place) = part.place(lane) {
                    let start = place + done;
                    // SAFETY: parts are disjoint.
                    let y = unsafe { y.slice(start..start + n) };
                    s.write(y, s.mul(values[lane], s.splat(scale)));
                }
            }
        }
    }
}

/// Quantises rows of `columns` numbers, each filled up with zeros to whole quads.
pub fn quantize_rows(cpu: &Cpu, columns: usize, x: &[f32], scale: ByteScale, y: &mut [i8]) {
    let rows = rows_of(columns, x.len());
    assert_eq!(y.len(), rows * row_len(columns), "length of the output");
    for_each_rows(cpu, columns, rows, y, &|first, y| {
        let x = &x[first * columns..][..y.len() / row_len(columns) * columns];
        cpu.isa().run(QuantizeRows {
            columns,
            x,
            scale,
            y,
        });
    });
}

/// Undoes [`quantize_rows`], as far as it can be undone.
pub fn dequantize_rows(cpu: &Cpu, columns: usize, x: &[i8], scale: f32, y: &mut [f32]) {
    let rows = rows_of(columns, y.len());
    assert_eq!(x.len(), rows * row_len(columns), "length of the input");
    let y = SharedMut::new(y);
    let block_rows = (BLOCK / columns.max(1)).max(1);
    cpu.parallel(rows.div_ceil(block_rows), &|block, _| {
        let first = block * block_rows;
        let last = (first + block_rows).min(rows);
        // SAFETY: blocks have their own rows.
        let y = unsafe { y.slice(first * columns..last * columns) };
        let x = x[first * row_len(columns)..].chunks_exact(row_len(columns).max(1));
        for (x, y) in x.zip(y.chunks_exact_mut(columns.max(1))) {
            for (&q, y) in x.iter().zip(y) {
                *y = f32::from(q) * scale;
            }
        }
    });
}

fn rows_of(columns: usize, len: usize) -> usize {
    let rows = len / columns.max(1);
    assert_eq!(rows * columns, len, "whole rows");
    rows
}

/// Runs `body(first row, bytes)` on blocks of rows of bytes.
fn for_each_rows(
    cpu: &Cpu,
    columns: usize,
    rows: usize,
    y: &mut [i8],
    body: &(dyn Fn(usize, &mut [i8]) + Sync),
) {
    let block_rows = (BLOCK / columns.max(1)).max(1);
    let y = SharedMut::new(y);
    cpu.parallel(rows.div_ceil(block_rows), &|block, _| {
        let first = block * block_rows;
        let last = (first + block_rows).min(rows);
        // SAFETY: blocks have their own rows.
        let y = unsafe { y.slice(first * row_len(columns)..last * row_len(columns)) };
        body(first, y);
    });
}

struct QuantizeRows<'a> {
    columns: usize,
    x: &'a [f32],
    scale: ByteScale,
    y: &'a mut [i8],
}

impl Kernel for QuantizeRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let QuantizeRows {
            columns,
            x,
            scale,
            y,
        } = self;
        let steps = scale.steps(s);
        // Rows of whole quads are one long row.
        let (columns, width) = match columns.is_multiple_of(4) {
            true => (x.len(), y.len()),
            false => (columns, row_len(columns)),
        };
        let rows = x.chunks_exact(columns.max(1));
        for (x, y) in rows.zip(y.chunks_exact_mut(width.max(1))) {
            let (y, rest) = y.split_at_mut(columns);
            rest.fill(0);
            for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                let bytes = s.to_bytes(steps.of(s, s.read(x)));
                match y.as_mut_array::<LANES>() {
                    Some(y) => *y = bytes,
                    None => y.copy_from_slice(&bytes[..x.len()]),
                }
            }
        }
    }
}
