//! Weights that know what they are, weights of modules, and weights from nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use percept_data::safetensors::write_safetensors;
use percept_data::seeded::{Family, seeded_values};
use percept_graph::Tensor;
use percept_models::{Card, Settings, zoo};

use crate::asking::{assert_fails, json, stdout};
use crate::percept;

/// Weights of a small ResNet-18 of three birds, with a card; `only` keeps those of one module, without its name.
fn weights(folder: &Path, name: &str, only: Option<&str>) -> PathBuf {
    let settings = Settings::parse(["classes=3", "width=4", "stem=whole"]).unwrap();
    let model = zoo::build("resnet18", &settings)
        .unwrap()
        .sized(None, [40, 48])
        .unwrap();
    let classes = ["wren", "robin", "swift"].map(str::to_owned).to_vec();
    let metadata = match only {
        None => BTreeMap::from([Card::of(&model, classes).metadata()]),
        Some(_) => BTreeMap::new(),
    };
    let tensors: Vec<(String, Tensor<'static>)> = model
        .graph
        .params()
        .iter()
        .filter(|param| only.is_none_or(|module| param.name.starts_with(module)))
        .map(|param| {
            let values = seeded_values(Family::Vision, &param.name, &param.shape);
            let tensor = Tensor::from_values(param.shape.clone(), values).unwrap();
            let bare = only.map_or(param.name.as_str(), |module| {
                &param.name[module.len() + 1..]
            });
            (bare.to_owned(), tensor)
        })
        .collect();
    let path = folder.join(name);
    write_safetensors(&path, &tensors, &metadata).unwrap();
    path
}

#[test]
fn a_card_says_what_its_weights_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = weights(folder.path(), "birds.safetensors", None);
    let run = |args: &[&str]| {
        let mut command = percept();
        command.args(args).arg("--weights").arg(&path);
        command
    };
    let record = json(&mut run(&["run", "resnet18"]));
    let classes = record["answers"][0]["classes"].as_array().unwrap();
    let mut names: Vec<&str> = classes
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["robin", "swift", "wren"]);
    for verb in ["profile", "bench"] {
        let text = stdout(run(&[verb, "resnet18"]).args(["--repeats", "1"]));
        assert!(text.contains("image [1, 3, 40, 48]"), "{verb}: {text}");
    }
    let text = stdout(&mut run(&["inspect", "resnet18"]));
    assert!(text.contains("image [1, 3, 40, 48]"), "{text}");
    let text = stdout(percept().arg("inspect").arg(&path));
    assert!(
        text.contains("weights of resnet18") && text.contains("wren, robin, swift"),
        "{text}"
    );
    let onnx = folder.path().join("a.onnx");
    run(&["export", "resnet18"])
        .arg("--onnx")
        .arg(&onnx)
        .assert()
        .success();

    let words = ["classes=4", "classes=3"];
    assert_fails(
        &mut run(&["run", "resnet18", "--set", "classes=4"]),
        2,
        &words,
    );
    assert_fails(&mut run(&["run", "resnet34"]), 2, &["resnet18", "resnet34"]);
    let same = run(&["run", "resnet18", "--set", "classes=3"])
        .assert()
        .success();
    drop(same);
}

#[test]
fn modules_take_weights_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let whole = weights(folder.path(), "whole.safetensors", None);
    let head = weights(folder.path(), "head.safetensors", Some("fc"));
    let run = |weights: &[&str]| {
        let mut command = percept();
        command.args(["run", "resnet18", "--weights"]).args(weights);
        command
    };
    let (whole, head) = (whole.to_str().unwrap(), format!("fc={}", head.display()));
    assert_eq!(
        json(&mut run(&[whole, &head]))["answers"],
        json(&mut run(&[whole]))["answers"]
    );
    assert_fails(
        run(&[&head]).args(["--set", "classes=3"]),
        3,
        &["missing", "conv1.weight"],
    );
    assert_fails(&mut run(&[whole, "seeded"]), 2, &["stands alone"]);
    let seeded = run(&["seeded"])
        .args(["--set", "width=4"])
        .assert()
        .success();
    let text = String::from_utf8_lossy(&seeded.get_output().stderr).into_owned();
    assert!(text.contains("weights: seeded"), "{text}");
}
