//! Which points are beaten by no other.

/// Which end of an axis is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Small numbers, as of times and sizes.
    Lower,
    /// Large numbers, as of accuracies.
    Higher,
}

impl Better {
    /// The value as one that is better the smaller it is.
    fn cost(self, value: f64) -> f64 {
        match self {
            Self::Lower => value,
            Self::Higher => -value,
        }
    }
}

/// The places of the points that no other point beats (as good in both and better in one), in the order of x. Of equal points
/// the first counts; points with a number that is not finite do not.
///
/// ```
/// use percept_picture::{Better, pareto_front};
///
/// let time_and_accuracy = [[5.0, 70.0], [9.0, 69.0], [3.0, 60.0], [8.0, 75.0]];
/// assert_eq!(pareto_front(&time_and_accuracy, [Better::Lower, Better::Higher]), [2, 0, 3]);
/// ```
pub fn pareto_front(points: &[[f64; 2]], better: [Better; 2]) -> Vec<usize> {
    let cost = |place: usize| -> [f64; 2] {
        std::array::from_fn(|axis| better[axis].cost(points[place][axis]))
    };
    let mut places: Vec<usize> = (0..points.len())
        .filter(|place| points[*place].iter().all(|value| value.is_finite()))
        .collect();
    places.sort_by(|a, b| {
        let ([ax, ay], [bx, by]) = (cost(*a), cost(*b));
        ax.total_cmp(&bx).then(ay.total_cmp(&by))
    });
    let mut best = f64::INFINITY;
    let mut front: Vec<usize> = places
        .into_iter()
        .filter(|place| {
            let [_, y] = cost(*place);
            let better = y < best;
            best = best.min(y);
            better
        })
        .collect();
    front.sort_by(|a, b| points[*a][0].total_cmp(&points[*b][0]));
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: every pair is compared.
    fn slow_front(points: &[[f64; 2]], better: [Better; 2]) -> Vec<usize> {
        let cost = |point: &[f64; 2]| [better[0].cost(point[0]), better[1].cost(point[1])];
        let beaten = |place: usize| {
            let [x, y] = cost(&points[place]);
            points.iter().enumerate().any(|(other, point)| {
                let [ox, oy] = cost(point);
                ox <= x && oy <= y && (ox < x || oy < y || other < place)
            })
        };
        let mut front: Vec<usize> = (0..points.len()).filter(|place| !beaten(*place)).collect();
        front.sort_by(|a, b| points[*a][0].total_cmp(&points[*b][0]));
        front
    }

    #[test]
    fn the_front_is_that_of_the_definition() {
        // A small walk that meets many equal numbers.
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 28)
        };
        for count in [0, 1, 2, 3, 10, 60] {
            let points: Vec<[f64; 2]> = (0..count).map(|_| [next(), next()]).collect();
            for x in [Better::Lower, Better::Higher] {
                for y in [Better::Lower, Better::Higher] {
                    assert_eq!(pareto_front(&points, [x, y]), slow_front(&points, [x, y]));
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_is_never_best() {
        let points = [[f64::NAN, 9.0], [1.0, f64::INFINITY], [2.0, 3.0]];
        assert_eq!(pareto_front(&points, [Better::Lower, Better::Higher]), [2]);
    }
}
