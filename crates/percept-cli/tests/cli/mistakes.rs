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
        &["'0'", "expected 1 to", "threads"],
    );
    assert_fails(
        percept().args(["run", "resnet18", "--threads", "100000"]),
        2,
        &["'100000'", "expected 1 to", "threads"],
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
    assert_fails(percept().args(vast), 2, &["TB for one run", "GB available"]);
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
fn numbers_and_names_are_refused_with_what_an_option_takes() {
    let cases: [(&[&str], &[&str]); 13] = [
        (
            &["run", "resnet18", "--threads", "abc"],
            &["'abc'", "expected 1 to", "threads"],
        ),
        (
            &["inspect", "resnet18", "--depth", "99999999999999999999"],
            &["--depth", "that is too large"],
        ),
        (
            &["inspect", "resnet18", "--depth", "x"],
            &["--depth", "expected a whole number"],
        ),
        (
            &[
                "verify",
                "resnet18",
                "--reference",
                "r",
                "--tolerance",
                "abc",
            ],
            &["--tolerance", "such as 1e-4"],
        ),
        (
            &["run", "resnet18", "--size", "7x"],
            &["'7x'", "HEIGHTxWIDTH"],
        ),
        (&["run", "resnet18", "--top", "0"], &["at least 1"]),
        (
            &["run", "resnet18", "--picture", "a.bmp"],
            &["a name that ends in .png or .svg"],
        ),
        (
            &["quantize", "resnet18", "--to", "q.pth"],
            &["a name that ends in .safetensors"],
        ),
        (&["export", "resnet18"], &["--onnx", "--safetensors"]),
        (
            &[
                "elastic",
                "extract",
                "resnet18",
                "--granularity",
                "9,9",
                "--to",
                "x.safetensors",
            ],
            &["--granularity", "hint: --set widths=.."],
        ),
        (
            &["elastic", "search", "lcpr-small", "--budget", "macs=0%"],
            &["--budget", "hint: give a cost above 0"],
        ),
        (
            &["train", "resnet18", "--set", "train.steps=0"],
            &["there is no setting `train`; the nearest are "],
        ),
        (
            &["run", "resnet18", "--weights", "foo=bar"],
            &["no module `foo`", "hint: it has conv1, bn1, layer1"],
        ),
    ];
    for (arguments, words) in cases {
        assert_fails(percept().args(arguments), 2, words);
    }
}

#[test]
fn what_cannot_be_written_is_told_before_the_work_by_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for out in [&file, &file.join("inside")] {
        let run = percept()
            .args(["run", "resnet18", "--out"])
            .arg(out)
            .assert();
        let said = String::from_utf8_lossy(&run.code(3).get_output().stderr).into_owned();
        assert!(
            said.contains("is no folder") && !said.contains("weights:"),
            "{said}"
        );
    }
    for name in ["no/such.safetensors", "no/such.npz"] {
        let target = folder.path().join(name);
        let run = percept()
            .args(["run", "resnet18", "--size", "32", "--save"])
            .arg(&target)
            .assert();
        let said = String::from_utf8_lossy(&run.code(3).get_output().stderr).into_owned();
        assert!(said.contains(name) && !said.contains("at path"), "{said}");
    }
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
        &[
            "expect.NAME",
            "hint: a reference is made outside of percept",
        ],
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
