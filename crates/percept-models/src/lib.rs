//! The networks of percept, one file each, as builders that read like their papers and whose names are
//! those of the public state dicts. [`zoo`] finds and configures them by name.
//!
//! ```
//! use percept_models::{Settings, zoo};
//!
//! let settings = Settings::parse(["registers=4"])?;
//! let model = zoo::build("dinov2-vitb14", &settings)?.sized(None, [98, 126])?;
//! assert_eq!(model.graph.parameter_count(), 86_583_552);
//! let sizes = model.graph.bind(&model.input_shapes(2))?;
//! assert!(model.graph.total_macs(&sizes)? > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod answer;
mod card;
pub mod centerpoint;
pub mod dinov2;
pub mod efficientnet;
pub mod imagenet;
pub mod intake;
pub mod layers;
pub mod lcpr;
pub mod lesson;
mod model;
mod nearest;
pub mod omama;
pub mod paco;
pub mod preprocess;
pub mod randlanet;
pub mod resnet;
mod settings;
pub mod study;
pub mod zoo;

pub use card::{Card, CardError};
pub use lesson::{Course, Lesson, LessonError, LessonOptions};
pub use model::{Model, ModelError, OtherLayout};
pub use nearest::{nearest, nearest_of};
pub use settings::{AxisGroups, ChosenSettings, Setting, SettingKind, Settings, SettingsError};

use percept_graph::{Builder, Dim, ValueId};

/// The input `image` [N, 3, H, W] whose sides are multiples of `multiple_of`.
fn image_input(b: &mut Builder, multiple_of: usize) -> ValueId {
    let [n, h, w] = ["N", "H", "W"].map(Dim::symbol);
    let image = b.input("image", [n, 3.into(), h, w]);
    for (axis, side) in [(2, "height"), (3, "width")] {
        b.require("image", axis, side, multiple_of, multiple_of);
    }
    image
}
