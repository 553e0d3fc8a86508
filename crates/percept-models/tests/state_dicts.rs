//! Names, shapes, counts and costs of the networks against the public ones.

use percept_graph::{Graph, module_tree, storage_table};
use percept_models::{Settings, zoo};

fn graph(name: &str, settings: &[&str]) -> Graph {
    let settings = Settings::parse(settings).unwrap();
    zoo::build(name, &settings).unwrap().graph
}

/// `name 64x3x7x7` a line, as the fixtures have it.
fn state_dict(graph: &Graph) -> String {
    let line = |param: &percept_graph::Parameter| {
        let sizes: Vec<String> = param.shape.iter().map(usize::to_string).collect();
        format!("{} {}\n", param.name, sizes.join("x"))
    };
    graph.params().iter().map(line).collect()
}

#[test]
fn names_and_shapes_equal_the_public_state_dicts_in_order() {
    let rows: [(&str, &[&str], &str); 4] = [
        (
            "resnet50",
            &[],
            include_str!("fixtures/resnet50_torchvision.txt"),
        ),
        (
            "efficientnet-b0",
            &[],
            include_str!("fixtures/efficientnet_b0_torchvision.txt"),
        ),
        (
            "efficientnet-b0",
            &["layout=timm"],
            include_str!("fixtures/efficientnet_b0_timm.txt"),
        ),
        (
            "dinov2-vitb14",
            &["registers=4"],
            include_str!("fixtures/dinov2_vitb14_reg.txt"),
        ),
    ];
    for (name, settings, expected) in rows {
        let got = state_dict(&graph(name, settings));
        let difference = got
            .lines()
            .zip(expected.lines())
            .find(|(got, expected)| got != expected);
        assert_eq!(difference, None, "{name} {settings:?}");
        assert_eq!(
            got.lines().count(),
            expected.lines().count(),
            "{name} {settings:?}"
        );
    }
}

#[test]
fn parameter_counts_are_exact() {
    let rows: [(&str, &[&str], usize); 13] = [
        ("resnet18", &[], 11_689_512),
        ("resnet34", &[], 21_797_672),
        ("resnet50", &[], 25_557_032),
        ("resnet101", &[], 44_549_160),
        ("efficientnet-b0", &[], 5_288_548),
        ("efficientnet-b0", &["layout=timm"], 5_288_548),
        ("dinov2-vits14", &[], 22_056_576),
        ("dinov2-vitb14", &[], 86_580_480),
        ("dinov2-vitb14", &["registers=4"], 86_583_552),
        ("dinov2-vitl14", &[], 304_368_640),
        ("paco", &[], 24_048_905),
        ("centerpoint", &[], 8_941_590),
        ("centerpoint-small", &[], 877_710),
    ];
    for (name, settings, expected) in rows {
        assert_eq!(
            graph(name, settings).parameter_count(),
            expected,
            "{name} {settings:?}"
        );
    }
}

#[test]
fn resnet50_has_fvcores_multiply_adds() {
    let graph = graph("resnet50", &[]);
    let sizes = graph.bind(&[("image", vec![1, 3, 224, 224])]).unwrap();
    let by_kind = graph.costs_by_kind(&sizes).unwrap();
    let macs = |kind| by_kind.iter().find(|(k, _)| *k == kind).unwrap().1.macs;
    assert_eq!(macs("Conv2d") + macs("Linear"), 4_089_184_256);
    assert_eq!(graph.total_macs(&sizes).unwrap(), 4_089_184_256);
}

#[test]
fn attention_is_not_free() {
    let graph = graph("dinov2-vitb14", &[]);
    let sizes = graph.bind(&[("image", vec![1, 3, 518, 518])]).unwrap();
    let by_kind = graph.costs_by_kind(&sizes).unwrap();
    let attention = &by_kind.iter().find(|(k, _)| *k == "Attention").unwrap().1;
    assert_eq!(attention.macs, 12 * 2 * 1370 * 1370 * 768);
}

#[test]
fn resnet50_prints_as_before() {
    let graph = graph("resnet50", &[]);
    insta::assert_snapshot!("resnet50_tree", module_tree(&graph));
    insta::assert_snapshot!("resnet50_storage", storage_table(&graph, 3));
}
