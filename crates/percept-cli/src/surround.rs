//! Cameras around a bird's-eye view, with boxes drawn into what they see.

use percept_data::images::RgbImage;
use percept_data::points::{CAMERA_CHANNELS, Camera, LidarFrame, Pose, box_edges};
use percept_picture::{
    BirdsEye, Picture, Pixels, Tile, Wireframe, class_colours, draw_surround, draw_wireframes,
};

use crate::fail::{Blame, Result};

/// A camera and what it saw.
pub struct CameraPicture {
    pub camera: Camera,
    pub image: RgbImage,
}

/// A box in the frame of the sensor.
pub struct SolidBox {
    /// The number of its class in the ground's names.
    class: usize,
    centre: [f64; 3],
    edges: [[[f64; 3]; 2]; 12],
}

impl SolidBox {
    pub fn new(class: usize, centre: [f64; 3], size: [f64; 3], yaw_rad: f64) -> Self {
        Self {
            class,
            centre,
            edges: box_edges(centre, size, yaw_rad),
        }
    }
}

/// Twice as wide as it will be shown, so that lines are smooth.
const TILE_SIDE: u32 = 812;

impl CameraPicture {
    /// Reads the picture of a camera; the error names its file.
    fn read(camera: &Camera) -> Result<Self> {
        Ok(Self {
            image: camera.image().bad_input()?,
            camera: camera.clone(),
        })
    }

    /// The picture with these boxes, which are in the frame of `sensor_to_world`, in the colours of their classes.
    fn with_boxes(
        &self,
        boxes: &[SolidBox],
        sensor_to_world: &Pose,
        colours: &[[u8; 3]],
    ) -> Result<Pixels> {
        let [width, height] = [self.image.width as u32, self.image.height as u32];
        let image = Pixels::new(width, height, self.image.pixels.clone()).bad_input()?;
        let mut seen: Vec<SeenBox> = boxes
            .iter()
            .filter_map(|object| {
                let centre = sensor_to_world.apply(object.centre);
                let (_, depth_m) = self.camera.project(centre)?;
                let lines = object.edges.into_iter().filter_map(|ends| {
                    self.camera
                        .project_line(ends.map(|end| sensor_to_world.apply(end)))
                });
                let colour = colours.get(object.class)?;
                Some(SeenBox {
                    depth_m,
                    colour: *colour,
                    edges: lines.collect(),
                })
            })
            .collect();
        // The nearest on top.
        seen.sort_by(|a, b| b.depth_m.total_cmp(&a.depth_m));
        let frames: Vec<Wireframe<'_>> = seen
            .iter()
            .map(|seen| Wireframe {
                edges: &seen.edges,
                colour: seen.colour,
            })
            .collect();
        Ok(draw_wireframes(&image, &frames, TILE_SIDE, TILE_SIDE).to_pixels())
    }
}

/// A box on a picture.
struct SeenBox {
    depth_m: f64,
    colour: [u8; 3],
    edges: Vec<[[f64; 2]; 2]>,
}

/// What the cameras of a frame saw. Folders often come without their pictures: then there are none. One that is missing
/// among others is a mistake, and named.
pub fn camera_pictures(frame: &LidarFrame) -> Result<Vec<CameraPicture>> {
    if !frame.cameras.iter().any(|camera| camera.path.is_file()) {
        return Ok(Vec::new());
    }
    frame.cameras.iter().map(CameraPicture::read).collect()
}

/// The ground with the cameras around it as they look: the front ones above, the back ones below.
pub fn draw_around(
    ground: &BirdsEye<'_>,
    pictures: &[CameraPicture],
    sensor_to_world: &Pose,
    boxes: &[SolidBox],
) -> Result<Picture> {
    let [front, front_right, back_right, back, back_left, front_left] = CAMERA_CHANNELS;
    let as_seen = [front_left, front, front_right, back_left, back, back_right];
    let place = |picture: &&CameraPicture| {
        let known = as_seen
            .iter()
            .position(|channel| *channel == picture.camera.channel);
        known.unwrap_or(as_seen.len())
    };
    let mut ordered: Vec<&CameraPicture> = pictures.iter().collect();
    ordered.sort_by_key(place);
    let colours = class_colours(ground.box_classes);
    let drawn = ordered
        .iter()
        .map(|picture| picture.with_boxes(boxes, sensor_to_world, &colours))
        .collect::<Result<Vec<Pixels>>>()?;
    let tiles: Vec<Tile<'_>> = ordered
        .iter()
        .zip(&drawn)
        .map(|(picture, image)| Tile {
            caption: &picture.camera.channel,
            image,
        })
        .collect();
    Ok(draw_surround(ground, &tiles))
}
