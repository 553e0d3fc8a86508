//! The fused kernels against their definition, and the definition's gradient against finite differences.

use proptest::prelude::*;

use super::*;
use crate::Cpu;
use crate::reference;
use crate::testing::{check, numbers, widen};

/// A cloud with lists of neighbours, features and weights, all random.
struct Case<T> {
    shape: AggregationShape,
    points: Vec<[f32; 3]>,
    neighbours: Vec<i32>,
    features: Vec<T>,
    encode: (Vec<T>, Vec<T>),
    again: Option<(Vec<T>, Vec<T>)>,
    score: Vec<T>,
}

impl Case<f32> {
    fn new(points: usize, k: usize, width: usize, join: Join, again: bool, seed: u64) -> Case<f32> {
        let numbers = |part: u64, len: usize| numbers(seed ^ part << 32, len);
        let slope = if seed.is_multiple_of(2) { 0.2 } else { 0.0 };
        let shape = AggregationShape {
            points,
            k: k.min(points.max(1)),
            width,
            join,
            slope,
        };
        let k = shape.k;
        let list = numbers(2, points * k);
        let named = |at: usize, value: &f32| {
            // Near ones mostly, as in a tree's order.
            let step = (value * if at.is_multiple_of(3) { 400.0 } else { 20.0 }) as i64;
            (at as i64 / k as i64 + step).rem_euclid(points as i64) as i32
        };
        Case {
            shape,
            points: numbers(1, 3 * points).as_chunks::<3>().0.to_vec(),
            neighbours: list
                .iter()
                .enumerate()
                .map(|(at, value)| named(at, value))
                .collect(),
            features: numbers(3, points * width),
            encode: (numbers(4, width * GEOMETRY), numbers(5, width)),
            again: again.then(|| (numbers(6, width * width), numbers(7, width))),
            score: numbers(8, 4 * width * width),
        }
    }

    fn widen(&self) -> Case<f64> {
        let both = |(weight, bias): &(Vec<f32>, Vec<f32>)| (widen(weight), widen(bias));
        Case {
            shape: self.shape,
            points: self.points.clone(),
            neighbours: self.neighbours.clone(),
            features: widen(&self.features),
            encode: both(&self.encode),
            again: self.again.as_ref().map(both),
            score: widen(&self.score),
        }
    }
}

impl<T> Case<T> {
    fn weights(&self) -> AggregationWeights<'_, T> {
        AggregationWeights {
            encode: (&self.encode.0, &self.encode.1),
            encode_again: self
                .again
                .as_ref()
                .map(|(weight, bias)| (&weight[..], &bias[..])),
            score: &self.score,
        }
    }
}

/// All gradients in a row: of the features, then of the weights.
fn in_a_row<T: Clone>(dfeatures: &[T], gradient: &AggregationGradient<T>) -> Vec<T> {
    let mut all = dfeatures.to_vec();
    for (weight, bias) in [Some(&gradient.encode), gradient.encode_again.as_ref()]
        .into_iter()
        .flatten()
    {
        all.extend_from_slice(weight);
        all.extend_from_slice(bias);
    }
    all.extend_from_slice(&gradient.score);
    all
}

impl Case<f64> {
    /// The definition's gradients.
    fn gradient(&self, dy: &[f32]) -> Vec<f64> {
        let mut dfeatures = vec![0.0; self.features.len()];
        let gradient = reference::gradient::aggregate_gradient(
            &self.shape,
            &self.weights(),
            &self.points,
            &self.neighbours,
            &self.features,
            &widen(dy),
            &mut dfeatures,
        );
        in_a_row(&dfeatures, &gradient)
    }

    /// The same case with what comes to activations moved.
    fn moved(mut self, by: f64) -> Case<f64> {
        let again = self.again.iter_mut().map(|(_, bias)| bias);
        for bias in again.chain([&mut self.encode.1]) {
            bias.iter_mut().for_each(|bias| *bias += by);
        }
        self
    }
}

/// Compares values, and gradients unless a number is so near to the bend of an activation that f32 and f64 may stand on both sides of
/// it. Tells whether gradients were compared.
fn compare(case: &Case<f32>) -> bool {
    const NEAR: f64 = 2e-6;
    let (shape, wide) = (&case.shape, case.widen());
    let mut y = vec![0.0; shape.outputs()];
    reference::aggregate(
        shape,
        &wide.weights(),
        &wide.points,
        &wide.neighbours,
        &wide.features,
        &mut y,
    );
    check(&y, 2e-5, |cpu, y| {
        let packed = PackedAggregation::pack(cpu, shape, &case.weights());
        aggregate(
            cpu,
            shape,
            &packed,
            &case.points,
            &case.neighbours,
            &case.features,
            y,
        );
    });
    let dy = numbers(9, shape.outputs());
    let expected = wide.gradient(&dy);
    let largest = expected
        .iter()
        .fold(1.0f64, |most, value| most.max(value.abs()));
    let [above, below] = [NEAR, -NEAR].map(|by| case.widen().moved(by).gradient(&dy));
    let bends = |(above, below): (&f64, &f64)| (above - below).abs() > 1e-5 * largest;
    if above.iter().zip(&below).any(bends) {
        return false;
    }
    check(&expected, 1e-5 * largest, |cpu, all| {
        let mut dfeatures = vec![f32::NAN; case.features.len()];
        let gradient = aggregate_gradient(
            cpu,
            shape,
            &case.weights(),
            &case.points,
            &case.neighbours,
            &case.features,
            &dy,
            &mut dfeatures,
        );
        all.copy_from_slice(&in_a_row(&dfeatures, &gradient));
    });
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn equals_its_definition(
        points in 0usize..40, k in 1usize..20, width in 1usize..27, own in any::<bool>(), again in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let join = if own { Join::Own } else { Join::Neighbours };
        compare(&Case::new(points, k, width, join, again, seed));
    }
}

#[test]
fn several_chunks_and_whole_vectors() {
    for case in [
        Case::new(700, 16, 8, Join::Neighbours, true, 4),
        Case::new(250, 16, 32, Join::Neighbours, false, 5),
        Case::new(210, 32, 16, Join::Own, false, 6),
    ] {
        assert!(compare(&case), "a number at a bend: take another seed");
    }
}

/// Central differences of the sum of y * dy, by every feature and weight.
#[test]
fn the_definition_has_the_gradient_of_finite_differences() {
    const STEP: f64 = 1e-6;
    for (join, again) in [
        (Join::Neighbours, true),
        (Join::Neighbours, false),
        (Join::Own, false),
    ] {
        let mut case = Case::new(7, 4, 3, join, again, 10).widen();
        let shape = case.shape;
        let dy = widen(&numbers(9, shape.outputs()));
        let mut dfeatures = vec![0.0; case.features.len()];
        let gradient = reference::gradient::aggregate_gradient(
            &shape,
            &case.weights(),
            &case.points,
            &case.neighbours,
            &case.features,
            &dy,
            &mut dfeatures,
        );
        let expected = in_a_row(&dfeatures, &gradient);
        let mut at = 0;
        for part in 0..6 {
            let mut index = 0;
            loop {
                let mut loss = |step: f64| {
                    let values = match (part, &mut case.again) {
                        (0, _) => &mut case.features,
                        (1, _) => &mut case.encode.0,
                        (2, _) => &mut case.encode.1,
                        (3, Some(again)) => &mut again.0,
                        (4, Some(again)) => &mut again.1,
                        (5, _) => &mut case.score,
                        _ => return None,
                    };
                    *values.get_mut(index)? += step;
                    let mut y = vec![0.0; shape.outputs()];
                    reference::aggregate(
                        &shape,
                        &case.weights(),
                        &case.points,
                        &case.neighbours,
                        &case.features,
                        &mut y,
                    );
                    Some(y.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>())
                };
                let (Some(above), Some(below), Some(_)) =
                    (loss(STEP), loss(-2.0 * STEP), loss(STEP))
                else {
                    break;
                };
                let difference = (above - below) / (2.0 * STEP);
                assert!(
                    (difference - expected[at]).abs() < 1e-7 * expected[at].abs().max(1.0),
                    "{join:?}, part {part}, {index}: {difference} and {}",
                    expected[at]
                );
                (index, at) = (index + 1, at + 1);
            }
        }
        assert_eq!(at, expected.len());
    }
}

#[test]
#[should_panic(expected = "a neighbour that does not exist")]
fn a_neighbour_from_outside_is_refused() {
    let mut case = Case::new(5, 2, 8, Join::Neighbours, false, 1);
    case.neighbours[3] = 5;
    let cpu = Cpu::new(1).unwrap();
    let packed = PackedAggregation::pack(&cpu, &case.shape, &case.weights());
    let mut y = vec![0.0; case.shape.outputs()];
    aggregate(
        &cpu,
        &case.shape,
        &packed,
        &case.points,
        &case.neighbours,
        &case.features,
        &mut y,
    );
}

/// Sums and products of rows, by definition.
fn moments_of(rows: &[Vec<f64>], width: usize) -> Vec<f64> {
    let mut all = vec![0.0; width + width * width];
    for row in rows {
        for a in 0..width {
            all[a] += row[a];
            for b in 0..width {
                all[width + a * width + b] += row[a] * row[b];
            }
        }
    }
    all
}

/// Geometry and first encoding of all neighbours, by definition.
fn encoded(case: &Case<f64>) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let (mut geometry, mut once) = (Vec::new(), Vec::new());
    for point in 0..case.shape.points {
        let made = reference::aggregate_point(
            &case.shape,
            &case.weights(),
            &case.points,
            &case.neighbours,
            &case.features,
            point,
        );
        geometry.extend(made.geometry);
        once.extend(made.once);
    }
    (geometry, once)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn moments_equal_their_definition(
        points in 0usize..150, k in 1usize..20, width in 1usize..20, own in any::<bool>(), seed in any::<u64>(),
    ) {
        let join = if own { Join::Own } else { Join::Neighbours };
        let case = Case::new(points, k, width, join, false, seed);
        let (shape, encode) = (&case.shape, case.weights().encode);
        let (geometry, once) = encoded(&case.widen());
        let in_a_row = |moments: Moments, y: &mut [f32]| {
            assert_eq!(moments.rows, geometry.len());
            let all = moments.sums.iter().chain(&moments.products);
            y.iter_mut().zip(all).for_each(|(y, &value)| *y = value as f32);
        };
        check(&moments_of(&geometry, GEOMETRY), 1e-5, |cpu, y| {
            in_a_row(geometry_moments(cpu, shape, &case.points, &case.neighbours), y);
        });
        check(&moments_of(&once, width), 1e-4, |cpu, y| {
            in_a_row(encoding_moments(cpu, shape, encode, &case.points, &case.neighbours), y);
        });
    }
}

/// Against the gradient of Σ over rows of dsums · r + rᵀ dproducts r, by the chain rule.
#[test]
fn the_moments_gradient_is_that_of_their_definition() {
    let case = Case::new(130, 7, 11, Join::Neighbours, false, 12);
    let (shape, width) = (&case.shape, case.shape.width);
    let (dsums, dproducts) = (
        widen(&numbers(20, width)),
        widen(&numbers(21, width * width)),
    );
    let (geometry, once) = encoded(&case.widen());
    let mut expected = vec![0.0; width * GEOMETRY + width];
    for (geometry, once) in geometry.iter().zip(&once) {
        for a in 0..width {
            let products =
                (0..width).map(|b| (dproducts[a * width + b] + dproducts[b * width + a]) * once[b]);
            let slope = if once[a] > 0.0 {
                1.0
            } else {
                f64::from(shape.slope)
            };
            let d = slope * (dsums[a] + products.sum::<f64>());
            for (number, value) in geometry.iter().enumerate() {
                expected[a * GEOMETRY + number] += d * value;
            }
            expected[width * GEOMETRY + a] += d;
        }
    }
    let largest = expected
        .iter()
        .fold(1.0f64, |most, value| most.max(value.abs()));
    check(&expected, 1e-5 * largest, |cpu, y| {
        let (weight, bias) = encoding_moments_gradient(
            cpu,
            shape,
            case.weights().encode,
            &case.points,
            &case.neighbours,
            &dsums,
            &dproducts,
        );
        y.copy_from_slice(&[weight, bias].concat());
    });
}
