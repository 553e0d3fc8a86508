//! The zoo as a user meets it: every entry builds, sizes fit, and mistakes are named.

use percept_graph::{Activation, GraphError, Op};
use percept_models::answer::AnswerKind;
use percept_models::{ModelError, Settings, zoo};

/// Their features are of points, whose lists follow each other.
const POINT_WISE: [&str; 2] = ["knn", "randlanet-levels"];

#[test]
fn every_entry_builds_and_takes_its_default_shapes() {
    for entry in zoo::entries() {
        let model = entry.build(&Settings::none()).unwrap();
        let shapes = model.input_shapes(2);
        let sizes = model.graph.bind(&shapes).unwrap();
        assert_eq!(sizes.get("N"), Some(&2), "{}: N counts samples", entry.name);
        for (output, value) in model.graph.outputs() {
            match model.graph.value_shape(*value, &sizes) {
                // A loss is a number, however many samples it is of.
                Ok(shape) if output == "loss" => assert!(shape.is_empty()),
                // Points of all samples stand in one list.
                Ok(shape) if model.head.kind() == AnswerKind::PointLabels => {
                    assert_eq!(Some(&shape[0]), sizes.get("P"), "{}: {output}", entry.name);
                }
                Ok(shape) if POINT_WISE.contains(&entry.name) => {
                    assert_eq!(Some(&shape[0]), sizes.get("P"), "{}: {output}", entry.name);
                }
                Ok(shape) => assert_eq!(shape[0], 2, "{}: {output}", entry.name),
                // How many boxes there are, only a run can tell.
                Err(GraphError::UnboundSymbol { .. }) => assert_eq!(output, "detections"),
                Err(other) => panic!("{}: {other}", entry.name),
            }
        }
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = zoo::entries().map(|entry| entry.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn an_unknown_model_suggests_the_nearest() {
    let suggestion = |name: &str| match zoo::find(name) {
        Err(ModelError::UnknownModel { suggestion, .. }) => suggestion,
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(suggestion("resnet5"), Some("resnet50"));
    assert_eq!(suggestion("dinov2_vitb14"), Some("dinov2-vitb14"));
    assert_eq!(suggestion("qwertyuiop"), None);
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let error = |name: &str, settings: &[&str]| {
        let settings = Settings::parse(settings).unwrap();
        zoo::build(name, &settings).unwrap_err().to_string()
    };
    assert_eq!(
        error("dinov2-vitb14", &["image_size=500"]),
        "dinov2-vitb14: setting `image_size` is 500, which must be a multiple of the patch, 14; the nearest is 504"
    );
    assert_eq!(
        error("dinov2-vitb14", &["heads=5"]),
        "dinov2-vitb14: setting `embed` is 768, which 5 heads do not divide"
    );
    assert!(error("conv2d", &["groups=3"]).contains("that 3 groups divide"));
    assert_eq!(
        error("resnet50", &["layuot=timm"]),
        "resnet50 has no setting `layuot`; it has classes, width, stem, widths"
    );
}

#[test]
fn convolutions_stand_behind_one_another() {
    let settings = ["depth=3", "in_channels=4", "out_channels=6", "bias=false"];
    let model = zoo::build("conv2d", &Settings::parse(settings).unwrap()).unwrap();
    let weights = model.graph.params().iter();
    let weights: Vec<_> = weights
        .map(|w| (w.name.as_str(), [w.shape[0], w.shape[1]]))
        .collect();
    let expected = [
        ("layer.weight", 4),
        ("layer2.weight", 6),
        ("layer3.weight", 6),
    ];
    assert_eq!(weights, expected.map(|(name, inputs)| (name, [6, inputs])));
    let nodes = model.graph.nodes().iter();
    let relus = nodes.filter(|node| matches!(node.op, Op::Activation(Activation::Relu)));
    assert_eq!(relus.count(), 2);
}

#[test]
fn sizes_that_a_network_cannot_take_are_refused() {
    let bind = |name: &str, size| {
        let model = zoo::build(name, &Settings::none()).unwrap();
        let model = model.sized(None, size).unwrap();
        model
            .graph
            .bind(&model.input_shapes(1))
            .map_err(|error| error.to_string())
    };
    let error = bind("dinov2-vitb14", [518, 540]).unwrap_err();
    assert!(error.contains("nearest legal size is 546"), "{error}");
    assert!(bind("dinov2-vitb14", [14, 14]).is_ok());
    assert!(bind("resnet50", [1, 1]).is_ok());
    assert!(bind("resnet50", [0, 224]).is_err());
    let linear = zoo::build("linear", &Settings::none()).unwrap();
    assert_eq!(
        linear.sized(None, [4, 4]).unwrap_err().to_string(),
        "linear takes x as it is, so it takes no size of it"
    );
    let resnet = zoo::build("resnet18", &Settings::none()).unwrap();
    assert_eq!(
        resnet
            .sized(Some("camera"), [4, 4])
            .unwrap_err()
            .to_string(),
        "resnet18 has no part `camera`; a sample of it has image"
    );
}

#[test]
fn values_can_be_tapped_by_their_public_names() {
    let settings = Settings::parse(["registers=4"]).unwrap();
    let dino = zoo::build("dinov2-vitb14", &settings).unwrap().graph;
    let sizes = dino.bind(&[("image", vec![1, 3, 98, 126])]).unwrap();
    let rows: [(&str, &[usize]); 11] = [
        ("pos", &[1, 64, 768]),
        ("tokens_in", &[1, 68, 768]),
        ("blocks.0", &[1, 68, 768]),
        ("blocks.0.norm1", &[1, 68, 768]),
        ("blocks.0.attn", &[1, 68, 768]),
        ("blocks.0.attn.qkv", &[1, 68, 2304]),
        ("blocks.11", &[1, 68, 768]),
        ("x_prenorm", &[1, 68, 768]),
        ("x_norm_clstoken", &[1, 768]),
        ("x_norm_regtokens", &[1, 4, 768]),
        ("x_norm_patchtokens", &[1, 63, 768]),
    ];
    for (name, expected) in rows {
        let value = dino.find(name).unwrap();
        assert_eq!(dino.value_shape(value, &sizes).unwrap(), expected, "{name}");
    }
    for (name, settings) in [
        ("resnet50", Settings::none()),
        ("efficientnet-b0", Settings::none()),
        ("efficientnet-b0", Settings::none().with("layout", "timm")),
    ] {
        let graph = zoo::build(name, &settings).unwrap().graph;
        let sizes = graph.bind(&[("image", vec![2, 3, 97, 131])]).unwrap();
        let features = graph
            .value_shape(graph.find("features").unwrap(), &sizes)
            .unwrap();
        assert_eq!(features[2..], [4, 5], "{name}");
    }
}

#[test]
fn small_resnets_keep_larger_maps_and_the_public_names() {
    let published = zoo::build("resnet18", &Settings::none()).unwrap().graph;
    let rows = [("quarter", 224, 7), ("half", 64, 4), ("whole", 32, 4)];
    for (stem, side, features) in rows {
        let settings = Settings::none().with("stem", stem).with("width", 8);
        let model = zoo::build("resnet18", &settings.with("classes", 5)).unwrap();
        let shapes = model.input_shapes(1);
        assert_eq!(shapes[0].1, [1, 3, side, side], "{stem}");
        let sizes = model.graph.bind(&shapes).unwrap();
        let map = model.graph.find("features").unwrap();
        let map = model.graph.value_shape(map, &sizes).unwrap();
        assert_eq!(map, [1, 64, features, features], "{stem}");
        let names = |graph: &percept_graph::Graph| -> Vec<String> {
            graph.params().iter().map(|p| p.name.clone()).collect()
        };
        assert_eq!(names(&model.graph), names(&published), "{stem}");
    }
}

#[test]
fn efficientnets_layouts_map_to_each_other() {
    let torchvision = zoo::build("efficientnet-b0", &Settings::none()).unwrap();
    let [timm] = torchvision.other_layouts.as_slice() else {
        panic!("one other layout")
    };
    assert_eq!(timm.name, "timm");
    let ours = |theirs: &str| {
        let (_, ours) = timm
            .renames
            .iter()
            .find(|(name, _)| name == theirs)
            .unwrap();
        ours.as_str()
    };
    assert_eq!(ours("conv_stem.weight"), "features.0.0.weight");
    assert_eq!(
        ours("blocks.0.0.conv_pw.weight"),
        "features.1.0.block.2.0.weight"
    );
    assert_eq!(
        ours("blocks.1.0.se.conv_expand.bias"),
        "features.2.0.block.2.fc2.bias"
    );
    assert_eq!(
        ours("blocks.6.0.bn3.running_var"),
        "features.7.0.block.3.1.running_var"
    );
    assert_eq!(ours("bn2.bias"), "features.8.1.bias");
    assert_eq!(ours("classifier.weight"), "classifier.1.weight");

    let graph = zoo::build("efficientnet-b0", &Settings::none().with("layout", "timm"));
    let timm_graph = graph.unwrap().graph;
    for (theirs, ours) in timm_graph.params().iter().zip(torchvision.graph.params()) {
        assert_eq!(
            theirs.shape, ours.shape,
            "{} and {}",
            theirs.name, ours.name
        );
    }
}
