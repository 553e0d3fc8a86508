//! Attention against its reference.

use proptest::prelude::*;

use super::*;
use crate::isa::Isa;
use crate::reference;
use crate::testing::{check, numbers, widen};

fn expected(
    shape: &AttentionShape,
    scale: f32,
    views: [HeadsView<'_>; 3],
    mask: Option<&[f32]>,
) -> Vec<f64> {
    let wide = views.map(|view| widen(view.data));
    let view = |i: usize| HeadsView {
        data: &wide[i][..],
        batch_stride: views[i].batch_stride,
        token_stride: views[i].token_stride,
        head_stride: views[i].head_stride,
    };
    let mask = mask.map(widen);
    let mut y = vec![0.0; shape.out_len()];
    let scale = f64::from(scale);
    reference::attention(
        shape,
        scale,
        view(0),
        view(1),
        view(2),
        mask.as_deref(),
        &mut y,
    );
    y
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn matches_the_reference(
        batch in 0usize..3,
        heads in 1usize..4,
        queries in 0usize..60,
        keys in 1usize..300,
        head_dim in 1usize..70,
        masked in any::<bool>(),
        sharpness in 1f32..30.0,
    ) {
        let shape = AttentionShape { batch, heads, queries, keys, head_dim };
        let q = numbers(1, batch * queries * heads * head_dim);
        let k = numbers(2, batch * keys * heads * head_dim);
        let v = numbers(3, batch * keys * heads * head_dim);
        let mask = masked.then(|| numbers(4, queries * keys));
        let views = [
            HeadsView::dense(&q, queries, heads, head_dim),
            HeadsView::dense(&k, keys, heads, head_dim),
            HeadsView::dense(&v, keys, heads, head_dim),
        ];
        let scale = sharpness / head_dim as f32;
        let expected = expected(&shape, scale, views, mask.as_deref());
        check(&expected, 4e-6, |cpu, y| {
            attention(cpu, &shape, scale, views[0], views[1], views[2], mask.as_deref(), y);
        });
    }
}

proptest! {
    #[test]
    fn attention_has_the_bits_of_avx2(
        heads in 0usize..3, queries in 0usize..80, keys in 0usize..400, head_dim in 0usize..80, masked in any::<bool>(),
    ) {
        let shape = AttentionShape { batch: 1, heads, queries, keys, head_dim };
        let [q, k, v] = [(1, queries), (2, keys), (3, keys)].map(|(seed, n)| numbers(seed, n * heads * head_dim));
        let view = |x, tokens| HeadsView::dense(x, tokens, heads, head_dim);
        // Some weights underflow, and some keys do not count.
        let mut mask: Vec<f32> = numbers(4, queries * keys).iter().map(|x| 200.0 * x).collect();
        mask.iter_mut().step_by(7).for_each(|x| *x = f32::NEG_INFINITY);
        let answer = |isa| {
            let cpu = Cpu::with_isa(2, isa).expect("it is supported");
            let mut y = vec![f32::NAN; shape.out_len()];
            let mask = masked.then_some(&mask[..]);
            attention(&cpu, &shape, 0.3, view(&q, queries), view(&k, keys), view(&v, keys), mask, &mut y);
            y.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        if Isa::Avx512.is_supported() {
            prop_assert_eq!(answer(Isa::Avx2), answer(Isa::Avx512));
        }
    }
}

#[test]
fn packed_tokens_are_read_in_place() {
    for head_dim in [12, 64] {
        let shape = AttentionShape::self_attention(2, 77, 3, head_dim);
        let qkv = numbers(5, 3 * shape.out_len());
        let scale = 1.0 / (head_dim as f32).sqrt();
        let expected = expected(&shape, scale, HeadsView::packed_qkv(&qkv, &shape), None);
        check(&expected, 2e-6, |cpu, y| {
            packed_attention(cpu, &shape, &qkv, y)
        });
    }
}

#[test]
fn many_blocks_of_queries_and_keys() {
    let shape = AttentionShape {
        batch: 1,
        heads: 1,
        queries: 1000,
        keys: 700,
        head_dim: 64,
    };
    let [q, k, v] = [(1, 1000), (2, 700), (3, 700)].map(|(seed, n)| numbers(seed, n * 64));
    let views = [(&q, 1000), (&k, 700), (&v, 700)].map(|(x, n)| HeadsView::dense(x, n, 1, 64));
    let expected = expected(&shape, 0.125, views, None);
    check(&expected, 2e-6, |cpu, y| {
        attention(cpu, &shape, 0.125, views[0], views[1], views[2], None, y);
    });
}

#[test]
fn masked_keys_do_not_count_and_a_query_without_keys_is_nan() {
    let shape = AttentionShape {
        batch: 1,
        heads: 1,
        queries: 2,
        keys: 300,
        head_dim: 4,
    };
    let (q, k, v) = (numbers(1, 8), numbers(2, 1200), numbers(3, 1200));
    let mut mask = vec![f32::NEG_INFINITY; 600];
    mask[299] = 0.5;
    let view = |x| HeadsView::dense(x, 300, 1, 4);
    check(
        &[&widen(&v[1196..])[..], &[f64::NAN; 4]].concat(),
        1e-6,
        |cpu, y| {
            attention(
                cpu,
                &shape,
                1.0,
                view(&q),
                view(&k),
                view(&v),
                Some(&mask),
                y,
            );
        },
    );
}

#[test]
#[should_panic(expected = "k is too short")]
fn a_view_that_ends_early_is_refused() {
    let shape = AttentionShape::self_attention(1, 4, 1, 8);
    let (x, short) = (numbers(1, 32), numbers(1, 31));
    let view = |x| HeadsView::dense(x, 4, 1, 8);
    let cpu = Cpu::new(1).unwrap();
    attention(
        &cpu,
        &shape,
        1.0,
        view(&x),
        view(&short),
        view(&x),
        None,
        &mut [0.0; 32],
    );
}
