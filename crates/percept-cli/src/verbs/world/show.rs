//! `percept world show`.

use std::path::PathBuf;

use clap::ValueEnum;
use percept_data::images::RgbImage;
use percept_data::masks::Rle;
use percept_data::points::{
    EGO_HALF_EXTENT_M, LEARNED_CLASS_NAMES, LidarDataset, LidarFrame, ObjectClass, Point,
};
use percept_kernels::Cpu;
use percept_picture::{
    BirdsEye, DrawnBox, DrawnMask, DrawnPoint, Mask, Overlay, Picture, Pixels, PointColours,
    Scanner, Tile, class_colours, draw_grid, draw_scan,
};
use percept_report::counted;
use percept_world::{
    EgoExo, EgoExoConfig, EgoExoPair, MAX_SWEEPS, Sight, Weather, World, WorldConfig, WorldError,
    WorldKind,
};
use serde_json::json;

use super::{Kind, Size, WorldArgs, blame_points, blame_world, no_street};
use crate::fail::{Blame, Fail, Result};
use crate::options::parse_picture;
use crate::outcome::{Outcome, write_picture};
use crate::surround::{CameraPicture, SolidBox, camera_pictures, draw_around};

/// Draw a frame as one picture: bird's-eye view with boxes, the cameras around it or the range image; or a pair of a room
#[derive(clap::Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    world: WorldArgs,
    /// Draw this data instead: a .pcd.bin or .bin cloud, a nuScenes or a SemanticKITTI folder
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Which frame, or which pair
    #[arg(long, value_name = "N", default_value_t = 0)]
    frame: usize,
    /// Sweeps to merge
    #[arg(long, value_name = "N", default_value_t = 1)]
    sweeps: usize,
    /// Pictures of the street's cameras [default: 800x450]
    #[arg(long, value_name = "WxH")]
    size: Option<Size>,
    /// Cameras to draw: all, or channels such as CAM_FRONT,CAM_BACK
    #[arg(long, value_name = "CHANNELS", value_delimiter = ',')]
    cameras: Vec<String>,
    /// Another weather than the frame's own
    #[arg(long, value_name = "WEATHER")]
    weather: Option<NamedWeather>,
    /// Picture to write, as .png or .svg
    #[arg(long, value_name = "FILE", default_value = "world.png", value_parser = parse_picture)]
    image: PathBuf,
}

/// Pictures of the street's cameras where nobody says.
const PICTURES: Size = Size {
    width: 800,
    height: 450,
};

#[derive(Clone, Copy, ValueEnum)]
enum NamedWeather {
    Noon,
    Evening,
    Dusk,
    Overcast,
    Rain,
}

impl NamedWeather {
    fn weather(self) -> Weather {
        match self {
            Self::Noon => Weather::NOON,
            Self::Evening => Weather::EVENING,
            Self::Dusk => Weather::DUSK,
            Self::Overcast => Weather::OVERCAST,
            Self::Rain => Weather::RAIN,
        }
    }
}

pub(super) fn run(args: &ShowArgs, cpu: &Cpu) -> Result<Outcome> {
    if !(1..=MAX_SWEEPS).contains(&args.sweeps) {
        return Err(blame_world(WorldError::Sweeps {
            sweeps: args.sweeps,
        }));
    }
    match (&args.data, args.world.kind) {
        (Some(path), _) => {
            let dataset = LidarDataset::open(path).map_err(blame_points)?;
            let frame = dataset
                .frame(args.frame, args.sweeps)
                .map_err(blame_points)?;
            let pictures = camera_pictures(&frame)?;
            let name = path.file_name().unwrap_or(path.as_os_str());
            let title = format!("{}, frame {}", name.to_string_lossy(), args.frame);
            write_frame(args, &frame, &pictures, &title)
        }
        (None, Kind::World(kind)) => {
            let (frame, pictures, title) = street(args, kind, cpu)?;
            write_frame(args, &frame, &pictures, &title)
        }
        (None, Kind::EgoExo) if args.size.is_some() => Err(no_street()),
        (None, Kind::EgoExo) => write_pair(args, cpu),
    }
}

/// A frame of a synthetic street with what its cameras see.
fn street(
    args: &ShowArgs,
    kind: WorldKind,
    cpu: &Cpu,
) -> Result<(LidarFrame, Vec<CameraPicture>, String)> {
    let mut world = World::new(WorldConfig {
        sweeps: args.sweeps,
        ..args.world.street(kind)
    });
    if let Some(frames) = world.frames().filter(|frames| args.frame >= *frames) {
        let message = format!(
            "--frame {}: the passes have {}",
            args.frame,
            counted(frames, "frame")
        );
        return Err(Fail::usage(message));
    }
    let frame = world.frame(cpu, args.frame);
    let mut title = format!("{kind}, seed {}, frame {}", args.world.seed, args.frame);
    if kind == WorldKind::SemanticKitti {
        return Ok((frame, Vec::new(), title));
    }
    if let Some(pass) = world.pass(args.frame) {
        title += &format!(", {}", pass.words());
    }
    let weather = args.weather.map(NamedWeather::weather);
    let weather = weather.unwrap_or_else(|| world.weather(args.frame));
    let rig = args
        .world
        .rig(args.size.unwrap_or(PICTURES), &args.cameras)?;
    let views = world.views_under(cpu, args.frame, &rig, &weather);
    let pictures = views.into_iter().map(|seen| CameraPicture {
        camera: seen.camera,
        image: seen.view.image,
    });
    Ok((frame, pictures.collect(), title))
}

fn write_frame(
    args: &ShowArgs,
    frame: &LidarFrame,
    pictures: &[CameraPicture],
    title: &str,
) -> Result<Outcome> {
    write_picture(&args.image, &draw(frame, pictures, title)?)?;
    let boxes = frame.boxes.as_ref().map(Vec::len);
    let boxes_text = boxes.map_or("no boxes".to_owned(), |count| counted(count, "box"));
    let cameras = match pictures.len() {
        0 => String::new(),
        count => format!(", {}", counted(count, "camera")),
    };
    let text = format!(
        "{}: {}, {boxes_text}{cameras}\n",
        args.image.display(),
        counted(frame.points.len(), "point")
    );
    let record = json!({
        "image": args.image.display().to_string(), "title": title, "points": frame.points.len(), "boxes": boxes,
        "cameras": pictures.len(),
    });
    Ok(Outcome::new(text, record))
}

/// Metres from the sensor to the edge of the bird's-eye view.
const REACH_M: f64 = 52.0;

/// A frame with its truth.
fn draw(frame: &LidarFrame, pictures: &[CameraPicture], title: &str) -> Result<Picture> {
    let labels = frame.labels.as_deref();
    let point = |(index, point): (usize, &Point)| DrawnPoint {
        position: point.position,
        intensity: point.intensity,
        class: labels
            .and_then(|labels| labels.get(index))
            .map(|label| usize::from(label.learned_class())),
        ring: point.ring,
        old: point.age_s != 0.0,
    };
    let points: Vec<DrawnPoint> = frame
        .points
        .iter()
        .enumerate()
        .filter(|(_, point)| {
            let [x, y, _] = point.position.map(f32::abs);
            x >= EGO_HALF_EXTENT_M || y >= EGO_HALF_EXTENT_M
        })
        .map(point)
        .collect();
    let boxes: Vec<DrawnBox> = frame
        .boxes
        .iter()
        .flatten()
        .map(|object| DrawnBox {
            class: object.class.id(),
            centre: [object.centre[0], object.centre[1]],
            size: [object.size[0], object.size[1]],
            yaw_rad: object.yaw_rad,
            velocity: object.velocity,
            score: 1.0,
        })
        .collect();
    let names = ObjectClass::ALL.map(ObjectClass::name);
    let scene = BirdsEye {
        title,
        points: &points,
        // Without labels, height tells the most.
        colours: labels.map_or(PointColours::Height, |_| {
            PointColours::Class(&LEARNED_CLASS_NAMES)
        }),
        boxes: &boxes,
        box_classes: &names,
        forward_rad: frame.convention.forward_rad(),
        reach_m: REACH_M,
    };
    if pictures.is_empty() {
        let scanner = Scanner {
            beams: frame.convention.beams(),
            elevations_rad: frame.convention.elevations_rad(),
        };
        return Ok(draw_scan(&scene, scanner));
    }
    let objects = frame.boxes.iter().flatten();
    let objects: Vec<SolidBox> = objects
        .map(|object| {
            let (class, size) = (object.class.id(), object.size);
            SolidBox::new(class, object.centre, size, object.yaw_rad)
        })
        .collect();
    draw_around(&scene, pictures, &frame.sensor_to_world, &objects)
}

/// A pair of a room: both pictures, the things in them, and what a segmenter would find.
fn write_pair(args: &ShowArgs, cpu: &Cpu) -> Result<Outcome> {
    let rooms = EgoExo::new(EgoExoConfig {
        seed: args.world.seed,
        frames_per_take: 8,
        ego: args.world.picture(args.world.ego_size)?,
        exo: args.world.picture(args.world.exo_size)?,
    });
    let pair = rooms.pair(cpu, args.frame);
    let title = format!(
        "{}, seed {}, pair {}: {} things",
        pair.room.name(),
        args.world.seed,
        args.frame,
        pair.objects.len()
    );
    write_picture(&args.image, &draw_pair(&pair, &title)?)?;
    let seen = pair
        .objects
        .iter()
        .filter(|o| !o.ego.is_empty() && !o.exo.is_empty());
    let in_both = seen.count();
    let candidates = [&pair.ego, &pair.exo].map(|sight| sight.candidates.len());
    let text = format!(
        "{}: {} things, {in_both} seen by both cameras, {} and {} candidate masks\n",
        args.image.display(),
        pair.objects.len(),
        candidates[0],
        candidates[1]
    );
    let record = json!({
        "image": args.image.display().to_string(), "title": title, "objects": pair.objects.len(),
        "seen_by_both": in_both, "candidates": candidates,
    });
    Ok(Outcome::new(text, record))
}

fn draw_pair(pair: &EgoExoPair, title: &str) -> Result<Picture> {
    let names: Vec<&str> = pair
        .objects
        .iter()
        .map(|object| object.name.as_str())
        .collect();
    let colours = class_colours(&names);
    let masks_of = |of: fn(&percept_world::SeenObject) -> &Rle| -> Vec<&Rle> {
        pair.objects.iter().map(of).collect()
    };
    let sides = [
        ("ego", &pair.ego, masks_of(|object| &object.ego)),
        ("exo", &pair.exo, masks_of(|object| &object.exo)),
    ];
    let mut tiles: Vec<(String, Pixels)> = Vec::new();
    for (name, sight, _) in &sides {
        tiles.push((format!("{name}: the picture"), pixels(&sight.view.image)?));
    }
    for (name, sight, masks) in &sides {
        let drawn: Vec<_> = masks
            .iter()
            .zip(&colours)
            .map(|(mask, c)| (*mask, *c))
            .collect();
        tiles.push((
            format!("{name}: true masks, one colour per thing"),
            with_masks(sight, &drawn, true)?,
        ));
    }
    for (name, sight, _) in &sides {
        let count = sight.candidates.len();
        let drawn: Vec<_> = sight
            .candidates
            .iter()
            .zip(colours.iter().cycle())
            .map(|(candidate, colour)| (&candidate.mask, *colour))
            .collect();
        tiles.push((
            format!("{name}: {count} candidates as from a segmenter"),
            with_masks(sight, &drawn, false)?,
        ));
    }
    let tiles: Vec<Tile<'_>> = tiles
        .iter()
        .map(|(caption, image)| Tile { caption, image })
        .collect();
    Ok(draw_grid(title, 2, &tiles))
}

fn pixels(image: &RgbImage) -> Result<Pixels> {
    Pixels::new(
        image.width as u32,
        image.height as u32,
        image.pixels.clone(),
    )
    .bad_input()
}

fn with_masks(sight: &Sight, masks: &[(&Rle, [u8; 3])], filled: bool) -> Result<Pixels> {
    let image = pixels(&sight.view.image)?;
    let masks = masks
        .iter()
        .filter(|(mask, _)| !mask.is_empty())
        .map(|(mask, colour)| {
            let size = [mask.width() as u32, mask.height() as u32];
            Ok((
                Mask::new(size[0], size[1], &mask.decode()).bad_input()?,
                *colour,
            ))
        })
        .collect::<Result<Vec<(Mask, [u8; 3])>>>()?;
    let drawn: Vec<DrawnMask<'_>> = masks
        .iter()
        .map(|(mask, colour)| DrawnMask {
            mask,
            colour: *colour,
            filled,
        })
        .collect();
    let overlay = Overlay {
        image: &image,
        masks: &drawn,
        boxes: &[],
    };
    Ok(overlay.draw(image.width(), image.height()).to_pixels())
}
