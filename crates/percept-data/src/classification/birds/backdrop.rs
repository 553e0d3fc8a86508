//! What stands behind a bird and what hangs in front of it: nothing here knows the class.

use super::paint::{Canvas, Colour, Frame, from_hue, mixed};
use super::shape::Shape;
use crate::random::Draws;

/// The picture's own frame.
fn picture() -> Frame {
    Frame::new([0.0, 0.0], 1.0, 0.0)
}

fn point(draws: &mut Draws) -> [f32; 2] {
    [draws.range(0.0, 1.0) as f32, draws.range(0.0, 1.0) as f32]
}

/// Sky, blurred leaves, and berries in the colours of the parts of birds.
pub(super) fn behind(canvas: &mut Canvas, draws: &mut Draws) {
    let hue = draws.range(0.08, 0.68);
    let saturation = draws.range(0.05, 0.45);
    let value = draws.range(0.45, 0.95);
    let top = from_hue(hue, saturation, value);
    let bottom = from_hue(
        hue + draws.range(-0.12, 0.12),
        saturation + draws.range(-0.05, 0.25),
        value * draws.range(0.55, 1.0),
    );
    canvas.fill(|[_, y]| mixed(top, bottom, y));

    for _ in 0..4 + draws.below(6) {
        let radius = draws.range(0.05, 0.22) as f32;
        let shape = Shape::ellipse(
            point(draws),
            [radius, radius * draws.range(0.5, 1.0) as f32],
        );
        let colour = foliage(draws);
        let blur = draws.range(0.03, 0.12) as f32;
        canvas.paint_soft(&picture(), &shape, blur, |_, _| colour);
    }
    for _ in 0..draws.below(6) {
        let centre = point(draws);
        let radius = draws.range(0.012, 0.03) as f32;
        let colour = BERRIES[draws.below(BERRIES.len())];
        let blur = draws.range(0.0, 0.03) as f32;
        canvas.paint_soft(&picture(), &Shape::circle(centre, radius), blur, |_, _| {
            colour
        });
    }
}

/// Colours that also mark birds, so that they tell nothing by being there.
const BERRIES: [Colour; 5] = [
    [0.80, 0.12, 0.10],
    [0.95, 0.78, 0.15],
    [0.95, 0.94, 0.90],
    [0.10, 0.10, 0.12],
    [0.93, 0.55, 0.12],
];

fn foliage(draws: &mut Draws) -> Colour {
    from_hue(
        draws.range(0.07, 0.42),
        draws.range(0.15, 0.6),
        draws.range(0.25, 0.85),
    )
}

/// Now and then a leaf that hides a place of the bird.
pub(super) fn in_front(canvas: &mut Canvas, bird: &Frame, draws: &mut Draws) {
    if !draws.chance(0.3) {
        return;
    }
    let at = [draws.range(-1.3, 1.4) as f32, draws.range(-0.9, 0.7) as f32];
    let frame = bird.part(at, draws.angle());
    let (length, width) = (
        draws.range(0.35, 0.6) as f32,
        draws.range(0.14, 0.24) as f32,
    );
    // Two arcs that meet in points.
    let bow = (length * length - width * width) / (2.0 * width);
    let leaf =
        Shape::circle([0.0, bow], bow + width).within(Shape::circle([0.0, -bow], bow + width));
    let green = from_hue(
        draws.range(0.18, 0.36),
        draws.range(0.35, 0.7),
        draws.range(0.3, 0.6),
    );
    let light = mixed(green, [1.0; 3], 0.12);
    canvas.paint_soft(
        &frame,
        &leaf,
        0.0,
        |[_, y], _| if y < 0.0 { light } else { green },
    );
    let rib = Shape::limb([[-length * 0.9, 0.0], [length * 0.9, 0.0]], [0.012, 0.012]);
    canvas.paint(&frame, &rib, mixed(green, [0.0; 3], 0.25));
}
