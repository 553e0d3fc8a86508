//! CenterPoint's last step against the public implementation: head maps in, boxes out.

use crate::stored::{Golden, shared};
use percept_kernels::boxes::{BevBox, iou_bev, suppress};
use percept_models::answer::FoundBox;
use percept_models::centerpoint::decode::{DecodeConfig, HeadMaps, decode};
use percept_models::centerpoint::{CenterPoint, HEADS};

/// Absolute, on every number of a box.
const BOXES: f32 = 1e-4;
/// Two units in the last place of a score: torch's exponential differs by one from a correctly rounded one, so scores that
/// are nearly equal may come in another order.
const SCORES: f32 = 1.2e-7;
/// x, y, z, length, width, height, yaw, velocity.
const NUMBERS: usize = 9;

fn config(range_m: f32) -> DecodeConfig {
    DecodeConfig::new(&CenterPoint {
        range_m,
        ..CenterPoint::FINE
    })
}

/// A head's maps as they are stored, the heat map changed.
fn decode_head(golden: &Golden, head: usize, range_m: f32, heat: fn(f32) -> f32) -> Vec<FoundBox> {
    let name = |map: &str| format!("head{head}.{map}.full");
    let map = |map: &str| golden.values(&name(map));
    let hm: Vec<f32> = map("hm").into_iter().map(heat).collect();
    let [center, center_z, dim, rot, vel] = ["center", "center_z", "dim", "rot", "vel"].map(map);
    let shape = golden.shape(&name("hm")).expect("a shape");
    let maps = HeadMaps {
        classes: HEADS[head],
        hm: &hm,
        center: &center,
        center_z: &center_z,
        dim: &dim,
        rot: &rot,
        vel: &vel,
    };
    decode(&[maps], [shape[2], shape[3]], &config(range_m))
}

/// Compares the boxes of a head with its rows in the final answer.
fn check_final(golden: &Golden, head: usize, range_m: f32) {
    let as_it_is: fn(f32) -> f32 = |logit| logit;
    let peaky: fn(f32) -> f32 = |logit| 30.0 * logit - 2.19;
    for (stored, heat) in [("final_det", as_it_is), ("final_peaky_det", peaky)] {
        let got = decode_head(golden, head, range_m, heat);
        let labels = golden.indices(&format!("{stored}.labels_1based"));
        let boxes = golden.values(&format!("{stored}.boxes"));
        let scores = golden.values(&format!("{stored}.scores"));
        let rows: Vec<usize> = (0..labels.len())
            .filter(|&row| HEADS[head].contains(&(labels[row] - 1)))
            .collect();
        assert_eq!(got.len(), rows.len(), "{stored}, head {head}");
        assert!(!got.is_empty());
        assert!(got.is_sorted_by(|a, b| a.score >= b.score));
        for row in rows {
            let expected = &boxes[row * NUMBERS..][..NUMBERS];
            let partner = got.iter().find(|found| {
                found.class + 1 == labels[row]
                    && (found.score - scores[row]).abs() <= SCORES
                    && difference(found, expected) <= BOXES
            });
            assert!(
                partner.is_some(),
                "{stored}, head {head}, row {row}: nobody found {expected:?}, score {}",
                scores[row]
            );
        }
    }
}

/// The largest over the numbers of a box.
fn difference(found: &FoundBox, expected: &[f32]) -> f32 {
    let ([x, y, z], [length, width, height]) = (found.center, found.size);
    let [vx, vy] = found.velocity;
    [x, y, z, length, width, height, found.yaw, vx, vy]
        .iter()
        .zip(expected)
        .map(|(got, expected)| (got - expected).abs())
        .fold(0.0, f32::max)
}

/// Suppression alone, on stored boxes.
fn check_suppression(golden: &Golden, head: usize) {
    let boxes = golden.values(&format!("decode{head}.boxes"));
    let scores = golden.values(&format!("decode{head}.scores"));
    let expected = golden.indices(&format!("decode{head}.nms_keep"));
    // torch.sort has shuffled boxes of equal scores: the order of those that stayed tells how.
    let shuffled = |index: &usize| expected.iter().position(|kept| kept == index);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by_key(|index| shuffled(index).unwrap_or(usize::MAX));
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let stored: Vec<BevBox> = order
        .iter()
        .map(|index| {
            let b = &boxes[index * NUMBERS..][..NUMBERS];
            BevBox {
                center: [b[0], b[1]],
                size: [b[3], b[4]],
                yaw: b[6],
            }
        })
        .collect();
    let rule = config(54.0).suppression;
    let kept = suppress(&stored, &rule);
    let kept_indices: Vec<usize> = kept.iter().map(|&place| order[place]).collect();
    let Some(split) = (0..expected.len()).find(|&i| kept_indices.get(i) != expected.get(i)) else {
        assert_eq!(kept_indices.len(), expected.len(), "head {head}");
        return;
    };
    // Only a pair on the very limit may go either way.
    let margin = kept[..split]
        .iter()
        .map(|&better| (iou_bev(&stored[better], &stored[kept[split]]) - rule.iou).abs())
        .fold(f32::INFINITY, f32::min);
    println!("head {head}: box {split} that stays is {margin:.1e} from the limit");
    assert!(margin < 1e-5, "head {head}, box {split}: margin {margin}");
}

#[test]
fn generated_cloud() {
    let golden = Golden::fixture("centerpoint_synth_heads");
    for head in [1, 3] {
        check_suppression(&golden, head);
        check_final(&golden, head, 12.0);
    }
}

#[test]
fn whole_references() {
    let Some(folder) = shared("golden/centerpoint") else {
        return;
    };
    for (file, range_m) in [("synth", 12.0), ("keyframe_v0075", 54.0)] {
        let golden = Golden::open(&folder.join(format!("{file}.safetensors")));
        for head in 0..HEADS.len() {
            check_suppression(&golden, head);
            check_final(&golden, head, range_m);
        }
    }
    let golden = Golden::open(&folder.join("ten_sweeps_v0075.safetensors"));
    for head in 0..HEADS.len() {
        check_suppression(&golden, head);
    }
}
