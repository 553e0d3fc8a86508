use crate::points::ObjectClass;

use super::canvas::Colour;

/// The colour of each learned SemanticKITTI class on a dark ground: vehicles in blues and violets, people in reds
/// and ambers, the ground muted so that what stands on it shows.
pub(super) const LEARNED: [Colour; 20] = [
    [96, 100, 110],
    [92, 160, 255],
    [120, 225, 235],
    [70, 205, 190],
    [140, 120, 255],
    [200, 130, 255],
    [255, 92, 92],
    [255, 140, 90],
    [255, 110, 160],
    [92, 82, 110],
    [122, 98, 128],
    [138, 108, 134],
    [112, 92, 82],
    [214, 184, 118],
    [230, 140, 66],
    [78, 168, 86],
    [150, 112, 78],
    [104, 138, 74],
    [245, 232, 160],
    [255, 214, 60],
];

/// The colour of a box.
pub(super) fn of_object(class: ObjectClass) -> Colour {
    match class {
        ObjectClass::Car => [92, 160, 255],
        ObjectClass::Truck => [140, 120, 255],
        ObjectClass::ConstructionVehicle => [230, 170, 60],
        ObjectClass::Bus => [200, 130, 255],
        ObjectClass::Trailer => [170, 150, 220],
        ObjectClass::Barrier => [230, 140, 66],
        ObjectClass::Motorcycle => [70, 205, 190],
        ObjectClass::Bicycle => [120, 225, 235],
        ObjectClass::Pedestrian => [255, 92, 92],
        ObjectClass::TrafficCone => [255, 214, 60],
    }
}

/// Dark blue through green to yellow, for a share of 0..=1.
pub(super) fn ramp(share: f64) -> Colour {
    const STOPS: [[f64; 3]; 5] = [
        [250.0, 231.0, 90.0],
        [110.0, 206.0, 106.0],
        [38.0, 152.0, 148.0],
        [52.0, 92.0, 146.0],
        [62.0, 36.0, 106.0],
    ];
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let stop = (at as usize).min(STOPS.len() - 2);
    let rest = at - stop as f64;
    std::array::from_fn(|i| {
        (STOPS[stop][i] + (STOPS[stop + 1][i] - STOPS[stop][i]) * rest).round() as u8
    })
}
