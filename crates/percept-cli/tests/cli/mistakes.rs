//! Command lines and files that cannot be right.

use crate::asking::assert_fails;
use crate::percept;

#[test]
fn mistakes_in_the_command_line() {
    assert_fails(
        percept().args(["run", "resnet51"]),
        2,
        &["resnet51", "hint: did you mean `resnet50`?"],
    );
    assert_fails(
        percept().args(["inspect", "resnet50", "--set", "clases=3"]),
        2,
        &["clases", "classes"],
    );
    assert_fails(
        percept().args(["inspect", "dinov2-vitb14", "--size", "520"]),
        2,
        &["520", "multiple of 14", "518"],
    );
    assert_fails(
        percept().args(["bench", "paco-contrast", "--train", "--activations", "f16"]),
        2,
        &["paco-contrast is a loss alone", "--activations"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--threads", "0"]),
        2,
        &["0 threads"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--threads", "100000"]),
        2,
        &["100000"],
    );
    percept()
        .args(["run", "resnet18", "--size", "0"])
        .assert()
        .code(2);
    percept()
        .args(["run", "resnet18", "--size", "99999999999"])
        .assert()
        .code(2);
    percept()
        .args(["run", "resnet18", "--batch", "0"])
        .assert()
        .code(2);
    let vast = ["run", "resnet50", "--batch", "4096", "--size", "32768"];
    assert_fails(percept().args(vast), 2, &["bytes", "available"]);
    percept().args(["fly"]).assert().code(2);
    assert_fails(
        percept().args(["run", "resnet18", "--tap", "layer9", "--save", "x.npz"]),
        2,
        &["layer9"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--tap", "layer1"]),
        2,
        &["hint: add --save"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--save", "x.txt"]),
        2,
        &[".safetensors or .npz"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--input", "camera=a.jpg"]),
        2,
        &["no part `camera`", "image"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--size", "camera=64"]),
        2,
        &["no part `camera`", "image"],
    );
    assert_fails(
        percept().args(["run", "centerpoint", "--size", "64"]),
        2,
        &["takes no size"],
    );
    assert_fails(
        percept().args(["doctor"]).env("PERCEPT_ISA", "mmx"),
        2,
        &["mmx", "PERCEPT_ISA"],
    );
}

#[test]
fn bad_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let missing = folder.path().join("missing.jpg");
    assert_fails(
        percept().args(["run", "resnet18", "--input"]).arg(&missing),
        3,
        &["missing.jpg"],
    );
    let text = file("text.jpg", b"this is no image");
    assert_fails(
        percept().args(["run", "resnet18", "--input"]).arg(&text),
        3,
        &["text.jpg"],
    );
    let empty = tempfile::tempdir().unwrap();
    assert_fails(
        percept()
            .args(["run", "resnet18", "--input"])
            .arg(empty.path()),
        3,
        &["no .jpg or .png"],
    );
    // A header that claims terabytes.
    let mut huge = (1u64 << 50).to_le_bytes().to_vec();
    huge.extend(b"{}");
    let huge = file("huge.safetensors", &huge);
    assert_fails(
        percept().args(["run", "resnet18", "--weights"]).arg(&huge),
        3,
        &["huge.safetensors"],
    );
    assert_fails(
        percept().arg("inspect").arg(&huge),
        3,
        &["huge.safetensors"],
    );
    let old = file("old.pth", b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.");
    assert_fails(
        percept().args(["run", "resnet18", "--weights"]).arg(&old),
        3,
        &["old.pth"],
    );
    // Weights of another network.
    let other = file("other.safetensors", &tiny_safetensors());
    let words = ["other.safetensors", "missing", "conv1.weight"];
    assert_fails(
        percept().args(["run", "resnet18", "--weights"]).arg(&other),
        3,
        &words,
    );
    assert_fails(
        percept()
            .args(["verify", "resnet18", "--reference"])
            .arg(&other),
        3,
        &["expect.NAME"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--input"]).arg(&other),
        3,
        &["other.safetensors", "image"],
    );
}

fn tiny_safetensors() -> Vec<u8> {
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend([0; 4]);
    bytes
}
