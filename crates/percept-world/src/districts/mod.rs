//! What stands along the streets and in the lots: six kinds of district, each with a character of its own.

mod lots;
mod sides;

pub(crate) use lots::{Lot, fill_lot};
pub(crate) use sides::furnish_side;

use percept_data::points::ObjectClass;

use super::body::Body;
use super::ground::Surface;
use super::motion::Motion;
use super::objects::{Rider, model};
use super::scenery::Border;
use super::solid::Part;
use percept_data::random::Draws;

/// The character of a district.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Style {
    Downtown,
    Residential,
    Industrial,
    Park,
    BuildingSite,
    Shopping,
}

impl Style {
    pub(crate) const ALL: [Self; 6] = [
        Self::Downtown,
        Self::Residential,
        Self::Industrial,
        Self::Park,
        Self::BuildingSite,
        Self::Shopping,
    ];

    pub(crate) fn lot_surface(self) -> Surface {
        match self {
            Self::Residential | Self::Park => Surface::Lawn,
            Self::Shopping => Surface::Parking,
            Self::Downtown | Self::Industrial | Self::BuildingSite => Surface::Yard,
        }
    }

    fn habits(self) -> Habits {
        let habits = |parked, people, trees, works, border| Habits {
            parked,
            people,
            trees,
            works,
            border,
        };
        match self {
            Self::Downtown => habits(0.6, 0.85, 0.25, 0.15, None),
            Self::Residential => habits(0.5, 0.35, 0.5, 0.08, Some(Border::Pickets)),
            Self::Industrial => habits(0.35, 0.2, 0.1, 0.25, Some(Border::Mesh)),
            Self::Park => habits(0.3, 0.6, 0.7, 0.05, Some(Border::Hedge)),
            Self::BuildingSite => habits(0.2, 0.35, 0.1, 0.75, Some(Border::Mesh)),
            Self::Shopping => habits(0.35, 0.7, 0.3, 0.1, Some(Border::Wall)),
        }
    }
}

/// How likely things are along a kerb.
struct Habits {
    parked: f64,
    people: f64,
    trees: f64,
    works: f64,
    border: Option<Border>,
}

/// Receives what the builders place.
pub(crate) trait Yard {
    /// Scenery with its frame's origin on the ground at `position`.
    fn stand(&mut self, parts: Vec<Part>, position: [f64; 2], yaw_rad: f64);
    /// An object.
    fn add(&mut self, body: Body);
}

fn park(
    yard: &mut dyn Yard,
    class: ObjectClass,
    position: [f64; 2],
    yaw_rad: f64,
    draws: &mut Draws,
) {
    let motion = Motion::Still { position, yaw_rad };
    yard.add(Body::new(
        model(class, Rider::Absent, draws),
        motion,
        Rider::Absent,
    ));
}

fn wander(
    yard: &mut dyn Yard,
    class: ObjectClass,
    from: [f64; 2],
    to: [f64; 2],
    draws: &mut Draws,
) {
    let speed_m_s = match class {
        ObjectClass::Bicycle => draws.range(2.5, 5.5),
        _ => draws.range(0.7, 1.8),
    };
    let motion = Motion::Walk {
        from,
        to,
        speed_m_s,
        offset_m: draws.range(0.0, 60.0),
    };
    yard.add(Body::new(
        model(class, Rider::Present, draws),
        motion,
        Rider::Present,
    ));
}
