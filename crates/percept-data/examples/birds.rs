//! Writes a contact sheet of the built-in birds, one class a row: `cargo run --example birds -- sheet.png`; or, into a folder, the
//! pictures of 16 classes that a run learns from: `cargo run --example birds -- folder 64`.

use std::path::Path;

use percept_data::Samples;
use percept_data::classification::{Birds, BirdsConfig};
use percept_data::images::{RgbImage, encode_png};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("which file should be written?")?;
    if let Some(side) = std::env::args().nth(2) {
        return write_pictures(Path::new(&path), side.parse()?);
    }
    let (classes, per_class, side) = (8, 12, 96);
    let birds = Birds::new(BirdsConfig {
        classes,
        per_class,
        side,
        ..BirdsConfig::default()
    })?;
    let step = side + 4;
    let mut sheet = RgbImage::filled(per_class * step, classes * step, [255; 3]);
    for index in 0..birds.len() {
        let picture = birds.image(index);
        let (row, column) = (birds.label(index), index / classes);
        for (i, pixel) in picture.pixels.as_chunks::<3>().0.iter().enumerate() {
            let place = sheet.pixel_mut(column * step + i % side, row * step + i / side);
            *place.ok_or("a bird beside the sheet")? = *pixel;
        }
    }
    std::fs::write(path, encode_png(&sheet)?)?;
    Ok(())
}

fn write_pictures(folder: &Path, side: usize) -> Result<(), Box<dyn std::error::Error>> {
    let birds = Birds::new(BirdsConfig {
        side,
        ..BirdsConfig::default()
    })?;
    for index in 0..birds.len() {
        let class = folder.join(format!("{:02}", birds.label(index)));
        std::fs::create_dir_all(&class)?;
        let picture = encode_png(&birds.image(index))?;
        std::fs::write(class.join(format!("{index:04}.png")), picture)?;
    }
    Ok(())
}
