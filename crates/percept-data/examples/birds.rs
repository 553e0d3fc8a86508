//! Writes a contact sheet of the built-in birds, one class a row: `cargo run --example birds -- sheet.png`.

use image::{Rgb, RgbImage};
use percept_data::classification::{Birds, BirdsConfig, ImageDataset};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("which file should be written?")?;
    let (classes, per_class, side) = (8, 12, 96);
    let birds = Birds::new(BirdsConfig {
        classes,
        per_class,
        side,
        ..BirdsConfig::default()
    })?;
    let step = side as u32 + 4;
    let mut sheet = RgbImage::from_pixel(
        per_class as u32 * step,
        classes as u32 * step,
        Rgb([255, 255, 255]),
    );
    for index in 0..birds.len() {
        let picture = birds.image(index)?;
        let (row, column) = (birds.label(index), index / classes);
        for (i, pixel) in picture.pixels.as_chunks::<3>().0.iter().enumerate() {
            let x = column as u32 * step + (i % side) as u32;
            let y = row as u32 * step + (i / side) as u32;
            sheet.put_pixel(x, y, Rgb(*pixel));
        }
    }
    sheet.save(path)?;
    Ok(())
}
