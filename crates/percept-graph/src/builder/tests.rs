use super::*;
use crate::module_tree;

fn block() -> Result<Graph, GraphError> {
    let mut b = Builder::new("Net");
    let x = b.input(
        "image",
        [
            Dim::symbol("N"),
            4.into(),
            Dim::symbol("H"),
            Dim::symbol("W"),
        ],
    );
    b.require("image", 2, "height", 2, 4);
    let x = b.module("layer1", "Sequential", |b| {
        b.module("0", "Block", |b| {
            let y = b.conv2d("conv1", x, Conv2d::new(4, 4, 3).padding(1).no_bias());
            let y = b.batch_norm("bn1", y, BatchNorm::new(4));
            let y = b.relu("relu", y);
            let y = b.add("add", y, x);
            b.relu("relu", y)
        })
    });
    b.output("features", x);
    b.finish()
}

#[test]
fn names_are_state_dict_paths() {
    let graph = block().unwrap();
    let names: Vec<&str> = graph.params().iter().map(|p| p.name.as_str()).collect();
    let bn = ["weight", "bias", "running_mean", "running_var"].map(|n| format!("layer1.0.bn1.{n}"));
    assert_eq!(names[0], "layer1.0.conv1.weight");
    assert_eq!(names[1..], bn);
    assert_eq!(graph.parameter_count(), 4 * 4 * 9 + 8);
    let nodes: Vec<&str> = graph.nodes().iter().map(|n| n.name.as_str()).collect();
    assert_eq!(
        nodes[2..],
        ["layer1.0.relu", "layer1.0.add", "layer1.0.relu_2"]
    );
    assert_eq!(graph.find("layer1.0"), graph.find("features"));
    assert!(graph.find("layer1.1").is_err());
}

#[test]
fn an_unread_parameter_counts_but_belongs_to_no_node() {
    let mut b = Builder::new("Net");
    let x = b.input("x", [Dim::symbol("N"), 4.into()]);
    b.unread_parameter("mask_token", &[1, 4]);
    let y = b.linear("fc", x, 4, 2);
    b.output("y", y);
    let graph = b.finish().unwrap();
    assert_eq!(graph.params()[0].name, "mask_token");
    assert_eq!(graph.parameter_count(), 4 + 4 * 2 + 2);
    assert!(
        graph
            .nodes()
            .iter()
            .all(|node| node.params.iter().all(|p| p.index() != 0))
    );
}

#[test]
fn the_tree_shows_modules_only() {
    let tree = module_tree(&block().unwrap());
    assert!(tree.contains("(relu): ReLU(inplace=True)\n"), "{tree}");
    assert!(
        !tree.contains("(add)") && !tree.contains("relu_2"),
        "{tree}"
    );
}

#[test]
fn sizes_are_checked_when_bound() {
    let graph = block().unwrap();
    let bind = |shape: [usize; 4]| graph.bind(&[("image", shape.to_vec())]);
    assert!(bind([1, 4, 8, 7]).is_ok());
    assert!(matches!(
        bind([1, 3, 8, 7]),
        Err(GraphError::InputShape { .. })
    ));
    assert!(matches!(
        bind([1, 4, 9, 7]),
        Err(GraphError::NotAMultiple { nearest: 10, .. })
    ));
    assert!(matches!(
        bind([1, 4, 2, 7]),
        Err(GraphError::TooSmall { .. })
    ));
    assert!(matches!(
        graph.bind(&[]),
        Err(GraphError::MissingInput { .. })
    ));
    assert!(matches!(
        graph.bind(&[("im", vec![])]),
        Err(GraphError::UnknownInput { .. })
    ));
}

#[test]
fn the_first_error_sticks() {
    let mut b = Builder::new("Net");
    let x = b.input("image", [1, 3, 8, 8].map(Dim::from));
    let x = b.conv2d("conv1", x, Conv2d::new(4, 4, 3));
    let x = b.conv2d("conv2", x, Conv2d::new(9, 4, 3));
    b.output("y", x);
    let error = b.finish().unwrap_err().to_string();
    assert_eq!(
        error,
        "conv1: Conv2d takes a map [N, 4, H, W], got f32 [1, 3, 8, 8]"
    );
}

#[test]
fn a_parameter_can_start_otherwise() {
    let mut b = Builder::new("Net");
    let x = b.input("image", [1, 3, 8, 8].map(Dim::from));
    let x = b.conv2d("conv1", x, Conv2d::new(3, 4, 3));
    b.starts_as(x, "bias", Initializer::Constant(-2.19));
    b.output("features", x);
    let graph = b.finish().unwrap();
    let starts = graph.params().iter().map(|param| param.init);
    let starts: Vec<Initializer> = starts.collect();
    assert_eq!(
        starts,
        [Initializer::FanIn(27), Initializer::Constant(-2.19)]
    );
}

#[test]
fn a_module_that_is_called_again_shares_its_parameters() {
    let mut b = Builder::new("Net");
    let x = b.input("x", [Dim::symbol("N"), 4.into()]);
    let body = |b: &mut Builder, x| {
        b.unread_parameter("spare", &[3]);
        let y = b.linear("fc", x, 4, 4);
        b.linear("fc", y, 4, 4)
    };
    let y = b.module("trunk", "Trunk", |b| body(b, x));
    let y = b.module_again("trunk", "Trunk", |b| body(b, y));
    b.output("y", y);
    let graph = b.finish().unwrap();
    let names: Vec<&str> = graph.params().iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["trunk.spare", "trunk.fc.weight", "trunk.fc.bias"]);
    let nodes: Vec<&str> = graph.nodes().iter().map(|n| n.name.as_str()).collect();
    let calls = ["trunk.fc", "trunk.fc_2", "trunk_2.fc", "trunk_2.fc_2"];
    assert_eq!(nodes, calls);
    let weights = graph.nodes().iter().map(|node| node.params[0]);
    assert!(
        weights
            .clone()
            .all(|weight| weight == graph.nodes()[0].params[0])
    );

    let mut b = Builder::new("Net");
    let x = b.input("x", [Dim::symbol("N"), 4.into()]);
    let y = b.linear("fc", x, 4, 4);
    let y = b.linear("fc", y, 4, 5);
    b.output("y", y);
    let error = b.finish().unwrap_err().to_string();
    assert!(error.contains("fc.weight"), "{error}");
}
