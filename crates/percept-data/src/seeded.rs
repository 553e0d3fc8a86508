//! Seeded weights: every tensor's values follow from its public name, so that networks run, and
//! references are reproduced, without a weight file.
//!
//! Value `i` of the tensor named `name` comes from `u(name, i)`, a number in `[0, 1)` made by mixing
//! the name's hash with the index (a counter-based stream: any sub-range can be made on its own).
//! What becomes of `u` depends on the last component of the name, on the rank and on the [`Family`].

mod moments;

use std::borrow::Cow;
use std::collections::HashMap;

use crate::random::{self, GOLDEN_GAMMA, finalise};
use crate::weights::{TensorSource, missing};
use percept_graph::{DType, Graph, Tensor, WeightError};

/// Which conventions a model's reference outputs were made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// DINOv2, ResNet, EfficientNet, O-MaMa, PaCo-2; also CenterPoint and RandLA-Net, whose fan-ins
    /// round alike in both families and whose names never reach the last rule.
    /// Weight scales are rounded once from f64, inputs are `(2u - 1) sqrt(3)`, other names `(2u - 1) 0.02`.
    #[default]
    Vision,
    /// O-MaMa on a backbone that nothing trains: as [`Vision`](Family::Vision), but patches are seen by their moments, and the
    /// first two blocks' MLPs, which tell patterns apart, weigh as much as what they look at.
    Untrained,
    /// LCPR: weight scales are computed in f32, inputs are `u` (`50 u` for the range image),
    /// other names `(2u - 1) / sqrt(last dimension)`.
    Lcpr,
}

/// FNV-1a, 64 bit.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The stream of random numbers that belongs to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    hash: u64,
}

impl Stream {
    /// The stream of `name` (hashed as UTF-8).
    pub fn named(name: &str) -> Stream {
        Stream {
            hash: fnv1a64(name.as_bytes()),
        }
    }

    /// All 64 mixed bits at `index`.
    #[inline]
    pub fn bits(self, index: u64) -> u64 {
        let counter = index.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA);
        finalise(self.hash.wrapping_add(counter))
    }

    /// The uniform number at `index`: a multiple of 2^-24 in `[0, 1)`, exact.
    #[inline]
    pub fn uniform(self, index: u64) -> f32 {
        unit(self.bits(index))
    }

    /// Fills `out` with `value(u)` of the indices from `start` on.
    #[inline]
    fn fill(self, start: u64, out: &mut [f32], value: impl Fn(f32) -> f32) {
        // Adding up the counter is faster than multiplying for every index.
        let mut state = self.hash.wrapping_add(start.wrapping_mul(GOLDEN_GAMMA));
        for out in out {
            state = state.wrapping_add(GOLDEN_GAMMA);
            *out = value(unit(finalise(state)));
        }
    }
}

#[inline]
fn unit(bits: u64) -> f32 {
    // 24 bits fit an i32, whose conversion is one vector instruction; a u64's is not.
    (bits >> 40) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// The deterministic permutation `tag` of `0..len`: the stable ascending argsort of the stream's bits.
pub fn permutation(tag: &str, len: usize) -> Vec<usize> {
    let stream = Stream::named(tag);
    random::permutation(len, |index| stream.bits(index))
}

/// What becomes of a uniform number. Each arithmetic step rounds once to f32, in the order written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Zero,
    /// `u * scale`
    Scaled(f32),
    /// `offset + scale * u`
    Offset {
        offset: f32,
        scale: f32,
    },
    /// `(2u - 1) * scale`
    Signed(f32),
    /// `(2u - 1) / divisor`
    SignedOver(f32),
    /// Random sums of a patch's moments.
    Moments(moments::Patch),
    /// What takes the mean colour away from the weights of this stream.
    Centring(Stream),
}

/// One seeded tensor: its name and shape turned into a stream and a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeededTensor {
    stream: Stream,
    rule: Rule,
}

impl SeededTensor {
    /// The tensor `name` of `shape` by the conventions of `family`.
    pub fn new(family: Family, name: &str, shape: &[usize]) -> SeededTensor {
        SeededTensor {
            stream: Stream::named(name),
            rule: rule(family, name, shape),
        }
    }

    /// Fills `out` with the values at the flat, row-major indices `start..start + out.len()`.
    pub fn fill(&self, start: usize, out: &mut [f32]) {
        let start = start as u64;
        match self.rule {
            Rule::Zero => out.fill(0.0),
            Rule::Scaled(scale) => self.stream.fill(start, out, |u| u * scale),
            Rule::Offset { offset, scale } => {
                self.stream.fill(start, out, |u| offset + scale * u);
            }
            Rule::Signed(scale) => self.stream.fill(start, out, |u| (2.0 * u - 1.0) * scale),
            Rule::SignedOver(divisor) => {
                self.stream.fill(start, out, |u| (2.0 * u - 1.0) / divisor);
            }
            Rule::Moments(patch) => patch.fill(self.stream, start as usize, out),
            Rule::Centring(weights) => {
                moments::fill_biases(weights, PATCH_PIXELS, start as usize, out);
            }
        }
    }
}

/// All values of the tensor `name` of `shape`.
///
/// ```
/// use percept_data::seeded::{Family, seeded_values};
/// let weight = seeded_values(Family::Vision, "backbone_3d.conv_input.0.weight", &[16, 3, 3, 3, 5]);
/// assert_eq!(weight.len(), 16 * 3 * 3 * 3 * 5);
/// assert_eq!(weight[..2], [-0.00700511, 0.0764156]);
/// ```
pub fn seeded_values(family: Family, name: &str, shape: &[usize]) -> Vec<f32> {
    let mut values = vec![0.0; shape.iter().product()];
    SeededTensor::new(family, name, shape).fill(0, &mut values);
    values
}

fn rule(family: Family, name: &str, shape: &[usize]) -> Rule {
    if let (Family::Untrained, Some(rule)) = (family, untrained_rule(name, shape)) {
        return rule;
    }
    if name.starts_with("input.") || name.starts_with("probe.") {
        return match family {
            Family::Lcpr if name == "input.range" => Rule::Scaled(50.0),
            Family::Lcpr => Rule::Scaled(1.0),
            _ => Rule::Signed(3f64.sqrt() as f32),
        };
    }
    if name.starts_with("centroids.") {
        return Rule::Scaled(1.0);
    }
    let last_component = name.rsplit('.').next().unwrap_or(name);
    match last_component {
        "weight" if shape.len() >= 2 => {
            let fan_in: usize = shape[1..].iter().product();
            Rule::Signed(match family {
                Family::Lcpr => (3.0 / fan_in as f32).sqrt(),
                _ => (3.0 / fan_in as f64).sqrt() as f32,
            })
        }
        "weight" | "running_var" => Rule::Offset {
            offset: 0.5,
            scale: 1.0,
        },
        "bias" | "running_mean" => Rule::Signed(0.1),
        "gamma" if name.ends_with("ls1.gamma") || name.ends_with("ls2.gamma") => Rule::Offset {
            offset: 0.1,
            scale: 0.1,
        },
        "num_batches_tracked" => Rule::Zero,
        _ => match family {
            Family::Lcpr => Rule::SignedOver((shape.last().copied().unwrap_or(1) as f32).sqrt()),
            _ => Rule::Signed(0.02),
        },
    }
}

/// Pixels of a patch of DINOv2, which a bias does not tell.
const PATCH_PIXELS: usize = 14 * 14;

/// What [`Family::Untrained`] does otherwise than [`Family::Vision`].
fn untrained_rule(name: &str, shape: &[usize]) -> Option<Rule> {
    let ends = |end: &str| name.ends_with(end);
    if ends("patch_embed.proj.weight") {
        return moments::Patch::of_weights(shape).map(Rule::Moments);
    }
    if let Some(layer) = name.strip_suffix("patch_embed.proj.bias") {
        let weights = format!("{layer}patch_embed.proj.weight");
        return Some(Rule::Centring(Stream::named(&weights)));
    }
    let heavy = ends("blocks.0.ls2.gamma") || ends("blocks.1.ls2.gamma");
    heavy.then_some(Rule::Offset {
        offset: 0.75,
        scale: 0.5,
    })
}

/// A [`TensorSource`] that makes the declared parameters of a network from their names.
#[derive(Clone, Debug)]
pub struct Seeded {
    family: Family,
    names: Vec<String>,
    shapes: HashMap<String, Vec<usize>>,
    description: String,
}

impl Seeded {
    /// Seeded weights for the `declared` parameters (name, shape).
    pub fn new(family: Family, declared: impl IntoIterator<Item = (String, Vec<usize>)>) -> Seeded {
        let mut names = Vec::new();
        let mut shapes = HashMap::new();
        for (name, shape) in declared {
            if shapes.insert(name.clone(), shape).is_none() {
                names.push(name);
            }
        }
        Seeded {
            family,
            names,
            shapes,
            description: "seeded, accuracy means nothing".to_owned(),
        }
    }

    /// The same under another name, where they are a part of weights that mean something.
    pub fn described(self, description: &str) -> Seeded {
        Seeded {
            description: description.to_owned(),
            ..self
        }
    }

    /// Seeded weights for the parameters of a network.
    pub fn of(family: Family, graph: &Graph) -> Seeded {
        let params = graph.params().iter();
        Self::new(family, params.map(|p| (p.name.clone(), p.shape.clone())))
    }

    fn declared_shape(&self, name: &str) -> Result<&[usize], WeightError> {
        self.shapes
            .get(name)
            .map(Vec::as_slice)
            .ok_or_else(|| missing(self, name))
    }
}

impl TensorSource for Seeded {
    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.shapes.get(name).cloned()
    }

    fn dtype(&self, name: &str) -> Option<DType> {
        self.shapes.contains_key(name).then_some(DType::F32)
    }

    fn read(&self, name: &str) -> Result<Tensor<'_>, WeightError> {
        let shape = self.declared_shape(name)?;
        let values = seeded_values(self.family, name, shape);
        Ok(Tensor::from_values(shape, values)?)
    }

    fn read_f32(&self, name: &str) -> Result<Cow<'_, [f32]>, WeightError> {
        let shape = self.declared_shape(name)?;
        Ok(Cow::Owned(seeded_values(self.family, name, shape)))
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn hashes_and_uniforms_match_the_published_check_values() {
        assert_eq!(fnv1a64(b""), 0xcbf29ce484222325);
        assert_eq!(fnv1a64(b"a"), 0xaf63dc4c8601ec8c);
        assert_eq!(fnv1a64(b"input.camera"), 0x4b61a3dcb168ce60);
        let first =
            |name, n| -> Vec<f32> { (0..n).map(|i| Stream::named(name).uniform(i)).collect() };
        assert_eq!(
            first("input.camera", 5),
            [0.61491203, 0.25081968, 0.6396081, 0.5666212, 0.08480102]
        );
        assert_eq!(
            first("conv_l.weight", 3),
            [0.25104266, 0.32993156, 0.2605968]
        );
    }

    #[test]
    fn first_weights_match_the_published_check_values() {
        for family in [Family::Vision, Family::Lcpr] {
            let weight =
                seeded_values(family, "backbone_3d.conv_input.0.weight", &[16, 3, 3, 3, 5]);
            // Published with seven digits.
            let published = [-0.00700511, 0.0764156, 0.02158804, -0.1400062];
            for (value, expected) in weight.iter().zip(published) {
                assert_eq!(format!("{value:.6e}"), format!("{expected:.6e}"));
            }
        }
    }

    #[test]
    fn an_untrained_backbone_differs_where_it_looks_and_in_its_first_blocks() {
        let differs = |name: &str, shape: &[usize]| {
            let [vision, untrained] = [Family::Vision, Family::Untrained]
                .map(|family| seeded_values(family, name, shape));
            vision != untrained
        };
        assert!(differs("backbone.patch_embed.proj.weight", &[4, 3, 14, 14]));
        assert!(differs("backbone.patch_embed.proj.bias", &[4]));
        assert!(differs("backbone.blocks.1.ls2.gamma", &[8]));
        for same in [
            "backbone.blocks.11.ls2.gamma",
            "backbone.blocks.0.ls1.gamma",
        ] {
            assert!(!differs(same, &[8]), "{same}");
        }
        assert!(!differs("head.mlp.mlp.0.weight", &[8, 8]));
        // A patch that is no picture is as in any other network.
        assert!(!differs("patch_embed.proj.weight", &[4, 5, 14, 14]));
    }

    #[test]
    fn whole_tensors_match_the_published_checksums() {
        let checksum = |name: &str, shape: &[usize]| {
            seeded_values(Family::Lcpr, name, shape)
                .iter()
                .fold(0u64, |c, v| {
                    (c.rotate_left(5) ^ u64::from(v.to_bits())).wrapping_mul(0x100000001b3)
                })
        };
        let table: [(&str, &[usize], u64); 5] = [
            (
                "layer4_l.1.conv2.weight",
                &[512, 512, 3, 3],
                0x121cd4828278837c,
            ),
            (
                "netvlad_i.hidden1_weights",
                &[8192, 128],
                0x6ce1348a9b226e96,
            ),
            ("layer1_i.0.bn1.running_var", &[64], 0x47a07193c654acc1),
            ("fusion2.atten.w_q.bias", &[128], 0xfe2160ed70806b79),
            ("input.range", &[1, 1, 32, 1056], 0x0dcf8d44fd6fcbcc),
        ];
        for (name, shape, expected) in table {
            assert_eq!(checksum(name, shape), expected, "{name}");
        }
    }

    #[test]
    fn families_differ_where_the_scale_rounds_differently() {
        for fan_in in [147, 588] {
            let values = |family| seeded_values(family, "conv.weight", &[4, fan_in]);
            assert_ne!(values(Family::Vision), values(Family::Lcpr));
        }
    }

    #[test]
    fn vision_tensors_match_the_generator_selftest_bit_for_bit() {
        let selftest: Value =
            serde_json::from_str(include_str!("../tests/fixtures/generator_selftest.json"))
                .unwrap();
        let cases = selftest.as_array().unwrap();
        assert_eq!(cases.len(), 14);
        for case in cases {
            let name = case["name"].as_str().unwrap();
            let shape: Vec<usize> = serde_json::from_value(case["shape"].clone()).unwrap();
            let hash = u64::from_str_radix(case["fnv1a64"].as_str().unwrap(), 16).unwrap();
            assert_eq!(fnv1a64(name.as_bytes()), hash, "{name}");
            // The cases of inputs leave the integers out.
            for (i, u24) in case["u24"].as_array().into_iter().flatten().enumerate() {
                assert_eq!(
                    Stream::named(name).bits(i as u64) >> 40,
                    u24.as_u64().unwrap(),
                    "{name}"
                );
            }
            let values = seeded_values(Family::Vision, name, &shape);
            for (value, bits) in values.iter().zip(case["first4_bits"].as_array().unwrap()) {
                let bits = u32::from_str_radix(bits.as_str().unwrap(), 16).unwrap();
                assert_eq!(value.to_bits(), bits, "{name}");
            }
            let last = case["last"].as_f64().unwrap() as f32;
            assert_eq!(*values.last().unwrap(), last, "{name}");
            let sum: f64 = values.iter().map(|&v| f64::from(v)).sum();
            let expected = case["sum_f64"].as_f64().unwrap();
            // The reference summed in another order: allow its rounding, far below one element.
            assert!(
                (sum - expected).abs() < 1e-9 * (1.0 + expected.abs()),
                "{name}: {sum} {expected}"
            );
        }
    }

    #[test]
    fn batch_counters_are_zero() {
        assert_eq!(
            seeded_values(Family::Vision, "bn1.num_batches_tracked", &[]),
            [0.0]
        );
    }

    #[test]
    fn permutations_are_sorted_by_the_stream() {
        let order = permutation("semkitti000000", 1000);
        let stream = Stream::named("semkitti000000");
        assert!(
            order
                .windows(2)
                .all(|w| stream.bits(w[0] as u64) < stream.bits(w[1] as u64))
        );
        assert_eq!(order.len(), 1000);
    }

    proptest! {
        #[test]
        fn a_sub_range_equals_its_part_of_the_whole(start in 0usize..300, len in 0usize..100, kind in 0usize..4) {
            let (name, shape): (_, &[usize]) = [
                ("a.weight", &[20, 20][..]), ("ls1.gamma", &[400]), ("pos_embed", &[1, 400]), ("a.bias", &[400]),
            ][kind];
            for family in [Family::Vision, Family::Lcpr] {
                let whole = seeded_values(family, name, shape);
                let mut part = vec![9.0; len];
                SeededTensor::new(family, name, shape).fill(start, &mut part);
                prop_assert_eq!(&part[..], &whole[start..start + len]);
            }
        }
    }
}
