//! A bird: the shared body, and the parts that make its class.
//!
//! Units: the body is two units long; the bird looks to the right, and y points down.

use super::kind::{Beak, Crown, Eye, Kind, Tail, Wing};
use super::paint::{Canvas, Colour, Frame, from_hue, mixed};
use super::shape::Shape;
use crate::random::Draws;

const BLACK: Colour = [0.06, 0.06, 0.08];
const WHITE: Colour = [0.97, 0.96, 0.92];
const RED: Colour = [0.82, 0.11, 0.09];
const YELLOW: Colour = [0.97, 0.80, 0.12];
const ORANGE: Colour = [0.96, 0.56, 0.08];
const SLATE: Colour = [0.14, 0.14, 0.18];
const PALE: Colour = [0.93, 0.88, 0.70];

/// What varies from bird to bird within a class.
struct Plumage {
    back: Colour,
    belly: Colour,
    wing: Colour,
    tail: Colour,
}

impl Plumage {
    fn draw(draws: &mut Draws) -> Self {
        let hue = draws.range(0.0, 1.0);
        let saturation = draws.range(0.08, 0.5);
        let value = draws.range(0.4, 0.8);
        let back = from_hue(hue, saturation, value);
        let belly = mixed(back, [0.95, 0.92, 0.85], draws.range(0.25, 0.7) as f32);
        let shade = draws.range(0.62, 0.8);
        let other = hue + draws.range(-0.08, 0.08);
        Self {
            back,
            belly,
            wing: from_hue(other, saturation, value * shade),
            tail: from_hue(other, saturation, value * (shade + 0.06)),
        }
    }
}

/// Draws a bird of `kind`; `draws` decides what makes no class.
pub(super) fn bird(canvas: &mut Canvas, frame: &Frame, kind: &Kind, draws: &mut Draws) {
    let plumage = Plumage::draw(draws);
    let girth = draws.range(0.56, 0.68) as f32;
    let tail_frame = frame.part([-0.78, 0.02], draws.range(-0.25, 0.3));
    let wing_frame = frame.part([-0.12, -0.06], draws.range(-0.08, 0.22));
    let head_at = [0.74 + draws.range(-0.06, 0.06) as f32, -0.6];
    let head_frame = frame.part(head_at, draws.range(-0.25, 0.25));

    branch(canvas, frame, draws);
    tail(canvas, &tail_frame, kind.tail, &plumage);
    body(canvas, frame, head_at, girth, &plumage);
    wing(canvas, &wing_frame, kind.wing, &plumage);
    crown(canvas, &head_frame, kind.crown, &plumage);
    beak(canvas, &head_frame, kind.beak);
    eye(canvas, &head_frame, kind.eye);
}

/// The branch that it sits on, and its legs.
fn branch(canvas: &mut Canvas, frame: &Frame, draws: &mut Draws) {
    let bark = from_hue(
        draws.range(0.05, 0.11),
        draws.range(0.25, 0.55),
        draws.range(0.2, 0.45),
    );
    let tilt = draws.range(-0.25, 0.25) as f32;
    let radii = [draws.range(0.07, 0.14), draws.range(0.07, 0.14)].map(|v| v as f32);
    let wood = Shape::limb([[-4.0, 1.05 - tilt], [4.0, 1.05 + tilt]], radii);
    canvas.paint_soft(frame, &wood, 0.0, |_, distance| {
        mixed(bark, [0.0; 3], (1.0 + distance * 7.0).clamp(0.0, 1.0) * 0.4)
    });
    for x in [-0.12, 0.2] {
        let leg = Shape::limb([[x, 0.4], [x + 0.1, 1.0]], [0.045, 0.035]);
        canvas.paint(frame, &leg, [0.30, 0.24, 0.20]);
    }
}

fn body(canvas: &mut Canvas, frame: &Frame, head_at: [f32; 2], girth: f32, plumage: &Plumage) {
    let trunk = Shape::ellipse([0.0, 0.0], [1.0, girth]);
    let outline = trunk.melted(Shape::circle(head_at, HEAD), 0.5);
    canvas.paint_soft(frame, &outline, 0.0, |[_, y], distance| {
        let colour = mixed(
            plumage.back,
            plumage.belly,
            ((y + 0.25) * 1.4).clamp(0.0, 1.0),
        );
        rounded(colour, distance)
    });
}

/// Darker towards the outline, as round things are.
fn rounded(colour: Colour, distance: f32) -> Colour {
    mixed(
        colour,
        [0.0; 3],
        (1.0 + distance * 5.0).clamp(0.0, 1.0) * 0.28,
    )
}

fn tail(canvas: &mut Canvas, frame: &Frame, kind: Tail, plumage: &Plumage) {
    const ROUNDING: f32 = 0.03;
    let feathers = match kind {
        Tail::Fork => Shape::polygon(
            &[
                [0.2, -0.17],
                [-0.95, -0.34],
                [-0.52, 0.0],
                [-0.95, 0.34],
                [0.2, 0.17],
            ],
            ROUNDING,
        ),
        _ => Shape::polygon(
            &[[0.2, -0.17], [-0.82, -0.24], [-0.82, 0.24], [0.2, 0.17]],
            ROUNDING,
        ),
    };
    let across = |from: f32, to: f32| {
        Shape::polygon(&[[from, -0.5], [to, -0.5], [to, 0.5], [from, 0.5]], 0.0)
    };
    let mark = match kind {
        Tail::Plain | Tail::Fork => None,
        Tail::Tip => Some((across(-1.0, -0.6), WHITE)),
        Tail::Band => Some((across(-0.62, -0.36), BLACK)),
    };
    canvas.paint_soft(frame, &feathers, 0.0, |_, distance| {
        rounded(plumage.tail, distance)
    });
    if let Some((place, colour)) = mark {
        canvas.paint(frame, &feathers.within(place), colour);
    }
}

fn wing(canvas: &mut Canvas, frame: &Frame, kind: Wing, plumage: &Plumage) {
    let round = Shape::ellipse([0.1, 0.0], [0.55, 0.36]);
    let outline = round.melted(Shape::limb([[0.0, 0.0], [-0.85, 0.14]], [0.3, 0.05]), 0.2);
    canvas.paint_soft(frame, &outline, 0.0, |_, distance| {
        rounded(plumage.wing, distance)
    });
    let bar = |x: f32| Shape::limb([[x + 0.1, -0.3], [x - 0.12, 0.3]], [0.065, 0.065]);
    let marks = match kind {
        Wing::Plain => Vec::new(),
        Wing::Bar => vec![(bar(0.18), WHITE)],
        Wing::Bars => vec![(bar(0.28), WHITE), (bar(-0.06), WHITE)],
        Wing::Patch => vec![(Shape::ellipse([0.06, 0.02], [0.24, 0.17]), YELLOW)],
    };
    for (mark, colour) in marks {
        canvas.paint(frame, &mark.within(outline.clone()), colour);
    }
}

/// The radius of the head, whose frame begins in its middle.
const HEAD: f32 = 0.48;

fn crown(canvas: &mut Canvas, frame: &Frame, kind: Crown, plumage: &Plumage) {
    let head = Shape::circle([0.0, 0.0], HEAD);
    match kind {
        Crown::Plain => {}
        Crown::Cap => {
            let top = Shape::polygon(
                &[[-0.6, -0.6], [0.6, -0.6], [0.6, -0.22], [-0.6, -0.12]],
                0.0,
            );
            canvas.paint(frame, &head.within(top), BLACK);
        }
        Crown::Patch => {
            let patch = Shape::ellipse([0.06, -0.4], [0.34, 0.2]);
            canvas.paint(frame, &head.within(patch), RED);
        }
        Crown::Crest => {
            let feathers = [
                [0.14, -0.4],
                [-0.3, -0.92],
                [-0.28, -0.66],
                [-0.62, -0.66],
                [-0.4, -0.2],
            ];
            let colour = mixed(plumage.back, BLACK, 0.3);
            canvas.paint(frame, &Shape::polygon(&feathers, 0.03), colour);
        }
    }
}

fn beak(canvas: &mut Canvas, frame: &Frame, kind: Beak) {
    let (corners, colour): (&[[f32; 2]], _) = match kind {
        Beak::Cone => (&[[0.40, -0.13], [0.80, 0.06], [0.40, 0.18]], ORANGE),
        Beak::Needle => (&[[0.42, -0.05], [1.12, 0.10], [0.42, 0.11]], SLATE),
        Beak::Hook => (
            &[
                [0.38, -0.16],
                [0.70, -0.14],
                [0.86, 0.04],
                [0.82, 0.30],
                [0.66, 0.12],
                [0.40, 0.18],
            ],
            PALE,
        ),
        Beak::Wedge => (
            &[[0.36, -0.24], [0.66, -0.10], [0.70, 0.14], [0.36, 0.28]],
            RED,
        ),
    };
    let shape = Shape::polygon(corners, 0.02);
    canvas.paint_soft(frame, &shape, 0.0, |[_, y], _| {
        mixed(colour, [0.0; 3], if y > 0.05 { 0.18 } else { 0.0 })
    });
}

fn eye(canvas: &mut Canvas, frame: &Frame, kind: Eye) {
    const AT: [f32; 2] = [0.14, -0.04];
    match kind {
        Eye::Plain => {}
        Eye::Ring => canvas.paint(frame, &Shape::circle(AT, 0.21), WHITE),
        Eye::Iris => canvas.paint(frame, &Shape::circle(AT, 0.17), YELLOW),
        Eye::Stripe => {
            let stripe = Shape::limb([[0.44, 0.0], [-0.42, 0.02]], [0.09, 0.12]);
            let head = Shape::circle([0.0, 0.0], HEAD);
            canvas.paint(frame, &stripe.within(head), BLACK);
        }
    }
    canvas.paint(frame, &Shape::circle(AT, 0.11), BLACK);
    canvas.paint(
        frame,
        &Shape::circle([AT[0] + 0.035, AT[1] - 0.04], 0.035),
        WHITE,
    );
}
