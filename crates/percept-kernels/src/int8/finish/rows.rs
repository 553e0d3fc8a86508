//! Rows of sums, as linear layers and sparse convolutions have them.

use super::{Addend, Finish, Rounding, SharedOutput, add_product};
use crate::activation::Activation;
use crate::int8::scale::Steps;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Finishes some rows of sums, `stride` apart, from column `column` on.
pub(in crate::int8) struct FinishRows<'a> {
    pub(in crate::int8) finish: &'a Finish<'a>,
    pub(in crate::int8) sums: &'a [i32],
    pub(in crate::int8) stride: usize,
    /// First row of the output.
    pub(in crate::int8) row: usize,
    pub(in crate::int8) rows: usize,
    pub(in crate::int8) column: usize,
    /// Columns to finish.
    pub(in crate::int8) columns: usize,
    /// Columns of the output.
    pub(in crate::int8) width: usize,
}

impl Kernel for FinishRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.finish.rounding {
            Rounding::Fused => self.finish::<S, true>(s),
            Rounding::Each => self.finish::<S, false>(s),
        }
    }
}

impl FinishRows<'_> {
    #[inline(always)]
    fn finish<S: Simd, const FUSED: bool>(self, s: S) {
        let FinishRows {
            finish,
            sums,
            stride,
            row,
            rows,
            column,
            columns,
            width,
        } = self;
        let byte_width = width.next_multiple_of(4);
        for done in (0..columns).step_by(LANES) {
            let n = (columns - done).min(LANES);
            let at = column + done;
            let (factors, bias) = (s.read(&finish.factors[at..]), s.read(&finish.bias[at..]));
            for i in 0..rows {
                let sums = &sums[i * stride + done..][..LANES];
                // SAFETY: 8 sums are there.
                let sum = unsafe { s.load_integers(sums.as_ptr()) };
                let mut value = add_product::<S, FUSED>(s, sum, factors, bias);
                let (float_place, byte_place) =
                    ((row + i) * width + at, (row + i) * byte_width + at);
                match finish.residual {
                    Some(Addend::Floats(residual)) => {
                        let residual = &residual[float_place..][..n];
                        value = add_product::<S, FUSED>(
                            s,
                            s.read(residual),
                            s.splat(finish.unit),
                            value,
                        );
                    }
                    Some(Addend::Bytes(residual, scale)) => {
                        let bytes = read_bytes(&residual[byte_place..][..n]);
                        value =
                            add_product::<S, FUSED>(s, s.widen_bytes(bytes), s.splat(scale), value);
                    }
                    None => {}
                }
                if finish.activation != Activation::Identity {
                    value = finish.activation.apply(s, value);
                }
                match &finish.output {
                    SharedOutput::Floats(y) => {
                        // SAFETY: blocks have their own rows or columns.
                        let y = unsafe { y.slice(float_place..float_place + n) };
                        s.write(y, value);
                    }
                    SharedOutput::Bytes {
                        y,
                        per_unit,
                        lowest,
                    } => {
                        let steps = Steps::new(s, *per_unit, *lowest);
                        let bytes = s.to_bytes(steps.of(s, value));
                        // The last quad is filled up with zeros.
                        let whole = if at + n == width { byte_width - at } else { n };
                        // SAFETY: as above.
                        let y = unsafe { y.slice(byte_place..byte_place + whole) };
                        match y.as_mut_array::<LANES>() {
                            Some(y) if n == LANES => *y = bytes,
                            _ => {
                                y[n..].fill(0);
                                y[..n].copy_from_slice(&bytes[..n]);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn read_bytes(bytes: &[i8]) -> [i8; LANES] {
    if let Some(whole) = bytes.as_array::<LANES>() {
        return *whole;
    }
    let mut lanes = [0; LANES];
    lanes[..bytes.len()].copy_from_slice(bytes);
    lanes
}
