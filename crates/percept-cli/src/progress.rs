//! Progress of long work, on stderr, when somebody is there to see it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::options::Common;

/// A bar with rate and time left; invisible when stderr is no terminal or `--quiet` is given.
pub fn bar(common: &Common, length: usize, what: &str) -> ProgressBar {
    if common.quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len}, {per_sec}, {eta} left")
        .expect("the template is valid")
        .progress_chars("=> ");
    let bar = ProgressBar::new(length as u64)
        .with_style(style)
        .with_message(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
