//! Draws one picture of each kind into a folder, to look at: `cargo run -p percept-picture --example gallery -- FOLDER`.

use std::f64::consts::{PI, TAU};
use std::path::Path;

use percept_picture::{
    Axis, BarColumn, Bars, Better, BirdsEye, Chart, DrawnBox, DrawnMask, DrawnPoint, ImageBox,
    Mask, MatchView, Neighbour, Overlay, Panel, Picture, Pixels, PointColours, ProfileRow, Scanner,
    Series, Tile, class_colours, draw_birds_eye, draw_classes, draw_grid, draw_matches,
    draw_neighbours, draw_profile, draw_scan, draw_surround,
};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let write = |name: &str, picture: Picture| -> std::io::Result<()> {
        std::fs::write(folder.join(format!("{name}.png")), picture.to_png())?;
        std::fs::write(folder.join(format!("{name}.svg")), picture.to_svg())
    };
    let (points, boxes) = (street(), objects());
    let scene = BirdsEye {
        title: "a street of rings: boxes",
        points: &points,
        boxes: &boxes,
        box_classes: &BOX_CLASSES,
        reach_m: 54.0,
        ..BirdsEye::default()
    };
    write("boxes", draw_birds_eye(&scene))?;
    let labels = BirdsEye {
        title: "a street of rings: point labels",
        colours: PointColours::Class(&POINT_CLASSES),
        boxes: &[],
        reach_m: 75.2,
        ..scene
    };
    let scanner = Scanner {
        beams: 32,
        elevations_rad: [-0.535, 0.186],
    };
    write("scan", draw_scan(&labels, scanner))?;
    write(
        "intensity",
        draw_birds_eye(&BirdsEye {
            colours: PointColours::Intensity,
            ..scene
        }),
    )?;
    write_images(&write, &scene)?;
    write("training", training())?;
    write("front", front())?;
    write("profile", profile())?;
    write("sensitivity", sensitivity())
}

/// What is drawn of images: classes, overlays, matches, neighbours, and cameras around the ground.
fn write_images(
    write: &impl Fn(&str, Picture) -> std::io::Result<()>,
    scene: &BirdsEye<'_>,
) -> std::io::Result<()> {
    let images = [0.3, 0.5, 0.7].map(|at| hill(320, 240, at));
    let [left, middle, right] = [0.3, 0.5, 0.7].map(|at| sun(320, 240, at));
    let classes = [
        ("sunrise", 0.712),
        ("orange", 0.154),
        ("balloon", 0.083),
        ("street sign", 0.021),
        ("lakeside", 0.004),
    ];
    write("classes", draw_classes("hill.png", &images[0], &classes))?;
    let colour = class_colours(&["car"])[0];
    let overlay = Overlay {
        image: &images[0],
        masks: &[DrawnMask {
            mask: &left,
            colour,
            filled: true,
        }],
        boxes: &[ImageBox {
            edges: [66.0, 42.0, 126.0, 102.0],
            colour,
            label: "sun 0.93",
        }],
    };
    write("overlay", overlay.draw(800, 600))?;
    let matches = MatchView {
        title: "The same sun from another hill",
        query: &images[0],
        asked: &left,
        view: &images[2],
        candidates: &[left.clone(), middle, right],
        ranked: &[(2, 0.91), (1, 0.42), (0, 0.11)],
        threshold: 0.5,
    };
    write("matches", draw_matches(&matches))?;
    let neighbour = |place: usize, caption, right| Neighbour {
        caption,
        image: &images[place],
        right: Some(right),
    };
    let query = Tile {
        caption: "query: frame 7",
        image: &images[0],
    };
    let neighbours = [
        neighbour(0, "frame 412, 0.18", true),
        neighbour(1, "frame 90, 0.31", false),
        neighbour(0, "frame 413, 0.33", true),
        neighbour(2, "frame 8, 0.40", false),
    ];
    write(
        "neighbours",
        draw_neighbours("Where am I?", query, &neighbours),
    )?;
    let names = [
        "front left",
        "front",
        "front right",
        "back left",
        "back",
        "back right",
    ];
    let cameras = std::array::from_fn::<_, 6, _>(|place| Tile {
        caption: names[place],
        image: &images[place % 3],
    });
    write("surround", draw_surround(scene, &cameras))?;
    write("grid", draw_grid("Six cameras", 3, &cameras))
}

/// A sun over a hill.
fn hill(width: u32, height: u32, sun_at: f64) -> Pixels {
    let rgb = (0..width * height)
        .flat_map(|place| {
            let x = f64::from(place % width) / f64::from(width);
            let y = f64::from(place / width) / f64::from(height);
            if in_sun(x, y, sun_at) {
                [250, 190, 60]
            } else if y > 0.65 + 0.1 * (6.0 * x).sin() {
                [50, 90 + (60.0 * x) as u8, 70]
            } else {
                [110, 150, 190 + (60.0 * y) as u8]
            }
        })
        .collect();
    Pixels::new(width, height, rgb).expect("three bytes per pixel")
}

fn sun(width: u32, height: u32, sun_at: f64) -> Mask {
    let inside: Vec<u8> = (0..width * height)
        .map(|place| {
            let x = f64::from(place % width) / f64::from(width);
            let y = f64::from(place / width) / f64::from(height);
            u8::from(in_sun(x, y, sun_at))
        })
        .collect();
    Mask::new(width, height, &inside).expect("one number per pixel")
}

fn in_sun(x: f64, y: f64, at: f64) -> bool {
    let (dx, dy) = (x - at, 0.75 * (y - 0.3));
    dx * dx + dy * dy < 0.09 * 0.09
}

const BOX_CLASSES: [&str; 10] = [
    "car",
    "truck",
    "construction_vehicle",
    "bus",
    "trailer",
    "barrier",
    "motorcycle",
    "bicycle",
    "pedestrian",
    "traffic_cone",
];
const POINT_CLASSES: [&str; 4] = ["unlabeled", "road", "building", "car"];

/// Rings on the ground, and houses along both sides.
fn street() -> Vec<DrawnPoint> {
    let mut points = Vec::new();
    for ring in 0..32_u8 {
        let elevation = -0.535 + 0.721 * f64::from(ring) / 31.0;
        for step in 0..1090 {
            let azimuth = TAU * f64::from(step) / 1090.0;
            let (sin, cos) = azimuth.sin_cos();
            let wall_m = 14.0 / sin.abs().max(0.02);
            let ground_m = if elevation < -0.01 {
                1.8 / -elevation.tan()
            } else {
                f64::INFINITY
            };
            let (range_m, class) = if wall_m < ground_m {
                (wall_m, 2)
            } else {
                (ground_m, 1)
            };
            if range_m < 70.0 {
                points.push(DrawnPoint {
                    position: [range_m * cos, range_m * sin, range_m * elevation.tan()]
                        .map(|v| v as f32),
                    intensity: (20.0 + 15.0 * (azimuth * 40.0).sin()) as f32,
                    class: Some(class),
                    ring: Some(ring),
                    old: false,
                });
            }
        }
    }
    points
}

fn objects() -> Vec<DrawnBox> {
    (0..20)
        .map(|place| {
            let at = f64::from(place);
            let class = place as usize % 10;
            let long = if class < 5 { 4.6 } else { 1.2 };
            DrawnBox {
                class,
                centre: [4.5 * at - 42.0, if place % 2 == 0 { 3.5 } else { -3.5 }],
                size: [long, 0.45 * long],
                yaw_rad: if place % 2 == 0 { 0.1 } else { 3.0 },
                velocity: Some([if place % 2 == 0 { 6.0 } else { -4.0 }, 0.2]),
                score: 1.0 - at / 25.0,
            }
        })
        .collect()
}

fn training() -> Picture {
    let curve = |value: fn(f64) -> f64| -> Vec<[f64; 2]> {
        (0..2000)
            .map(|step| f64::from(step) * 10.0)
            .map(|x| [x, value(x)])
            .collect()
    };
    let tests = |value: fn(f64) -> f64| -> Vec<[f64; 2]> {
        (1..=20)
            .map(|step| f64::from(step) * 1000.0)
            .map(|x| [x, value(x)])
            .collect()
    };
    let panel = |title: &str, y: Axis, series| Panel {
        title: title.to_owned(),
        x: Axis::linear("step"),
        y,
        series,
        front: None,
    };
    let noise = |x: f64| (x * 12.9898).sin() * 43_758.545_3 % 1.0;
    let loss: Vec<[f64; 2]> = curve(|x| 5.3 * (-x / 5000.0).exp() + 0.4)
        .into_iter()
        .map(|[x, y]| [x, y * (1.0 + 0.2 * noise(x))])
        .collect();
    Chart {
        title: "paco on 200 birds, seed 3".to_owned(),
        panels: vec![
            panel(
                "Loss",
                Axis::logarithmic("nats"),
                vec![
                    Series::line("training", loss).smoothed(25),
                    Series::line("test", tests(|x| 5.0 * (-x / 5200.0).exp() + 0.6)),
                ],
            ),
            panel(
                "Top-1",
                Axis::linear("%"),
                vec![
                    Series::line("training", curve(|x| 92.0 * (1.0 - (-x / 4000.0).exp()))),
                    Series::line("test", tests(|x| 81.0 * (1.0 - (-x / 4200.0).exp()))),
                    Series::line("published", vec![[0.0, 84.1], [20_000.0, 84.1]]).dashed(),
                ],
            ),
            panel(
                "Learning rate",
                Axis::linear(""),
                vec![Series::line(
                    "rate",
                    curve(|x| 1e-3 * (0.5 + 0.5 * (x / 20_000.0 * PI).cos())),
                )],
            ),
        ],
        columns: 0,
    }
    .draw()
}

fn front() -> Picture {
    let ours = Series::dots(
        "float",
        vec![
            [11.2, 69.8],
            [20.4, 73.3],
            [25.0, 76.1],
            [47.0, 77.4],
            [9.1, 77.7],
        ],
    )
    .labelled([
        "resnet18",
        "resnet34",
        "resnet50",
        "resnet101",
        "efficientnet-b0",
    ]);
    let int8 = Series::dots("int8", vec![[4.4, 69.5], [11.1, 75.8], [6.2, 76.9]]).labelled([
        "resnet18",
        "resnet50",
        "efficientnet-b0",
    ]);
    let curve = |power: f64| {
        (0..=50)
            .map(|i| f64::from(i) / 50.0)
            .map(|r| [r, 1.0 - r.powf(power)])
            .collect()
    };
    Chart {
        title: "Accuracy against time, and precision against recall".to_owned(),
        panels: vec![
            Panel {
                title: "ImageNet".to_owned(),
                x: Axis::logarithmic("latency, ms"),
                y: Axis::linear("top-1, %"),
                series: vec![ours, int8],
                front: Some([Better::Lower, Better::Higher]),
            },
            Panel {
                title: "Boxes".to_owned(),
                x: Axis::linear("recall").from_to(0.0, 1.0),
                y: Axis::linear("precision").from_to(0.0, 1.0),
                series: vec![
                    Series::line("car", curve(6.0)),
                    Series::line("pedestrian", curve(3.0)),
                    Series::line("bicycle", curve(1.5)),
                ],
                front: None,
            },
        ],
        columns: 0,
    }
    .draw()
}

fn profile() -> Picture {
    let rows: Vec<ProfileRow> = [
        ("layer3", 0.382, 19_800_000),
        ("layer4", 0.254, 61_200_000),
        ("layer2", 0.181, 6_400_000),
        ("layer1", 0.122, 3_100_000),
        ("conv1", 0.044, 3_200_000),
        ("fc", 0.009, 8_200_000),
    ]
    .into_iter()
    .map(|(name, time_share, memory_bytes)| ProfileRow {
        name: name.to_owned(),
        time_share,
        memory_bytes,
    })
    .collect();
    draw_profile("resnet50, one image of 224x224, 2 threads", &rows)
}

fn sensitivity() -> Picture {
    let layers = [
        "conv1",
        "layer1.0.conv1",
        "layer1.0.conv2",
        "layer4.2.conv3",
        "fc",
    ];
    Bars {
        title: "What int8 changes, layer by layer".to_owned(),
        names: layers.map(str::to_owned).to_vec(),
        columns: vec![
            BarColumn {
                heading: "Top-1".to_owned(),
                unit: "points".to_owned(),
                values: vec![-1.25, -0.31, 0.02, -0.07, f64::NAN],
            },
            BarColumn {
                heading: "Time saved".to_owned(),
                unit: "ms".to_owned(),
                values: vec![0.42, 0.11, 0.63, 0.30, 0.01],
            },
        ],
    }
    .draw()
}
