//! How surprising a row's class is, `log Σ exp x - x[class]`, and what it asks of the row.

use crate::aligned::SharedMut;
use crate::cpu::Cpu;
use crate::isa::Kernel;
use crate::math::exp;
use crate::rows::{BLOCK_LEN, sum};
use crate::simd::{LANES, Simd};
use crate::softmax::largest;

/// A row that counts: of its classes, one is right.
#[derive(Clone, Copy, Debug)]
pub struct Labelled {
    /// The row.
    pub row: usize,
    /// The class that is right.
    pub class: usize,
    /// What its gradient is multiplied by.
    pub scale: f32,
}

/// The surprise of each labelled row of x `[rows, classes]`, one after the other. Where `dx` is given, each of these rows of it
/// becomes `scale · (softmax x - one-hot class)`; others stay as they are. Rows ascend.
pub fn surprise(
    cpu: &Cpu,
    classes: usize,
    x: &[f32],
    labelled: &[Labelled],
    surprise: &mut [f64],
    dx: Option<&mut [f32]>,
) {
    assert_eq!(surprise.len(), labelled.len(), "a surprise for each row");
    let rows = x.len() / classes.max(1);
    assert!(labelled.windows(2).all(|pair| pair[0].row < pair[1].row));
    assert!(
        labelled
            .iter()
            .all(|one| one.row < rows && one.class < classes)
    );
    assert!(dx.as_ref().is_none_or(|dx| dx.len() == x.len()));
    let each = (BLOCK_LEN / classes.max(1)).max(1);
    let (surprise, dx) = (SharedMut::new(surprise), dx.map(SharedMut::new));
    cpu.parallel(labelled.len().div_ceil(each), &|block, _| {
        let some = block * each..labelled.len().min((block + 1) * each);
        let labelled = &labelled[some.clone()];
        let first = labelled.first().map_or(0, |one| one.row);
        let end = labelled.last().map_or(0, |one| one.row + 1);
        // SAFETY: blocks are disjoint, and so are their rows, which ascend.
        let (surprise, dx) = unsafe {
            let dx = dx
                .as_ref()
                .map(|dx| dx.slice(first * classes..end * classes));
            (surprise.slice(some), dx)
        };
        cpu.isa().run(Surprise {
            classes,
            x: &x[first * classes..end * classes],
            first,
            labelled,
            surprise,
            dx,
        });
    });
}

struct Surprise<'a> {
    classes: usize,
    /// Rows from `first` on.
    x: &'a [f32],
    first: usize,
    labelled: &'a [Labelled],
    surprise: &'a mut [f64],
    dx: Option<&'a mut [f32]>,
}

impl Kernel for Surprise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut alone = vec![0.0; self.classes];
        for (one, surprise) in self.labelled.iter().zip(self.surprise) {
            let at = (one.row - self.first) * self.classes;
            let x = &self.x[at..][..self.classes];
            let (y, wanted) = match &mut self.dx {
                Some(dx) => (&mut dx[at..][..self.classes], true),
                None => (&mut alone[..], false),
            };
            let max = largest(s, x);
            for (x, y) in x.chunks(LANES).zip(y.chunks_mut(LANES)) {
                s.write(y, exp(s, s.sub(s.read(x), s.splat(max))));
            }
            let total = sum(s, y);
            *surprise = libm::log(f64::from(total)) + f64::from(max) - f64::from(x[one.class]);
            if wanted {
                let share = s.splat(1.0 / total);
                y[one.class] -= total;
                for y in y.chunks_mut(LANES) {
                    s.write(y, s.mul(s.mul(s.read(y), share), s.splat(one.scale)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::isa::Isa;
    use crate::testing::numbers;

    /// The formulas, in f64.
    fn reference(classes: usize, x: &[f32], one: Labelled) -> (f64, Vec<f64>) {
        let x: Vec<f64> = x[one.row * classes..][..classes]
            .iter()
            .map(|&x| f64::from(x))
            .collect();
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = x.iter().map(|x| (x - max).exp()).sum();
        let slope = |(class, x): (usize, &f64)| {
            let truth = if class == one.class { 1.0 } else { 0.0 };
            f64::from(one.scale) * ((x - max).exp() / total - truth)
        };
        let slopes = x.iter().enumerate().map(slope).collect();
        (total.ln() + max - x[one.class], slopes)
    }

    proptest! {
        #[test]
        fn equals_the_formulas(
            rows in 0usize..3000, classes in prop::sample::select(vec![1usize, 2, 8, 13, 19, 40]),
            every in 1usize..4, seed in any::<u64>(), far in prop::sample::select(vec![1.0f32, 30.0]),
        ) {
            let x: Vec<f32> = numbers(seed, rows * classes).iter().map(|x| x * far).collect();
            let labelled: Vec<Labelled> = (0..rows)
                .step_by(every)
                .map(|row| Labelled { row, class: row * 7 % classes, scale: 0.5 + row as f32 })
                .collect();
            for isa in Isa::available() {
                let mut alike = Vec::new();
                for threads in [1, 2, 3] {
                    let cpu = Cpu::with_isa(threads, isa).unwrap();
                    let mut alone = vec![f64::NAN; labelled.len()];
                    surprise(&cpu, classes, &x, &labelled, &mut alone, None);
                    let mut found = vec![f64::NAN; labelled.len()];
                    let mut dx = vec![7.0; x.len()];
                    surprise(&cpu, classes, &x, &labelled, &mut found, Some(&mut dx));
                    prop_assert_eq!(&alone, &found);
                    alike.push((found, dx));
                }
                prop_assert!(alike.windows(2).all(|pair| pair[0] == pair[1]));
                let (found, dx) = &alike[0];
                let mut next = labelled.iter().zip(found).peekable();
                for (row, dx) in dx.chunks(classes).enumerate() {
                    let Some((one, found)) = next.next_if(|(one, _)| one.row == row) else {
                        prop_assert!(dx.iter().all(|&dx| dx == 7.0));
                        continue;
                    };
                    let (expected, slopes) = reference(classes, &x, *one);
                    prop_assert!((found - expected).abs() <= 1e-6 * (1.0 + expected.abs()));
                    for (dx, slope) in dx.iter().zip(slopes) {
                        let difference = f64::from(*dx) - slope;
                        prop_assert!(difference.abs() <= 1e-6 * f64::from(one.scale));
                    }
                }
            }
        }
    }
}
