//! Shapes written as SVG text.

use std::fmt::Write;

use crate::colours::Colour;
use crate::font::Weight;
use crate::picture::{Anchor, Area, Fill, Picture, Shape, Stroke, TextStyle};

/// A picture as an SVG file. Texts stay texts; viewers without Roboto take a typeface that is about as wide.
pub(crate) fn write(picture: &Picture) -> String {
    let (width, height) = (number(picture.width), number(picture.height));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"Roboto, Arial, Helvetica, sans-serif\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
        hex(picture.background)
    );
    for shape in &picture.shapes {
        write_shape(&mut svg, shape);
    }
    svg.push_str("</svg>\n");
    svg
}

fn write_shape(svg: &mut String, shape: &Shape) {
    match shape {
        Shape::Path {
            points,
            closed,
            fill,
            stroke,
        } => {
            let places: Vec<String> = points
                .iter()
                .filter(|[x, y]| !x.is_nan() && !y.is_nan())
                .map(|[x, y]| format!("{},{}", number(*x), number(*y)))
                .collect();
            let element = if *closed { "polygon" } else { "polyline" };
            let look = look(*fill, *stroke);
            put(
                svg,
                format_args!("<{element} points=\"{}\"{look}/>", places.join(" ")),
            );
        }
        Shape::Circle {
            centre: [x, y],
            radius,
            fill,
            stroke,
        } => {
            let (x, y, radius) = (number(*x), number(*y), number(*radius));
            let look = look(*fill, *stroke);
            put(
                svg,
                format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"{look}/>"),
            );
        }
        Shape::Text { at, text, style } => write_text(svg, *at, text, style),
        Shape::Image { area, pixels } => {
            let (place, data) = (place(area), base64(&pixels.to_png()));
            put(
                svg,
                format_args!(
                    "<image{place} preserveAspectRatio=\"none\" href=\"data:image/png;base64,{data}\"/>"
                ),
            );
        }
        Shape::Group { area, shapes } => {
            put(svg, format_args!("<svg{}>", place(area)));
            for shape in shapes {
                write_shape(svg, shape);
            }
            put(svg, format_args!("</svg>"));
        }
    }
}

fn write_text(svg: &mut String, [x, y]: [f64; 2], text: &str, style: &TextStyle) {
    let (x, y) = (number(x), number(y));
    let weight = match style.weight {
        Weight::Regular => "",
        Weight::Medium => " font-weight=\"500\"",
    };
    let anchor = match style.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let turn = if style.upright {
        format!(" transform=\"rotate(-90 {x} {y})\"")
    } else {
        String::new()
    };
    let (size, colour, text) = (number(style.size), hex(style.colour), escape(text));
    put(
        svg,
        format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\"{weight}{anchor}{turn}>{text}</text>"
        ),
    );
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(svg, "{element}").expect("a string takes all text");
}

fn place(area: &Area) -> String {
    let [left, top, width, height] = [area.left, area.top, area.width, area.height].map(number);
    format!(" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"")
}

fn look(fill: Option<Fill>, stroke: Option<Stroke>) -> String {
    let opacity = |name: &str, opacity: f64| match opacity {
        1.0 => String::new(),
        _ => format!(" {name}-opacity=\"{}\"", number(opacity)),
    };
    let mut look = match fill {
        Some(fill) => format!(
            " fill=\"{}\"{}",
            hex(fill.colour),
            opacity("fill", fill.opacity)
        ),
        None => " fill=\"none\"".to_owned(),
    };
    if let Some(stroke) = stroke {
        look += &format!(
            " stroke=\"{}\" stroke-width=\"{}\"{} stroke-linejoin=\"round\"",
            hex(stroke.colour),
            number(stroke.width),
            opacity("stroke", stroke.opacity)
        );
        if let Some([drawn, left_out]) = stroke.dash {
            look += &format!(
                " stroke-dasharray=\"{} {}\"",
                number(drawn),
                number(left_out)
            );
        }
    }
    look
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// At most two decimals, and none that are zero; nothing is farther away than a viewer can count.
fn number(value: f64) -> String {
    let text = format!("{:.2}", value.clamp(-1e6, 1e6));
    let short = text.trim_end_matches('0').trim_end_matches('.');
    match short {
        "-0" => "0".to_owned(),
        _ => short.to_owned(),
    }
}

/// Text as XML takes it; characters that XML cannot hold are left out.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {}
            _ if letter.is_control() => {}
            _ => escaped.push(letter),
        }
    }
    escaped
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, place| {
            bits << 8 | u32::from(three.get(place).copied().unwrap_or(0))
        });
        for digit in 0..4 {
            if digit <= three.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pixels::Pixels;

    #[test]
    fn every_shape_is_written() {
        let mut part = Picture::new(40.0, 30.0, [255; 3]);
        part.circle([20.0, 15.0], 5.25, Stroke::new([1, 2, 3], 1.5).faded(0.5));
        let mut picture = Picture::new(100.0, 80.0, [255; 3]);
        picture.polygon(
            vec![[0.0, 0.0], [10.0, f64::NAN], [10.0, 5.123]],
            [255, 0, 0],
        );
        picture.line(
            vec![[0.0, 1e300], [-0.001, 2.0]],
            Stroke {
                dash: Some([4.0, 2.5]),
                ..Stroke::new([0, 128, 0], 2.0)
            },
        );
        let style = TextStyle::new(12.0, [0; 3])
            .medium()
            .anchored(Anchor::Middle);
        picture.text([50.0, 40.0], style, "a < b & \"c\"\u{1}");
        let upright = TextStyle {
            upright: true,
            ..TextStyle::new(10.0, [0; 3]).anchored(Anchor::End)
        };
        picture.text([5.0, 40.0], upright, "up");
        picture.place([50.0, 45.0], part);
        insta::assert_snapshot!(picture.to_svg());
    }

    #[test]
    fn images_are_embedded() {
        let mut picture = Picture::new(8.0, 8.0, [0; 3]);
        let area = Area {
            left: 1.0,
            top: 2.0,
            width: 4.0,
            height: 3.0,
        };
        picture.image(area, Pixels::filled(2, 2, [1, 2, 3]));
        let svg = picture.to_svg();
        assert!(
            svg.contains("<image x=\"1\" y=\"2\" width=\"4\" height=\"3\""),
            "{svg}"
        );
        assert!(svg.contains("base64,iVBORw0KGgo"), "{svg}");
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
