//! Selections of the loss: which parts of the two views belong together, and which part of the batch is the negative.

use percept_graph::{Cost, CustomOp, DType, OpContext, Operator, Tensor, TensorType};

use super::{Matching, Objective};

/// Parts [2N, K, D] and distances [N, K, 2NK] to the part of the second view, i32 [N, K], that belongs to each of the first:
/// the assignment of the least total cost, the first of equals.
#[derive(Clone, Debug)]
pub(super) struct PartMatching {
    pub cost: Matching,
}

/// More parts would make the table of subsets large.
pub(super) const MOST_PARTS: usize = 10;

impl Operator for PartMatching {
    fn kind(&self) -> &'static str {
        "PartMatching"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [parts, distances] if parts.shape.len() == 3 && distances.shape.len() == 3 => {
                Ok(vec![TensorType::i32(distances.shape[..2].iter().cloned())])
            }
            _ => Err("parts [2N, K, D] and distances [N, K, 2NK]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        let [v, k, d] = &inputs[0].shape[..] else {
            return Cost::movement();
        };
        Cost::elementwise(v.clone() * k.clone() * k.clone() * d.clone(), 1)
    }

    fn describe(&self) -> String {
        format!("PartMatching({:?})", self.cost)
    }
}

impl CustomOp for PartMatching {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [z, distances] = inputs else {
            return Err("takes parts and distances".to_owned());
        };
        let (&[views, parts, d], z) = z.read::<f32>()? else {
            return Err("takes parts [2N, K, D]".to_owned());
        };
        let distances = distances.values::<f32>()?;
        if parts > MOST_PARTS {
            return Err(format!("{parts} parts, more than {MOST_PARTS}"));
        }
        let (images, all) = (views / 2, views * parts);
        let part = |view: usize, k: usize| &z[(view * parts + k) * d..][..d];
        let mut data = Vec::with_capacity(images * parts);
        for image in 0..images {
            let second = images + image;
            let cost = |k: usize, l: usize| match self.cost {
                Matching::Cosine => 1.0 - cosine(part(image, k), part(second, l)),
                Matching::Mahalanobis => {
                    let row = &distances[(image * parts + k) * all..][..all];
                    f64::from(row[second * parts + l])
                }
            };
            let costs: Vec<f64> = (0..parts * parts)
                .map(|i| cost(i / parts, i % parts))
                .collect();
            data.extend(assign(parts, &costs).into_iter().map(|l| l as i32));
        }
        Ok(vec![Tensor::from_values([images, parts], data)?])
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| {
        let products = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b));
        products.sum::<f64>()
    };
    // PyTorch's floor under the norm.
    let norm = |a: &[f32]| dot(a, a).sqrt().max(1e-12);
    dot(a, b) / (norm(a) * norm(b))
}

/// The columns of the rows, each once, whose costs [n, n] sum to the least: by the subsets of columns that the last rows take.
fn assign(n: usize, costs: &[f64]) -> Vec<usize> {
    let subsets = 1usize << n;
    // best[taken]: the least cost of the rows that are left when `taken` columns are gone.
    let mut best = vec![0.0; subsets];
    let free = |taken: usize| (0..n).filter(move |column| taken & (1 << column) == 0);
    let after = |best: &[f64], taken: usize, column: usize| {
        let row = taken.count_ones() as usize;
        costs[row * n + column] + best[taken | (1 << column)]
    };
    for taken in (0..subsets - 1).rev() {
        let candidates = free(taken).map(|column| after(&best, taken, column));
        best[taken] = candidates.fold(f64::INFINITY, f64::min);
    }
    let mut taken = 0;
    let mut assigned = Vec::with_capacity(n);
    for _ in 0..n {
        let cheapest =
            free(taken).min_by(|&a, &b| after(&best, taken, a).total_cmp(&after(&best, taken, b)));
        let column = cheapest.unwrap_or(0);
        assigned.push(column);
        taken |= 1 << column;
    }
    assigned
}

/// Distances [N, K, 2NK], matches i32 [N, K] and labels i32 [N] to the negative of every part, i32 [N, K]: its place in the
/// pool, or -1 where no candidate exists.
///
/// Semi-hard: the nearest candidate that is farther than the positive, else the nearest. The positive itself is never one: it
/// would win by the rounding of a tie.
#[derive(Clone, Debug)]
pub(super) struct Negatives {
    pub objective: Objective,
    /// Only this many of the nearest candidates are looked at.
    pub hardest: Option<usize>,
}

impl Operator for Negatives {
    fn kind(&self) -> &'static str {
        "Negatives"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match inputs {
            [distances, _, labels] if distances.shape.len() == 3 && labels.dtype == DType::I32 => {
                Ok(vec![TensorType::i32(distances.shape[..2].iter().cloned())])
            }
            _ => Err("distances [N, K, 2NK], matches and labels i32 [N]".to_owned()),
        }
    }

    fn cost(&self, inputs: &[&TensorType], _: &[&TensorType]) -> Cost {
        Cost::elementwise(inputs[0].elements(), 2)
    }

    fn describe(&self) -> String {
        match self.hardest {
            Some(most) => format!("Negatives(hardest={most})"),
            None => "Negatives()".to_owned(),
        }
    }
}

impl CustomOp for Negatives {
    fn run(
        &self,
        _: &OpContext<'_>,
        inputs: &[Tensor<'_>],
    ) -> Result<Vec<Tensor<'static>>, String> {
        let [distances, matches, labels] = inputs else {
            return Err("takes distances, matches and labels".to_owned());
        };
        let (&[images, parts, all], distances) = distances.read::<f32>()? else {
            return Err("takes distances [N, K, 2NK]".to_owned());
        };
        let (matches, labels) = (matches.values::<i32>()?, labels.values::<i32>()?);
        let mut data = Vec::with_capacity(images * parts);
        for image in 0..images {
            for k in 0..parts {
                let row = &distances[(image * parts + k) * all..][..all];
                let matched = matches[image * parts + k] as usize;
                let positive = (images + image) * parts + matched;
                let candidate = |&place: &usize| match self.objective {
                    Objective::Published => place != positive,
                    Objective::Stable => {
                        let other = place / parts % images;
                        other != image && labels[other] != labels[image]
                    }
                };
                let candidates = (0..all).filter(candidate).collect();
                let chosen = self.choose(row, candidates, row[positive]);
                data.push(chosen.map_or(-1, |place| place as i32));
            }
        }
        Ok(vec![Tensor::from_values([images, parts], data)?])
    }
}

impl Negatives {
    fn choose(
        &self,
        distances: &[f32],
        mut candidates: Vec<usize>,
        positive: f32,
    ) -> Option<usize> {
        let nearer = |a: &usize, b: &usize| distances[*a].total_cmp(&distances[*b]).then(a.cmp(b));
        if let Some(most) = self.hardest
            && most < candidates.len()
        {
            candidates.select_nth_unstable_by(most, nearer);
            candidates.truncate(most);
        }
        let nearest = candidates.iter().copied().min_by(nearer);
        let semi_hard = candidates.into_iter().filter(|&c| distances[c] > positive);
        semi_hard.min_by(nearer).or(nearest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn total(n: usize, costs: &[f64], columns: &[usize]) -> f64 {
        columns
            .iter()
            .enumerate()
            .map(|(row, &c)| costs[row * n + c])
            .sum()
    }

    fn permutations(n: usize) -> Vec<Vec<usize>> {
        if n == 0 {
            return vec![Vec::new()];
        }
        let shorter = permutations(n - 1);
        let insert = |p: &Vec<usize>, at: usize| {
            let mut p = p.clone();
            p.insert(at, n - 1);
            p
        };
        shorter
            .iter()
            .flat_map(|p| (0..n).map(move |at| insert(p, at)))
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_permutation_is_cheaper(n in 0usize..6, costs in prop::collection::vec(0.0f64..2.0, 36)) {
            let assigned = assign(n, &costs);
            let mut sorted = assigned.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..n));
            let least = permutations(n).iter().map(|p| total(n, &costs, p)).fold(f64::INFINITY, f64::min);
            prop_assert!((total(n, &costs, &assigned) - least).abs() < 1e-12);
        }
    }

    #[test]
    fn negatives_are_semi_hard_and_never_the_positive() {
        let negatives = |objective, hardest| Negatives { objective, hardest };
        // Two images, one part each: the pool is [a, b, a', b'], and the positive of a is a'.
        let run = |op: Negatives, row: [f32; 4], labels: [i32; 2]| {
            let distances = [row, row].concat();
            let inputs = [
                Tensor::from_values([2, 1, 4], distances).unwrap(),
                Tensor::from_values([2, 1], &[0, 0]).unwrap(),
                Tensor::from_values([2], &labels).unwrap(),
            ];
            let chosen = op.run(&OpContext::new(&()), &inputs).unwrap();
            chosen[0].values::<i32>().unwrap()[0]
        };
        let published = negatives(Objective::Published, None);
        assert_eq!(run(published.clone(), [0.0, 5.0, 2.0, 3.0], [0, 1]), 3);
        assert_eq!(
            run(published, [0.0, 1.0, 2.0, 1.5], [0, 1]),
            0,
            "nothing is farther"
        );
        let stable = negatives(Objective::Stable, Some(16));
        assert_eq!(run(stable.clone(), [0.0, 1.0, 2.0, 1.5], [0, 1]), 1);
        assert_eq!(
            run(stable, [0.0, 1.0, 2.0, 1.5], [1, 1]),
            -1,
            "the same class"
        );
        let hardest = negatives(Objective::Stable, Some(1));
        assert_eq!(run(hardest, [0.0, 5.0, 1.0, 0.5], [0, 1]), 3);
    }
}
