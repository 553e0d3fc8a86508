//! A seeded patch embedding that sees a patch by its moments: mean colour, slopes, curvatures, and one degree more.
//!
//! Nothing trains a seeded backbone, so what it looks at stays what it is. Plain random weights look at every pixel alike, and
//! most of what they see of a patch is where the patch happens to begin. Moments change little when a thing moves by some
//! pixels, and mean colours, which would drown the rest, are weighed less.

use super::Stream;

/// How much moments weigh by the sum of their degrees along height and width: finer ones vary less in pictures.
const DEGREE_WEIGHTS: [f64; 4] = [1.0, 1.8, 2.1, 2.3];
/// Degrees of the moments of a patch, the one along its height first. A patch's mean is the first of them.
const DEGREES: [[usize; 2]; 10] = [
    [0, 0],
    [0, 1],
    [0, 2],
    [0, 3],
    [1, 0],
    [1, 1],
    [1, 2],
    [2, 0],
    [2, 1],
    [3, 0],
];
/// Brightness, and the two differences of colours: their parts of red, green and blue, and how much they weigh.
const COLOURS: [([f64; 3], f64); 3] = [
    ([1.0, 1.0, 1.0], 1.0),
    ([1.0, 0.0, -1.0], 1.4),
    ([1.0, -2.0, 1.0], 1.8),
];
/// Makes tokens of pictures about as large as plain random weights do.
const SCALE: f64 = 0.0734;
/// The mean colour of the world's rooms, normalised as pictures are, which gives next to no token.
const MEAN_COLOUR: [f64; 3] = [0.69, 0.42, 0.23];

/// The shape of a patch: three colours, rows, columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Patch {
    rows: usize,
    columns: usize,
}

impl Patch {
    /// The patch that weights `[outputs, 3, rows, columns]` look at.
    pub(super) fn of_weights(shape: &[usize]) -> Option<Patch> {
        match *shape {
            [_, 3, rows, columns] => Some(Patch { rows, columns }),
            _ => None,
        }
    }

    /// Fills `out` with the weights from `start` on: each output weighs all moments at random.
    pub(super) fn fill(self, stream: Stream, start: usize, out: &mut [f32]) {
        let Patch { rows, columns } = self;
        let [along_rows, along_columns] = [rows, columns].map(legendre);
        for (index, out) in (start..).zip(out) {
            let (row, column) = (index / columns % rows, index % columns);
            let (output, colour) = (index / (3 * rows * columns), index / (rows * columns) % 3);
            let mut sum = 0.0;
            for (moment, [u, v]) in DEGREES.into_iter().enumerate() {
                let wave = DEGREE_WEIGHTS[u + v] * along_rows[u][row] * along_columns[v][column];
                sum += wave * random_colour(stream, output, moment)[colour];
            }
            *out = (SCALE * sum) as f32;
        }
    }
}

/// Fills `out` with the biases from `start` on that belong to weights whose stream this is, for patches of `pixels`.
pub(super) fn fill_biases(weights: Stream, pixels: usize, start: usize, out: &mut [f32]) {
    for (output, out) in (start..).zip(out) {
        let colour = random_colour(weights, output, 0);
        let mean: f64 = colour.iter().zip(MEAN_COLOUR).map(|(a, b)| a * b).sum();
        *out = (-SCALE * (pixels as f64).sqrt() * mean) as f32;
    }
}

/// What red, green and blue of a moment weigh for an output.
fn random_colour(stream: Stream, output: usize, moment: usize) -> [f64; 3] {
    let first = (output * DEGREES.len() + moment) * COLOURS.len();
    let mut sum = [0.0; 3];
    for (tone, (parts, weight)) in COLOURS.into_iter().enumerate() {
        let norm = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
        let random = 2.0 * f64::from(stream.uniform((first + tone) as u64)) - 1.0;
        for (sum, part) in sum.iter_mut().zip(parts) {
            *sum += random * weight * part / norm;
        }
    }
    sum
}

/// Legendre's first four polynomials at the middles of `len` pixels, of length 1 each. They need no cosine, so that their bits
/// are the same on every machine.
fn legendre(len: usize) -> [Vec<f64>; 4] {
    let at = |pixel: usize| (2.0 * pixel as f64 + 1.0) / len as f64 - 1.0;
    let polynomials: [fn(f64) -> f64; 4] = [
        |_| 1.0,
        |t| t,
        |t| 1.5 * t * t - 0.5,
        |t| 2.5 * t * t * t - 1.5 * t,
    ];
    polynomials.map(|polynomial| {
        let values: Vec<f64> = (0..len).map(|pixel| polynomial(at(pixel))).collect();
        let norm = values.iter().map(|value| value * value).sum::<f64>().sqrt();
        values.iter().map(|value| value / norm).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an embedding answers to a patch, given as a function of colour, row and column.
    fn answer(outputs: usize, patch: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
        let shape = Patch {
            rows: 14,
            columns: 14,
        };
        let mut weights = vec![0.0; outputs * 588];
        shape.fill(Stream::named("patches"), 0, &mut weights);
        let pixel = |i: usize| patch(i / 196, i / 14 % 14, i % 14);
        let weights = weights.chunks_exact(588);
        let sum = |row: &[f32]| (0..588).map(|i| f64::from(row[i]) * pixel(i)).sum();
        weights.map(sum).collect()
    }

    fn length(values: &[f64]) -> f64 {
        values.iter().map(|value| value * value).sum::<f64>().sqrt()
    }

    #[test]
    fn a_moved_edge_changes_less_than_another_colour_and_fine_checks_are_not_seen() {
        let edge = |at: usize| move |_: usize, _: usize, column: usize| f64::from(column >= at);
        let difference = |a: Vec<f64>, b: Vec<f64>| -> Vec<f64> {
            a.iter().zip(b).map(|(a, b)| a - b).collect()
        };
        let moved = length(&difference(answer(64, edge(6)), answer(64, edge(7))));
        let red = answer(64, |colour, _, _| f64::from(colour == 0));
        let blue = answer(64, |colour, _, _| f64::from(colour == 2));
        let coloured = length(&difference(red, blue));
        let checks = length(&answer(64, |_, row, column| {
            [1.0, -1.0][(row + column) % 2]
        }));
        assert!(moved < 0.5 * coloured, "{moved} and {coloured}");
        assert!(checks < 0.05 * coloured, "{checks} and {coloured}");
    }

    #[test]
    fn a_patch_of_the_mean_colour_gives_next_to_no_token() {
        let answers = answer(64, |colour, _, _| MEAN_COLOUR[colour]);
        let mut biases = [0.0; 64];
        fill_biases(Stream::named("patches"), 14 * 14, 0, &mut biases);
        let tokens: Vec<f64> = answers
            .iter()
            .zip(biases)
            .map(|(a, b)| a + f64::from(b))
            .collect();
        let (token, bare) = (length(&tokens), length(&answers));
        assert!(bare > 1.0 && token < 0.1 * bare, "{token} and {bare}");
    }

    #[test]
    fn parts_are_those_of_the_whole() {
        let patch = Patch {
            rows: 5,
            columns: 3,
        };
        let stream = Stream::named("patches");
        let mut whole = vec![0.0; 4 * 45];
        patch.fill(stream, 0, &mut whole);
        let mut part = vec![0.0; 60];
        patch.fill(stream, 77, &mut part);
        assert_eq!(part, whole[77..137]);
        assert!(whole.iter().all(|value| *value != 0.0));
    }
}
