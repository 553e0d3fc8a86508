//! What an aggregation is: sizes, variants and weights, as networks name them.

use crate::points::MAX_NEIGHBOURS;

/// Numbers that describe where a neighbour n of a point p is: their distance, p - n, p and n.
pub const GEOMETRY: usize = 10;

/// What is joined, in which order: RandLA-Net exists in two variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Join {
    /// Each neighbour's features, then its encoding; geometry as distance, p - n, p, n (Open3D-ML).
    Neighbours,
    /// Each neighbour's encoding, then the point's own features; geometry as p, n, p - n, distance (RandLA-Net-pytorch).
    Own,
}

impl Join {
    /// Where distance, p - n, p and n (ten numbers, in this order) stand in the geometry.
    pub(crate) fn geometry_column(self, number: usize) -> usize {
        match (self, number) {
            (Join::Neighbours, _) => number,
            (Join::Own, 0) => 9,
            (Join::Own, 1..4) => number + 5,
            (Join::Own, 4..7) => number - 4,
            (Join::Own, _) => number - 4,
        }
    }

    /// Where features and encoding of `width` channels each start among the joined ones.
    pub(crate) fn starts(self, width: usize) -> (usize, usize) {
        match self {
            Join::Neighbours => (0, width),
            Join::Own => (width, 0),
        }
    }
}

/// Sizes and variant of an aggregation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AggregationShape {
    /// Points, N.
    pub points: usize,
    /// Neighbours of each point, K.
    pub k: usize,
    /// Channels of the features and of the encoding, C; 2C are joined.
    pub width: usize,
    /// What is joined.
    pub join: Join,
    /// Slope below 0 of the encoding's activation, from 0 (ReLU) to 1.
    pub slope: f32,
}

impl AggregationShape {
    /// Panics when something does not have its length, or a neighbour does not exist.
    pub(crate) fn check<T>(&self, points: &[[f32; 3]], neighbours: &[i32], features: &[T]) {
        self.check_lists(points, neighbours);
        assert_eq!(
            features.len(),
            self.points * self.width,
            "length of the features"
        );
    }

    /// [`AggregationShape::check`] without features.
    pub(crate) fn check_lists(&self, points: &[[f32; 3]], neighbours: &[i32]) {
        assert!(self.width > 0, "an aggregation has channels");
        assert!(
            (1..=MAX_NEIGHBOURS).contains(&self.k) || self.points == 0,
            "neighbours"
        );
        assert!((0.0..=1.0).contains(&self.slope), "a slope from 0 to 1");
        assert_eq!(points.len(), self.points, "number of points");
        assert_eq!(
            neighbours.len(),
            self.points * self.k,
            "length of the neighbours"
        );
        // Read as unsigned, a negative number is too large.
        let largest = neighbours
            .iter()
            .fold(0, |most, &n| most.max(n.cast_unsigned()));
        assert!(
            (largest as usize) < self.points.max(1),
            "a neighbour that does not exist"
        );
    }

    /// Panics when the first encoding's weights do not have their lengths.
    pub(crate) fn check_encode<T>(&self, (weight, bias): (&[T], &[T])) {
        assert_eq!(
            weight.len(),
            self.width * GEOMETRY,
            "length of the encoding's weights"
        );
        assert_eq!(bias.len(), self.width, "length of the encoding's bias");
    }

    /// Numbers of the result.
    pub fn outputs(&self) -> usize {
        self.points * 2 * self.width
    }
}

/// Weights of an aggregation, batch norms folded. `[outputs, inputs]` as PyTorch has them.
#[derive(Clone, Copy, Debug)]
pub struct AggregationWeights<'a, T> {
    /// `[C, 10]` and `[C]`: from the geometry to the encoding.
    pub encode: (&'a [T], &'a [T]),
    /// `[C, C]` and `[C]`: encodes the encoding again (the second stage of the variant with neighbours' features).
    pub encode_again: Option<(&'a [T], &'a [T])>,
    /// `[2C, 2C]`: attention scores of the joined channels. A bias would change nothing: it cancels in the softmax.
    pub score: &'a [T],
}

impl<T> AggregationWeights<'_, T> {
    /// Panics when something does not have its length.
    pub(crate) fn check(&self, width: usize) {
        let layer = |(weight, bias): (&[T], &[T]), inputs: usize| {
            assert_eq!(
                weight.len(),
                width * inputs,
                "length of the encoding's weights"
            );
            assert_eq!(bias.len(), width, "length of the encoding's bias");
        };
        layer(self.encode, GEOMETRY);
        if let Some(again) = self.encode_again {
            layer(again, width);
        }
        assert_eq!(
            self.score.len(),
            4 * width * width,
            "length of the score's weights"
        );
    }
}

/// The gradient of [`AggregationWeights`], each part as long as its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregationGradient<T> {
    /// `[C, 10]` and `[C]`
    pub encode: (Vec<T>, Vec<T>),
    /// `[C, C]` and `[C]`
    pub encode_again: Option<(Vec<T>, Vec<T>)>,
    /// `[2C, 2C]`
    pub score: Vec<T>,
}

impl<T: Copy + Default> AggregationGradient<T> {
    /// All zero.
    pub fn zeros(width: usize, again: bool) -> AggregationGradient<T> {
        let zeros = |len: usize| vec![T::default(); len];
        AggregationGradient {
            encode: (zeros(width * GEOMETRY), zeros(width)),
            encode_again: again.then(|| (zeros(width * width), zeros(width))),
            score: zeros(4 * width * width),
        }
    }
}
