//! Products of pixels, read where they lie, with vectors of 16 output channels.
//!
//! A pixel's number is spread over a vector and multiplied with the weights of 16 channels, so that pixels need no packing, and sums
//! are the channels of a pixel, side by side. That suits maps of a few pixels, and whoever wants channels side by side.

use crate::aligned::{AlignedBuf, FLOATS_PER_LINE};
use crate::simd::channels::Channels;
use crate::simd::{LANES, prefetch_read_l2, prefetch_write};

/// Channels of a vector.
pub(crate) const CHANNELS: usize = 2 * LANES;
/// Vectors of channels that pixels are multiplied with at a time.
pub(crate) const VECTORS: usize = 2;
/// Channels of a block of weights.
pub(crate) const UNIT_CHANNELS: usize = VECTORS * CHANNELS;

/// Weights `[block][depth][channels of the block]`: 32 output channels side by side, in the last block as many whole vectors as it needs,
/// filled up with zeros.
#[derive(Debug)]
pub struct PackedChannels {
    packed: AlignedBuf,
    depth: usize,
    channels: usize,
}

impl PackedChannels {
    /// Packs weights [channels, depth].
    pub(crate) fn pack(channels: usize, depth: usize, weight: &[f32]) -> PackedChannels {
        assert_eq!(weight.len(), channels * depth, "length of the weights");
        let mut packed = AlignedBuf::zeroed_floats(channels.next_multiple_of(CHANNELS) * depth);
        let mut rows = packed.floats_mut();
        for block in 0..channels.div_ceil(UNIT_CHANNELS) {
            let first = block * UNIT_CHANNELS;
            let width = vectors_of(channels, block) * CHANNELS;
            let (block, others) = rows.split_at_mut(width * depth);
            rows = others;
            for (step, row) in block.chunks_exact_mut(width).enumerate() {
                for (channel, to) in (first..channels).zip(row) {
                    *to = weight[channel * depth + step];
                }
            }
        }
        PackedChannels {
            packed,
            depth,
            channels,
        }
    }

    /// Panics when they were packed for others.
    pub(crate) fn check(&self, channels: usize, depth: usize) {
        assert_eq!(
            [self.channels, self.depth],
            [channels, depth],
            "the weights were packed for other channels"
        );
    }

    /// Vectors of channels that a block has, and its weights.
    pub(crate) fn block(&self, block: usize) -> (usize, &[f32]) {
        let vectors = vectors_of(self.channels, block);
        let start = block * UNIT_CHANNELS * self.depth;
        (
            vectors,
            &self.packed.floats()[start..][..vectors * CHANNELS * self.depth],
        )
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.packed.len()
    }
}

/// Vectors of channels that a block has, of this many channels.
pub(crate) fn vectors_of(channels: usize, block: usize) -> usize {
    (channels - block * UNIT_CHANNELS)
        .div_ceil(CHANNELS)
        .min(VECTORS)
}

/// The bias of a block's channels, and zeros.
pub(crate) fn padded_bias(bias: Option<&[f32]>, block: usize) -> [f32; UNIT_CHANNELS] {
    let mut padded = [0.0; UNIT_CHANNELS];
    let bias = bias.map_or(&[][..], |bias| &bias[block * UNIT_CHANNELS..]);
    let pairs = padded.iter_mut().zip(bias);
    pairs.for_each(|(to, &from)| *to = from);
    padded
}

/// Where the numbers of a row of pixels lie: those of the first one, for each step of the depth. Those of the others follow.
pub(crate) trait Pixels {
    fn depth(&self) -> usize;
    /// # Safety
    /// The step is below the depth.
    unsafe fn first(&self, step: usize) -> *const f32;
    /// Goes on to the row that lies `floats` further.
    fn advance(&mut self, floats: usize);
}

/// Pixels whose channels are a plane apart.
pub(crate) struct PixelRow {
    pub(crate) x: *const f32,
    pub(crate) stride: usize,
    pub(crate) depth: usize,
}

impl Pixels for PixelRow {
    #[inline(always)]
    fn depth(&self) -> usize {
        self.depth
    }
    #[inline(always)]
    unsafe fn first(&self, step: usize) -> *const f32 {
        // SAFETY: the step is below the depth.
        unsafe { self.x.add(step * self.stride) }
    }
    #[inline(always)]
    fn advance(&mut self, floats: usize) {
        self.x = self.x.wrapping_add(floats);
    }
}

/// Pixels whose numbers lie at these offsets.
pub(crate) struct PixelTaps<'a> {
    pub(crate) x: *const f32,
    pub(crate) offsets: &'a [usize],
}

impl Pixels for PixelTaps<'_> {
    #[inline(always)]
    fn depth(&self) -> usize {
        self.offsets.len()
    }
    #[inline(always)]
    unsafe fn first(&self, step: usize) -> *const f32 {
        // SAFETY: the step is below the depth.
        unsafe { self.x.add(*self.offsets.get_unchecked(step)) }
    }
    #[inline(always)]
    fn advance(&mut self, floats: usize) {
        self.x = self.x.wrapping_add(floats);
    }
}

/// What sums begin with.
#[derive(Clone, Copy)]
pub(crate) enum Sums<'a> {
    /// The bias of each channel.
    Begin(&'a [f32; UNIT_CHANNELS]),
    /// What is there: for rows that are cut into whole tiles, or else pixels of two tiles would be added twice.
    GoOn,
}

/// Cache lines to ask for while a row of pixels is multiplied: what comes next, so that it is near by then.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    /// Addresses, and how many lines from there on.
    pub(crate) lines: [(*const f32, usize); 2],
    /// How many floats behind these pixels the next ones lie.
    pub(crate) pixels: Option<usize>,
    /// Where this row's first pixel goes, channels a plane apart: (address, plane, channels).
    pub(crate) output: (*mut f32, usize, usize),
}

impl Ahead {
    /// Part `index` of `parts`, whose pixels begin with `first`.
    #[inline(always)]
    pub(crate) fn part(&self, index: usize, parts: usize, first: usize) -> Ahead {
        let (output, plane, channels) = self.output;
        Ahead {
            lines: self.lines.map(|(address, count)| {
                let [start, end] = [index, index + 1].map(|at| at * count / parts);
                (address.wrapping_add(start * FLOATS_PER_LINE), end - start)
            }),
            pixels: self.pixels,
            output: (output.wrapping_add(first), plane, channels),
        }
    }

    /// Asks for what belongs to a step of the depth.
    #[inline(always)]
    fn step(&self, step: usize, pixels: *const f32) {
        for (address, count) in self.lines {
            if step < count {
                prefetch_read_l2(address.wrapping_add(step * FLOATS_PER_LINE));
            }
        }
        if let Some(ahead) = self.pixels {
            prefetch_read_l2(pixels.wrapping_add(ahead));
        }
        if step < self.output.2 {
            prefetch_write(self.output.0.wrapping_add(step * self.output.1));
        }
    }
}

/// Weights `[depth][16 * vectors]`.
#[derive(Clone, Copy)]
pub(crate) struct ChannelWeights<'a> {
    pub(crate) weights: &'a [f32],
    /// 1 or 2.
    pub(crate) vectors: usize,
    pub(crate) sums: Sums<'a>,
    pub(crate) ahead: Option<Ahead>,
}

/// Pixels of a tile for a row of `width`: as many as give few and full tiles. The last tile may overlap the one before.
pub(crate) fn tile_pixels<C: Channels>(width: usize) -> usize {
    let sizes: &[usize] = if C::WIDE { &[14, 8, 7, 4, 1] } else { &[4, 1] };
    let fits = sizes.iter().copied().filter(|&size| size <= width);
    // Beside its pixels, a tile costs about as much as two more.
    fits.min_by_key(|&size| width.div_ceil(size) * (size + 2))
        .unwrap_or(1)
}

/// Expands to `$body` for each tile of a row: its size is the constant `$size`, its first pixel `$first`.
macro_rules! for_tiles {
    ($channels:ty, $width:expr, |$first:ident, $size:ident| $body:expr) => {{
        let width: usize = $width;
        let size = $crate::gemm::pixels::tile_pixels::<$channels>(width);
        macro_rules! tiles {
            ($n:literal) => {{
                const $size: usize = $n;
                for first in (0..width).step_by($n) {
                    let $first = first.min(width - $n);
                    $body
                }
            }};
        }
        match size {
            14 if <$channels>::WIDE => tiles!(14),
            8 if <$channels>::WIDE => tiles!(8),
            7 if <$channels>::WIDE => tiles!(7),
            4 => tiles!(4),
            _ => tiles!(1),
        }
    }};
}
pub(crate) use for_tiles;

/// The sums of `width` pixels, `STEP` floats apart: those of vector v and pixel p at `to + v * vector_stride + 16 * p`.
///
/// # Safety
/// Readable: the row's pixels at all steps. Writable, and where sums go on readable: the sums' places.
#[inline(always)]
pub(crate) unsafe fn multiply_row<C: Channels, X: Pixels, const STEP: usize>(
    c: C,
    row: &X,
    width: usize,
    weights: ChannelWeights<'_>,
    to: *mut f32,
    vector_stride: usize,
) {
    let stride = weights.vectors * CHANNELS;
    assert!(weights.weights.len() >= row.depth() * stride);
    let b = weights.weights.as_ptr();
    let bias = match weights.sums {
        Sums::Begin(bias) => Some(bias.as_ptr()),
        Sums::GoOn => None,
    };
    // SAFETY: tiles lie within the row, and weights are as long as asserted.
    unsafe {
        for_tiles!(C, width, |first, P| {
            let to = to.add(first * CHANNELS);
            let x = first * STEP;
            let ahead = weights
                .ahead
                .map(|ahead| ahead.part(first / P, width / P, first));
            if C::WIDE && weights.vectors == 2 {
                let b = (b, stride);
                if let Some(ahead) = ahead {
                    let ask = |step, pixels| ahead.step(step, pixels);
                    multiply_tile::<C, X, STEP, P, 2>(c, row, x, b, bias, to, vector_stride, ask);
                } else {
                    let ask = |_, _| {};
                    multiply_tile::<C, X, STEP, P, 2>(c, row, x, b, bias, to, vector_stride, ask);
                }
            } else {
                for v in 0..weights.vectors {
                    let b = (b.add(v * CHANNELS), stride);
                    let to = to.add(v * vector_stride);
                    let bias = bias.map(|bias| bias.add(v * CHANNELS));
                    multiply_tile::<C, X, STEP, P, 1>(c, row, x, b, bias, to, 0, |_, _| {});
                }
            }
        });
    }
}

/// # Safety
/// As for [`multiply_row`], with P pixels, the first of them `x` floats from the row's, and N vectors. `ask` is called in each step with
/// where its pixels are.
#[inline(always)]
unsafe fn multiply_tile<
    C: Channels,
    X: Pixels,
    const STEP: usize,
    const P: usize,
    const N: usize,
>(
    c: C,
    row: &X,
    x: usize,
    (weights, stride): (*const f32, usize),
    bias: Option<*const f32>,
    to: *mut f32,
    vector_stride: usize,
    ask: impl Fn(usize, *const f32),
) {
    // SAFETY: as the caller promises.
    unsafe {
        let mut sums = [[c.splat(0.0); N]; P];
        for v in 0..N {
            for p in 0..P {
                sums[p][v] = c.load(match bias {
                    Some(bias) => bias.add(v * CHANNELS),
                    None => to.add(v * vector_stride + p * CHANNELS),
                });
            }
        }
        let mut b = weights;
        for step in 0..row.depth() {
            let pixels = row.first(step).add(x);
            ask(step, pixels);
            let mut columns = [c.splat(0.0); N];
            for v in 0..N {
                columns[v] = c.load(b.add(v * CHANNELS));
            }
            for p in 0..P {
                let pixel = c.splat(*pixels.add(p * STEP));
                for v in 0..N {
                    sums[p][v] = c.mul_add(pixel, columns[v], sums[p][v]);
                }
            }
            b = b.add(stride);
        }
        for v in 0..N {
            for p in 0..P {
                c.store(to.add(v * vector_stride + p * CHANNELS), sums[p][v]);
            }
        }
    }
}
