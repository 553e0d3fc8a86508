//! The name that a user probably meant.

/// The known name nearest to a mistyped one, when one is near enough to suggest.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = name.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&typed, &known.to_lowercase());
    let (distance, near) = known
        .into_iter()
        .map(|k| (distance(k), k))
        .min_by_key(|(d, _)| *d)?;
    // A third of the letters may be wrong, and always one.
    let tolerance = (name.chars().count().max(near.chars().count()) / 3).max(1);
    (distance <= tolerance).then_some(near)
}

/// The known names nearest to one, the nearest first, near enough or not.
pub fn nearest_of<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<&'a str> {
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_by_key(|known| strsim::damerau_levenshtein(name, known));
    known.truncate(most);
    known
}

#[cfg(test)]
mod tests {
    use super::{nearest, nearest_of};

    #[test]
    fn suggests_only_what_is_near() {
        let known = ["resnet18", "resnet50", "efficientnet-b0", "conv2d"];
        let near = |name| nearest(name, known);
        assert_eq!(near("resnet5"), Some("resnet50"));
        assert_eq!(near("ResNet50"), Some("resnet50"));
        assert_eq!(near("effecientnet_b0"), Some("efficientnet-b0"));
        assert_eq!(near("yolo"), None);
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest_of("resnet1", known, 2), ["resnet18", "resnet50"]);
    }
}
