//! Colours that tell things apart, also for people who see two primary colours only.

/// Red, green, blue.
pub type Colour = [u8; 3];

/// What has no class.
pub(crate) const UNKNOWN: Colour = [128, 132, 142];

/// Colours by Okabe and Ito, which stay apart for all kinds of colour vision, brightened for a dark ground.
pub(crate) const ON_DARK: [Colour; 8] = [
    [86, 180, 233],
    [230, 159, 0],
    [20, 190, 140],
    [240, 228, 66],
    [240, 110, 50],
    [214, 140, 190],
    [90, 140, 255],
    [205, 205, 215],
];

/// The same idea, dark enough for lines on white.
pub(crate) const ON_LIGHT: [Colour; 8] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [155, 40, 123],
    [240, 160, 0],
    [86, 180, 233],
    [90, 90, 96],
    [140, 90, 45],
];

/// The colour of each class by its name, for a dark ground: the same thing has the same colour in every dataset, and
/// classes that this crate has never heard of get colours by their place.
///
/// ```
/// use percept_picture::class_colours;
///
/// let of_boxes = class_colours(&["car", "traffic_cone"]);
/// let of_points = class_colours(&["unlabeled", "car", "bicycle", "my class"]);
/// assert_eq!(of_boxes[0], of_points[1]);
/// ```
pub fn class_colours(names: &[&str]) -> Vec<Colour> {
    names
        .iter()
        .enumerate()
        .map(|(place, name)| street_colour(name).unwrap_or_else(|| by_place(place)))
        .collect()
}

/// The eight colours, then lighter ones, then darker ones.
fn by_place(place: usize) -> Colour {
    let colour = ON_DARK[place % ON_DARK.len()];
    match place / ON_DARK.len() % 3 {
        0 => colour,
        1 => mix(colour, [255; 3], 0.45),
        _ => mix(colour, [0; 3], 0.4),
    }
}

/// Things of a street: vehicles in blues, two wheels in greens, people in reds and pinks, what warns in yellows, and
/// the ground muted so that what stands on it shows.
fn street_colour(name: &str) -> Option<Colour> {
    let name = name.to_ascii_lowercase().replace(['_', '-'], " ");
    Some(match name.as_str() {
        "unlabeled" | "unlabelled" | "ignored" | "noise" => UNKNOWN,
        "car" => [100, 205, 238],
        "truck" => [73, 98, 255],
        "bus" => [160, 140, 255],
        "trailer" => [90, 150, 200],
        "other vehicle" => [160, 140, 255],
        "construction vehicle" => [231, 127, 0],
        "motorcycle" => [1, 190, 130],
        "bicycle" => [140, 255, 217],
        "pedestrian" | "person" => [245, 78, 77],
        "bicyclist" => [255, 170, 130],
        "motorcyclist" => [255, 130, 185],
        "traffic cone" | "traffic sign" => [255, 237, 83],
        "barrier" => [205, 60, 130],
        "road" => [92, 82, 118],
        "parking" => [122, 98, 134],
        "sidewalk" => [140, 110, 146],
        "other ground" => [112, 92, 86],
        "building" => [206, 176, 124],
        "fence" => [196, 124, 76],
        "vegetation" => [64, 140, 84],
        "trunk" => [146, 104, 72],
        "terrain" => [112, 128, 76],
        "pole" => [246, 238, 190],
        _ => return None,
    })
}

pub(crate) fn mix(from: Colour, to: Colour, share: f64) -> Colour {
    std::array::from_fn(|i| {
        let (from, to) = (f64::from(from[i]), f64::from(to[i]));
        (from + (to - from) * share.clamp(0.0, 1.0)).round() as u8
    })
}

/// Dark violet through green to yellow, for a share of 0..=1; it also grows lighter all the way.
pub(crate) fn ramp(share: f64) -> Colour {
    const STOPS: [Colour; 5] = [
        [72, 46, 124],
        [52, 92, 146],
        [38, 152, 148],
        [110, 206, 106],
        [250, 231, 90],
    ];
    let share = if share.is_nan() { 0.0 } else { share };
    let at = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let stop = (at as usize).min(STOPS.len() - 2);
    mix(STOPS[stop], STOPS[stop + 1], at - stop as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linear light of an sRGB channel.
    fn linear(channel: u8) -> f64 {
        let share = f64::from(channel) / 255.0;
        if share <= 0.04045 {
            share / 12.92
        } else {
            libm::pow((share + 0.055) / 1.055, 2.4)
        }
    }

    /// CIE L*a*b* of linear sRGB under D65.
    fn lab([r, g, b]: [f64; 3]) -> [f64; 3] {
        let f = |t: f64| {
            if t > 0.008856 {
                libm::cbrt(t)
            } else {
                7.787 * t + 16.0 / 116.0
            }
        };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
        let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Linear sRGB as people see it who lack the cones for long, and for middle wavelengths (Viénot, Brettel, Mollon 1999).
    const DICHROMATS: [[[f64; 3]; 3]; 2] = [
        [
            [0.11238, 0.88762, 0.0],
            [0.11238, 0.88762, 0.0],
            [0.00401, -0.00401, 1.0],
        ],
        [
            [0.29275, 0.70725, 0.0],
            [0.29275, 0.70725, 0.0],
            [-0.02234, 0.02234, 1.0],
        ],
    ];

    /// The smallest distance of two colours, as anybody sees them.
    fn nearest(colours: &[Colour]) -> f64 {
        let mut nearest = f64::INFINITY;
        for eye in DICHROMATS {
            let seen: Vec<[f64; 3]> = colours
                .iter()
                .map(|colour| {
                    let light = colour.map(linear);
                    lab(eye.map(|row| row.iter().zip(light).map(|(a, b)| a * b).sum()))
                })
                .collect();
            for (place, a) in seen.iter().enumerate() {
                for b in &seen[..place] {
                    let distance: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
                    nearest = nearest.min(distance.sqrt());
                }
            }
        }
        nearest
    }

    #[test]
    fn colours_stay_apart_for_the_colour_blind() {
        let boxes = class_colours(&[
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
        ]);
        for (name, colours, least) in [("on dark", &ON_DARK[..], 12.0), ("boxes", &boxes, 15.0)] {
            let distance = nearest(colours);
            assert!(distance > least, "{name}: {distance}");
        }
    }

    #[test]
    fn unknown_classes_differ_from_each_other() {
        let names: Vec<String> = (0..24).map(|place| format!("thing {place}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut colours = class_colours(&names);
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), 24);
    }

    #[test]
    fn the_ramp_grows_lighter_and_takes_any_number() {
        let light = |share| lab(ramp(share).map(linear))[0];
        for step in 0..100 {
            assert!(light(f64::from(step + 1) / 100.0) > light(f64::from(step) / 100.0));
        }
        assert_eq!(ramp(-3.0), ramp(0.0));
        assert_eq!(ramp(f64::INFINITY), ramp(1.0));
        assert_eq!(ramp(f64::NAN), ramp(0.0));
    }
}
