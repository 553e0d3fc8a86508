//! Images beside each other: grids, cameras around a bird's-eye view, and what is most like a query.

use crate::birds_eye::{BirdsEye, draw_birds_eye};
use crate::colours::{Colour, ON_DARK};
use crate::font::Weight;
use crate::overlay::fitting;
use crate::picture::{Area, Picture, Stroke, TextStyle};
use crate::pixels::Pixels;
use crate::theme::{DARK, MARGIN, TEXT_SIZE};

const CAPTION_HEIGHT: f64 = 26.0;
const GAP: f64 = 12.0;
/// The width that grids fill, about that of a bird's-eye view.
const GRID_WIDTH: f64 = 1240.0;
/// The tallest that an image of a grid may be.
const TALLEST: f64 = 480.0;
const RIM: f64 = 3.0;

/// An image with a line of text below it.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// What stands below the image.
    pub caption: &'a str,
    /// The image.
    pub image: &'a Pixels,
}

/// Draws images in rows of `columns`, each with its caption.
///
/// ```
/// use percept_picture::{Pixels, Tile, draw_grid};
///
/// let image = Pixels::new(8, 4, vec![120; 96])?;
/// let tile = Tile { caption: "query", image: &image };
/// let picture = draw_grid("query beside match", 2, &[tile, Tile { caption: "match", ..tile }]);
/// assert_eq!(picture.size()[0], 1280);
/// # Ok::<(), percept_picture::PixelsError>(())
/// ```
pub fn draw_grid(title: &str, columns: usize, tiles: &[Tile<'_>]) -> Picture {
    let grid = Grid::new(columns, tiles);
    let (mut picture, top) = Picture::titled(&DARK, title, GRID_WIDTH, grid.height());
    grid.draw(&mut picture, top, |_| None);
    picture
}

/// Draws the views of cameras around the ground: the first half of them above, the others below.
///
/// ```
/// use percept_picture::{BirdsEye, Pixels, Tile, draw_surround};
///
/// let image = Pixels::new(16, 9, vec![60; 432])?;
/// let names = ["front left", "front", "front right", "back left", "back", "back right"];
/// let cameras = names.map(|caption| Tile { caption, image: &image });
/// let picture = draw_surround(&BirdsEye { title: "a crossing", ..BirdsEye::default() }, &cameras);
/// assert!(picture.size()[1] > 1500);
/// # Ok::<(), percept_picture::PixelsError>(())
/// ```
pub fn draw_surround(ground: &BirdsEye<'_>, cameras: &[Tile<'_>]) -> Picture {
    let (above, below) = cameras.split_at(cameras.len().div_ceil(2));
    let columns = above.len().max(1);
    let middle = draw_birds_eye(&BirdsEye {
        title: "",
        ..*ground
    });
    let grids = [Grid::new(columns, above), Grid::new(columns, below)];
    let [above_height, below_height] = [grids[0].height(), grids[1].height()];
    let body = above_height + middle.height + below_height;
    let (mut picture, top) = Picture::titled(&DARK, ground.title, GRID_WIDTH, body);
    grids[0].draw(&mut picture, top, |_| None);
    grids[1].draw(&mut picture, top + above_height + middle.height, |_| None);
    picture.place([0.0, top + above_height], middle);
    picture
}

/// What is near to a query.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour<'a> {
    /// Its name, and how near it is.
    pub caption: &'a str,
    /// Its image.
    pub image: &'a Pixels,
    /// Whether it shows the same place or thing, where that is known.
    pub right: Option<bool>,
}

/// Draws a query and what is nearest to it by descriptor, the nearest first: right ones have a green rim, wrong ones an
/// orange one, and their captions say so.
///
/// ```
/// use percept_picture::{Neighbour, Pixels, Tile, draw_neighbours};
///
/// let image = Pixels::new(4, 4, vec![120; 48])?;
/// let query = Tile { caption: "frame 7", image: &image };
/// let near = Neighbour { caption: "frame 412, 0.18", image: &image, right: Some(true) };
/// let svg = draw_neighbours("where am I?", query, &[near]).to_svg();
/// assert!(svg.contains("frame 412, 0.18: right"));
/// # Ok::<(), percept_picture::PixelsError>(())
/// ```
pub fn draw_neighbours(title: &str, query: Tile<'_>, neighbours: &[Neighbour<'_>]) -> Picture {
    let captions: Vec<String> = neighbours
        .iter()
        .map(|neighbour| match neighbour.right {
            Some(true) => format!("{}: right", neighbour.caption),
            Some(false) => format!("{}: wrong", neighbour.caption),
            None => neighbour.caption.to_owned(),
        })
        .collect();
    let tiles: Vec<Tile<'_>> = std::iter::once(query)
        .chain(
            neighbours
                .iter()
                .zip(&captions)
                .map(|(neighbour, caption)| Tile {
                    caption,
                    image: neighbour.image,
                }),
        )
        .collect();
    let grid = Grid::new(tiles.len().min(5), &tiles);
    let (mut picture, top) = Picture::titled(&DARK, title, GRID_WIDTH, grid.height());
    grid.draw(&mut picture, top, |place| match place {
        0 => Some(DARK.ink),
        _ => match neighbours[place - 1].right {
            Some(true) => Some(ON_DARK[2]),
            Some(false) => Some(ON_DARK[4]),
            None => Some(DARK.grid),
        },
    });
    picture
}

/// Tiles in rows, each row as high as its highest image.
struct Grid<'a> {
    columns: usize,
    tiles: &'a [Tile<'a>],
    tile_width: f64,
}

impl<'a> Grid<'a> {
    fn new(columns: usize, tiles: &'a [Tile<'a>]) -> Self {
        let columns = columns.max(1);
        let gaps = (columns - 1) as f64 * GAP;
        Self {
            columns,
            tiles,
            tile_width: ((GRID_WIDTH - gaps) / columns as f64).floor().max(1.0),
        }
    }

    fn row_height(&self, row: &[Tile<'_>]) -> f64 {
        let highest = row
            .iter()
            .map(|tile| fitting(tile.image, [self.tile_width, TALLEST])[1])
            .fold(0.0, f64::max);
        highest + CAPTION_HEIGHT
    }

    /// All rows, with the gaps between them.
    fn height(&self) -> f64 {
        let rows = self.tiles.chunks(self.columns);
        let gaps = rows.len().saturating_sub(1) as f64 * GAP;
        rows.map(|row| self.row_height(row)).sum::<f64>() + gaps
    }

    /// Draws the tiles from `top`, those that have one with a rim.
    fn draw(&self, picture: &mut Picture, mut top: f64, rim: impl Fn(usize) -> Option<Colour>) {
        for (row_place, row) in self.tiles.chunks(self.columns).enumerate() {
            let row_height = self.row_height(row);
            for (column, tile) in row.iter().enumerate() {
                let left = MARGIN + column as f64 * (self.tile_width + GAP);
                let [width, height] = fitting(tile.image, [self.tile_width, TALLEST]);
                let area = Area {
                    left: left + ((self.tile_width - width) / 2.0).floor(),
                    top: top + ((row_height - CAPTION_HEIGHT - height) / 2.0).floor(),
                    width,
                    height,
                };
                picture.image(area, tile.image.resized(width as u32, height as u32));
                if let Some(colour) = rim(row_place * self.columns + column) {
                    // Within the image, so that rims of neighbours do not meet.
                    let inner = Area {
                        left: area.left + 0.5 * RIM,
                        top: area.top + 0.5 * RIM,
                        width: (area.width - RIM).max(0.0),
                        height: (area.height - RIM).max(0.0),
                    };
                    picture.outline(inner.corners(), Stroke::new(colour, RIM));
                }
                let caption = Weight::Regular.fit(TEXT_SIZE, tile.caption, self.tile_width);
                let style = TextStyle::new(TEXT_SIZE, DARK.ink);
                picture.text([area.left, top + row_height - 8.0], style, caption);
            }
            top += row_height + GAP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(width: u32, height: u32, colour: Colour) -> Pixels {
        Pixels::filled(width, height, colour)
    }

    #[test]
    fn tiles_stand_in_rows_in_their_order() {
        let colours = [[250, 0, 0], [0, 250, 0], [0, 0, 250]];
        let images = colours.map(|colour| image(30, 10, colour));
        let tiles: Vec<Tile<'_>> = images
            .iter()
            .map(|image| Tile {
                caption: "x",
                image,
            })
            .collect();
        let picture = draw_grid("", 2, &tiles);
        // Two columns of 614 x 205, rows of 231 with a gap of 12, between margins of 20.
        assert_eq!(picture.size(), [1280, 40 + 2 * 231 + 12]);
        let pixels = picture.to_pixels();
        let found = [(300, 100), (900, 100), (300, 350)].map(|(x, y)| pixels.at(x, y));
        assert_eq!(found, colours.map(Some));
        assert_eq!(pixels.at(900, 350), Some(DARK.background));
    }

    #[test]
    fn cameras_stand_above_and_below_the_ground() {
        let camera = image(16, 9, [200, 100, 50]);
        let tile = Tile {
            caption: "",
            image: &camera,
        };
        for cameras in [0, 1, 3, 6] {
            let tiles = vec![tile; cameras];
            let pixels = draw_surround(&BirdsEye::default(), &tiles).to_pixels();
            let column = |x: u32| {
                (0..pixels.height())
                    .filter(|y| pixels.at(x, *y) == Some([200, 100, 50]))
                    .count()
            };
            let expected = match cameras {
                0 => 0,
                1 => 480,
                3 => 2 * 345,
                _ => 2 * 228,
            };
            assert!(
                column(300).abs_diff(expected) < 8,
                "{cameras}: {}",
                column(300)
            );
        }
    }

    #[test]
    fn rims_tell_right_from_wrong() {
        let grey = image(10, 10, [90; 3]);
        let neighbour = |right| Neighbour {
            caption: "there",
            image: &grey,
            right,
        };
        let query = Tile {
            caption: "here",
            image: &grey,
        };
        let neighbours = [
            neighbour(Some(true)),
            neighbour(Some(false)),
            neighbour(None),
        ];
        let picture = draw_neighbours("", query, &neighbours);
        let pixels = picture.to_pixels();
        for colour in [DARK.ink, ON_DARK[2], ON_DARK[4], DARK.grid] {
            let count = pixels
                .rgb()
                .as_chunks::<3>()
                .0
                .iter()
                .filter(|pixel| **pixel == colour)
                .count();
            assert!(count > 1000, "{colour:?} {count}");
        }
        let svg = picture.to_svg();
        assert!(
            svg.contains("there: right") && svg.contains("there: wrong") && svg.contains(">there<")
        );
        assert_eq!(
            draw_neighbours("", query, &[]).size(),
            [1280, 40 + 480 + 26]
        );
    }
}
