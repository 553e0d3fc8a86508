//! `percept world` as a user meets it.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn percept(folder: &tempfile::TempDir, arguments: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("percept").expect("the binary");
    command
        .current_dir(folder.path())
        .arg("world")
        .args(arguments)
        .assert()
}

#[test]
fn a_world_is_made_shown_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    percept(
        &folder,
        &[
            "make", "--frames", "1", "--sweeps", "2", "--seed", "5", "--out", "street",
        ],
    )
    .success()
    .stdout(contains("street: 1 frame, 2 clouds, 69376 points"));
    percept(
        &folder,
        &[
            "show",
            "--data",
            "street",
            "--sweeps",
            "2",
            "--image",
            "street.png",
        ],
    )
    .success()
    .stdout(contains("street.png"));
    let picture = std::fs::read(folder.path().join("street.png")).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG"));
    percept(
        &folder,
        &[
            "stats",
            "--frames",
            "1",
            "--seed",
            "5",
            "--compare",
            "street",
            "--json",
        ],
    )
    .success()
    .stdout(contains("\"points a frame\"").and(contains("\"schema_version\"")));
}

#[test]
fn places_and_rooms_are_made_and_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let make = "make --kind places --frames 2 --passes 2 --size 48x27 --out town";
    percept(&folder, &make.split(' ').collect::<Vec<_>>())
        .success()
        .stdout(contains("town: 4 frames, 4 clouds").and(contains("24 pictures")));
    let show = "show --data town --frame 3 --image town.png";
    percept(&folder, &show.split(' ').collect::<Vec<_>>())
        .success()
        .stdout(contains("town.png").and(contains("6 cameras")));
    // A picture that is gone is named.
    let picture = std::fs::read_dir(folder.path().join("town/samples/CAM_BACK"))
        .expect("lists")
        .map(|entry| entry.expect("an entry").path())
        .max()
        .expect("a picture");
    std::fs::remove_file(&picture).expect("removed");
    percept(&folder, &show.split(' ').collect::<Vec<_>>())
        .code(3)
        .stderr(contains("CAM_BACK"));
    let sizes = "--ego-size 56x56 --exo-size 84x56";
    let make = format!("make --kind egoexo --takes 3 --frames 1 {sizes} --out rooms");
    percept(&folder, &make.split(' ').collect::<Vec<_>>())
        .success()
        .stdout(contains("rooms: 3 takes, 3 pairs"));
    let show = format!("show --kind egoexo {sizes} --image room.png");
    percept(&folder, &show.split(' ').collect::<Vec<_>>())
        .success()
        .stdout(contains("candidate masks"));
}

#[test]
fn mistakes_are_named_and_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("mine")).expect("made");
    std::fs::write(folder.path().join("mine/thesis.txt"), "mine").expect("written");
    let cases: [(&[&str], i32, &str); 16] = [
        (&["make", "--frames", "0", "--out", "street"], 2, "0 frames"),
        (
            &["make", "--sweeps", "11", "--out", "street"],
            2,
            "11 sweeps",
        ),
        (&["make", "--frames", "1"], 2, "--out DIR"),
        (
            &["make", "--kind", "places", "--passes", "0", "--out", "town"],
            2,
            "0 passes",
        ),
        (
            &[
                "make", "--kind", "egoexo", "--size", "0x0", "--out", "rooms",
            ],
            2,
            "hint: --ego-size and --exo-size",
        ),
        (&["show", "--image", "a.bmp"], 2, ".png or .svg"),
        (
            &["make", "--frames", "1", "--out", "mine/thesis.txt/street"],
            3,
            "mine/thesis.txt is no folder",
        ),
        (
            &[
                "make", "--kind", "places", "--size", "0x256", "--out", "town",
            ],
            2,
            "pictures of 0x256",
        ),
        (
            &[
                "make", "--kind", "places", "--size", "large", "--out", "town",
            ],
            2,
            "expected WIDTHxHEIGHT",
        ),
        (
            &["make", "--cameras", "CAM_ROOF", "--out", "street"],
            2,
            "unknown channel \"CAM_ROOF\": expected CAM_FRONT",
        ),
        (
            &["show", "--kind", "egoexo", "--samples", "0"],
            2,
            "0 samples",
        ),
        (
            &["show", "--kind", "places", "--frame", "120"],
            2,
            "the passes have 120 frames",
        ),
        (
            &["make", "--kind", "kitty", "--out", "street"],
            2,
            "expected nuscenes, semantickitti, places or egoexo",
        ),
        (&["make", "--out", "mine"], 2, "hint: --force"),
        (
            &["make", "--out", "mine", "--force"],
            2,
            "not a world that percept made",
        ),
        (
            &["show", "--data", "mine/thesis.txt"],
            3,
            "not a known layout",
        ),
    ];
    for (arguments, code, said) in cases {
        percept(&folder, arguments)
            .code(code)
            .stderr(contains(said));
    }
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .expect("lists")
        .map(|e| e.expect("entry").file_name())
        .collect();
    assert_eq!(names, ["mine"]);
}
