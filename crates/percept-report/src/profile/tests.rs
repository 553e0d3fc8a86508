use super::*;
use percept_engine::{Run, StepTime};
use std::time::Duration;

fn info(
    step: usize,
    name: &str,
    kind: &'static str,
    macs: u64,
    absorbed: &[(&str, &'static str)],
) -> StepInfo {
    StepInfo {
        step,
        name: name.to_owned(),
        kind,
        algorithm: (kind == "Conv2d").then(|| "winograd4".to_owned()),
        turns: 1,
        absorbed: absorbed
            .iter()
            .map(|(name, kind)| ((*name).to_owned(), *kind))
            .collect(),
        macs: Some(macs),
        other_ops: Some(0),
        allocated_bytes: 1000 * (step + 1),
        live_bytes: 2000,
        weight_bytes: 0,
        is_constant: false,
    }
}

fn infos() -> Vec<StepInfo> {
    vec![
        info(
            0,
            "layer1.0.conv1",
            "Conv2d",
            4_000_000,
            &[("layer1.0.bn1", "BatchNorm")],
        ),
        info(1, "layer1.0.conv2", "Conv2d", 2_000_000, &[]),
        info(2, "fc", "Linear", 1_000_000, &[]),
    ]
}

fn profile() -> Profile {
    of(infos())
}

/// Steps that take 4, 2 and 1 ms, and 1 ms between them.
fn of(infos: Vec<StepInfo>) -> Profile {
    let runs = [[4, 2, 1], [5, 2, 1], [4, 3, 1]];
    of_calls(infos, runs.map(|[a, b, c]| vec![(0, a), (1, b), (2, c)]))
}

/// Runs of such calls: (step, ms).
fn of_calls(infos: Vec<StepInfo>, runs: [Vec<(usize, u64)>; 3]) -> Profile {
    let ms = Duration::from_millis;
    let run = |calls: Vec<(usize, u64)>| Run {
        total: ms(1 + calls.iter().map(|&(_, t)| t).sum::<u64>()),
        calls: calls
            .into_iter()
            .map(|(step, t)| StepTime {
                step,
                start: ms(0),
                elapsed: ms(t),
            })
            .collect(),
        bindings: Default::default(),
        computed: Default::default(),
    };
    let mut recording = Recording::default();
    recording.runs = runs.map(run).into();
    let memory = MemoryAtPeak {
        step: "layer1.0.conv2".to_owned(),
        values: vec![percept_engine::Holder {
            name: "layer1.0.conv1".to_owned(),
            bytes: 1000,
        }],
        live_bytes: 1000,
        arena_bytes: 1024,
        weight_bytes: 10,
        scratch_bytes: 20,
        state_bytes: 0,
    };
    Profile::new(infos, &recording, memory, 100.0)
}

fn select(grouping: Grouping, order: Order) -> Selection {
    Selection {
        grouping,
        order,
        top: None,
    }
}

#[test]
fn children_sum_to_their_parent() {
    let rows = profile().rows(select(Grouping::Module { depth: 3 }, Order::Execution));
    let time = |name: &str| {
        rows.iter()
            .find(|row| row.name == name)
            .expect(name)
            .time_ms
            .median
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} and {b}");
    near(time("layer1"), time("layer1.0"));
    near(
        time("layer1.0"),
        time("layer1.0.conv1") + time("layer1.0.conv2"),
    );
    near(
        time("whole network"),
        time("layer1") + time("fc") + time("(between layers)"),
    );
    near(time("(between layers)"), 1.0);
}

#[test]
fn a_fused_layer_stands_at_its_host() {
    let rows = profile().rows(select(Grouping::Layer, Order::Execution));
    assert_eq!(rows[2].name, "layer1.0.bn1");
    assert_eq!(rows[2].note, "in layer1.0.conv1");
    assert_eq!(rows[2].time_ms.median, 0.0);
}

#[test]
fn a_step_that_takes_turns_is_one_row() {
    let mut infos = infos();
    infos[0].turns = 2;
    infos[1].turns = 2;
    let calls = vec![(0, 3), (1, 2), (0, 1), (1, 4), (2, 1)];
    let profile = of_calls(infos, [calls.clone(), calls.clone(), calls]);
    let rows = profile.rows(select(Grouping::Layer, Order::Execution));
    let rows = rows
        .iter()
        .filter(|row| row.name.starts_with("layer1.0.conv"));
    let rows: Vec<_> = rows
        .map(|row| (row.time_ms.median, row.macs, row.note.as_str()))
        .collect();
    let note = "winograd4, 2 slices";
    assert_eq!(
        rows,
        [(4.0, Some(4_000_000), note), (6.0, Some(2_000_000), note)]
    );
}

#[test]
fn rates_and_order() {
    let rows = profile().rows(Selection {
        top: Some(1),
        ..select(Grouping::Op, Order::Time)
    });
    assert_eq!(
        rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(),
        ["whole network", "Conv2d", "(between layers)"]
    );
    assert_eq!(rows[1].gflops_per_s, Some(2.0));
    assert_eq!(rows[1].share_of_peak, Some(0.02));
    let rows = profile().rows(select(Grouping::Layer, Order::Memory));
    assert_eq!(rows[1].name, "fc");
}

#[test]
fn the_table_reads_well() {
    insta::assert_snapshot!(
        profile().table(select(Grouping::Module { depth: 3 }, Order::Execution))
    );
    insta::assert_snapshot!(profile().memory_table(5));
}

fn training_step() -> StepProfile {
    let profile = of(vec![
        info(0, "net.conv", "Conv2d", 4_000_000, &[]),
        info(
            1,
            "net.conv.grad_weight",
            "Conv2dWeightGradient",
            2_000_000,
            &[],
        ),
        info(2, "optimiser.net.conv.weight", "SgdUpdate", 0, &[]),
    ]);
    let parameters = [("net.conv.weight", 100), ("net.conv.bias", 10)];
    let parameters = parameters.map(|(name, size)| (name.to_owned(), size));
    StepProfile::new(profile, [0.5, 2.0, 2.0], parameters)
}

#[test]
fn a_training_step_is_told_by_phases_and_layers() {
    let step = training_step();
    assert_eq!(step.step_ms(), 4.0 + 2.0 + 1.0 + 1.0 + 2.0);
    let tree = step.tree(1);
    let tree: Vec<_> = tree
        .iter()
        .map(|(depth, name, ms)| (*depth, name.as_str(), (1e6 * ms).round() / 1e6))
        .collect();
    let expected = [
        (0, "step", 10.0),
        (1, "waiting for data", 2.0),
        (1, "forward", 4.0),
        (2, "net", 4.0),
        (1, "backward", 2.0),
        (2, "net", 2.0),
        (1, "update", 1.0),
        (1, "between layers", 1.0),
    ];
    assert_eq!(tree, expected);
    for grouping in [Grouping::Layer, Grouping::Module { depth: 2 }, Grouping::Op] {
        let rows = step.rows(select(grouping, Order::Time));
        let row = rows.last().expect("a row");
        assert_eq!(
            (row.forward_ms, row.backward_ms, row.update_ms),
            (4.0, 2.0, 1.0)
        );
        assert_eq!((row.op.as_str(), row.parameters), ("Conv2d", 110));
        assert_eq!((row.macs, row.gflops_per_s), (Some(6_000_000), Some(2.0)));
        assert_eq!(row.share, 0.7);
    }
    insta::assert_snapshot!(step.tree_table(2));
    insta::assert_snapshot!(step.table(select(Grouping::Module { depth: 2 }, Order::Execution)));
}
