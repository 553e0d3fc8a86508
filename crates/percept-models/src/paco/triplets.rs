//! A part with its match and its negative, and the systems that their distances and gradients need.

use percept_graph::{OpContext, Tensor};

use super::scene::{Measure, Samples, pool};

/// A part and another one of the pool.
pub(super) struct Pair {
    /// The place of the other in the pool.
    pub other: usize,
    /// Σ+⁻¹ x of their difference x.
    pub solved: Vec<f64>,
    /// xᵀ Σ+⁻¹ x.
    pub squared: f64,
    distance: f64,
}

/// A part with its match and its negative; no pairs where there is no negative.
pub(super) struct Triplet {
    pub pairs: Option<[Pair; 2]>,
}

impl Triplet {
    pub(super) fn distances(&self) -> [f64; 2] {
        let pairs = self.pairs.as_ref();
        pairs.map_or([0.0; 2], |pairs| pairs.each_ref().map(|pair| pair.distance))
    }

    pub(super) fn active(&self, margin: f64) -> bool {
        let [positive, negative] = self.distances();
        self.pairs.is_some() && positive - negative + margin > 0.0
    }
}

/// All triplets of a batch.
pub(super) struct Triplets<'a> {
    measure: Measure,
    pub samples: Samples<'a>,
    cached: &'a [f32],
    pool: Vec<f64>,
    matches: &'a [i32],
    negatives: &'a [i32],
    pub images: usize,
    pub parts: usize,
}

impl<'a> Triplets<'a> {
    pub(super) fn read(
        measure: Measure,
        context: &OpContext<'_>,
        inputs: &'a [Tensor<'_>],
    ) -> Result<Self, String> {
        let [z, samples, counts, cached, matches, negatives] = inputs else {
            return Err("takes parts, samples, counts, factors, matches and negatives".to_owned());
        };
        let (&[views, parts, d], z) = z.read::<f32>()? else {
            return Err("takes parts [2N, K, D]".to_owned());
        };
        Ok(Self {
            measure,
            samples: Samples::new(context, samples, counts)?,
            cached: cached.values()?,
            pool: pool(z, d),
            matches: matches.values()?,
            negatives: negatives.values()?,
            images: views / 2,
            parts,
        })
    }

    /// The loss, and the distances d+ and d- of every part.
    pub(super) fn loss(&self, margin: f64) -> Result<(f64, Vec<[f64; 2]>), String> {
        let (mut sum, mut distances) = (0.0, Vec::new());
        for image in 0..self.images {
            for triplet in self.of(image)? {
                let [positive, negative] = triplet.distances();
                if triplet.active(margin) {
                    sum += positive - negative + margin;
                }
                distances.push([positive, negative]);
            }
        }
        Ok((sum / distances.len().max(1) as f64, distances))
    }

    /// The triplets of an image.
    pub(super) fn of(&self, image: usize) -> Result<Vec<Triplet>, String> {
        let (d, columns) = (self.samples.d, 2 * self.images * self.parts);
        let pair_of = |k: usize| {
            let at = image * self.parts + k;
            let positive = (self.images + image) * self.parts + self.matches[at] as usize;
            let negative = usize::try_from(self.negatives[at]).ok()?;
            Some([positive, negative])
        };
        let chosen: Vec<Option<[usize; 2]>> = (0..self.parts).map(pair_of).collect();
        let others: Vec<(usize, usize)> = chosen
            .iter()
            .enumerate()
            .flat_map(|(k, pair)| pair.iter().flatten().map(move |&other| (k, other)))
            .collect();
        if let Some((_, other)) = others.iter().find(|(_, other)| *other >= columns) {
            return Err(format!("part {other} is none of the {columns} in the pool"));
        }
        // One column a pair.
        let difference = |i: usize, &(k, other): &(usize, usize)| {
            let row = &self.pool[i * columns..][..columns];
            row[image * self.parts + k] - row[other]
        };
        let x: Vec<f64> = (0..d)
            .flat_map(|i| others.iter().map(move |pair| difference(i, pair)))
            .collect();
        let metric = self.samples.metric(&self.measure, self.cached, image);
        let solved = metric
            .solve(others.len(), &x)
            .map_err(|error| format!("image {image}: {error}"))?;
        let column = |values: &[f64], at: usize| -> Vec<f64> {
            (0..d).map(|i| values[i * others.len() + at]).collect()
        };
        let mut pairs = others.iter().enumerate().map(|(at, &(_, other))| {
            let (x, solved) = (column(&x, at), column(&solved, at));
            let squared = x.iter().zip(&solved).map(|(x, a)| x * a).sum();
            let (distance, _) = self.measure.distance(squared, d);
            Pair {
                other,
                solved,
                squared,
                distance,
            }
        });
        let mut triplets = Vec::with_capacity(self.parts);
        for pair in &chosen {
            let pairs = pair.and_then(|_| Some([pairs.next()?, pairs.next()?]));
            triplets.push(Triplet { pairs });
        }
        Ok(triplets)
    }
}
