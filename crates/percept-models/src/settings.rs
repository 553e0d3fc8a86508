//! What can be set about a network, and what a user set: `--set key=value`.

use std::collections::BTreeMap;
use std::fmt;

use percept_graph::Choice;
use thiserror::Error;

use crate::nearest::nearest;

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum SettingKind {
    /// A whole number.
    Count {
        default: usize,
        at_least: usize,
        at_most: usize,
    },
    /// A number, which may have a fraction.
    Number {
        default: f64,
        at_least: f64,
        at_most: f64,
    },
    /// `true` or `false`.
    Flag { default: bool },
    /// One of some words; the first is the default.
    Choice { options: &'static [&'static str] },
    /// Levels of elastic axes, `2,2/3,1`: groups of axes, and a level from 1 to `most` of each; by default all have `most`.
    Levels { groups: AxisGroups, most: u8 },
}

/// Names of elastic axes, in the groups in which their levels are written.
pub type AxisGroups = &'static [&'static [&'static str]];

/// The most axes that one setting chooses the levels of.
const MOST_AXES: usize = 16;

/// A setting that a network declares.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Setting {
    pub name: &'static str,
    pub kind: SettingKind,
    pub help: &'static str,
    /// Whether the same weights serve any value of it, so that each run chooses anew.
    pub is_of_run: bool,
}

/// More than any network has, and few enough that products of four sizes fit in 63 bits.
const LARGEST_COUNT: usize = 1 << 15;

impl Setting {
    /// A whole number of at least 1.
    pub const fn count(name: &'static str, default: usize, help: &'static str) -> Self {
        Self::count_within(name, default, [1, LARGEST_COUNT], help)
    }

    /// A whole number between two bounds, both included.
    pub const fn count_within(
        name: &'static str,
        default: usize,
        [at_least, at_most]: [usize; 2],
        help: &'static str,
    ) -> Self {
        let kind = SettingKind::Count {
            default,
            at_least,
            at_most,
        };
        Self {
            name,
            kind,
            help,
            is_of_run: false,
        }
    }

    /// A number between two bounds, both included.
    pub const fn number(
        name: &'static str,
        default: f64,
        [at_least, at_most]: [f64; 2],
        help: &'static str,
    ) -> Self {
        let kind = SettingKind::Number {
            default,
            at_least,
            at_most,
        };
        Self {
            name,
            kind,
            help,
            is_of_run: false,
        }
    }

    /// A switch.
    pub const fn flag(name: &'static str, default: bool, help: &'static str) -> Self {
        let kind = SettingKind::Flag { default };
        Self {
            name,
            kind,
            help,
            is_of_run: false,
        }
    }

    /// One of some words; the first is the default.
    pub const fn choice(
        name: &'static str,
        options: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        let kind = SettingKind::Choice { options };
        Self {
            name,
            kind,
            help,
            is_of_run: false,
        }
    }

    /// The same setting, which may differ from what the card of the weights says.
    pub const fn of_run(self) -> Self {
        Self {
            is_of_run: true,
            ..self
        }
    }

    /// Levels of elastic axes, 1 to `most`; the whole network by default.
    pub const fn levels(
        name: &'static str,
        groups: AxisGroups,
        most: u8,
        help: &'static str,
    ) -> Self {
        let kind = SettingKind::Levels { groups, most };
        Self {
            name,
            kind,
            help,
            is_of_run: false,
        }
    }

    /// Whether it chooses a part of one set of weights, so that weights of the whole serve every value.
    pub fn is_elastic(&self) -> bool {
        matches!(self.kind, SettingKind::Levels { .. })
    }

    /// The levels that a choice gives the axes of an elastic setting, as a user would write them.
    pub fn levels_of(&self, choice: &Choice) -> Option<String> {
        let SettingKind::Levels { groups, most } = self.kind else {
            return None;
        };
        let mut levels = [most; MOST_AXES];
        let axes = groups.iter().copied().flatten();
        for (axis, level) in axes.zip(&mut levels) {
            if let Some(chosen) = choice.level(axis) {
                *level = u8::try_from(chosen).unwrap_or(u8::MAX);
            }
        }
        Some(Value::Levels(groups, levels).to_string())
    }

    /// The default, as a user would write it.
    pub fn default_text(&self) -> String {
        self.default_value().to_string()
    }

    fn default_value(&self) -> Value {
        match self.kind {
            SettingKind::Count { default, .. } => Value::Count(default),
            SettingKind::Number { default, .. } => Value::Number(default),
            SettingKind::Flag { default } => Value::Flag(default),
            SettingKind::Choice { options } => Value::Choice(options[0]),
            SettingKind::Levels { groups, most } => Value::Levels(groups, [most; MOST_AXES]),
        }
    }

    fn parse(&self, text: &str) -> Result<Value, SettingsError> {
        let parsed = match self.kind {
            SettingKind::Count {
                at_least, at_most, ..
            } => text
                .parse()
                .ok()
                .filter(|count| (at_least..=at_most).contains(count))
                .map(Value::Count),
            SettingKind::Number {
                at_least, at_most, ..
            } => text
                .parse()
                .ok()
                .filter(|number| (at_least..=at_most).contains(number))
                .map(Value::Number),
            SettingKind::Flag { .. } => text.parse().ok().map(Value::Flag),
            SettingKind::Choice { options } => options
                .iter()
                .find(|option| **option == text)
                .map(|option| Value::Choice(option)),
            SettingKind::Levels { groups, most } => parse_levels(text, groups, most),
        };
        parsed.ok_or_else(|| SettingsError::BadValue {
            name: self.name,
            value: text.to_owned(),
            expected: self.expected(),
        })
    }

    fn expected(&self) -> String {
        match self.kind {
            SettingKind::Count {
                at_least, at_most, ..
            } => format!("a whole number from {at_least} to {at_most}"),
            SettingKind::Number {
                at_least, at_most, ..
            } => format!("a number from {at_least} to {at_most}"),
            SettingKind::Flag { .. } => "true or false".to_owned(),
            SettingKind::Choice { options } => options.join(" or "),
            SettingKind::Levels { groups, most } => {
                let all = Value::Levels(groups, [most; MOST_AXES]);
                format!("levels from 1 to {most} like {all}")
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Count(usize),
    Number(f64),
    Flag(bool),
    Choice(&'static str),
    /// The groups of axes, and the level of each axis.
    Levels(AxisGroups, [u8; MOST_AXES]),
}

fn parse_levels(text: &str, groups: AxisGroups, most: u8) -> Option<Value> {
    let mut levels = [most; MOST_AXES];
    let mut place = levels.iter_mut();
    let mut texts = text.split('/');
    for group in groups {
        let mut cells = texts.next()?.split(',');
        for _ in *group {
            let level = cells.next()?.trim().parse().ok()?;
            *place.next()? = Some(level).filter(|level| (1..=most).contains(level))?;
        }
        if cells.next().is_some() {
            return None;
        }
    }
    texts
        .next()
        .is_none()
        .then_some(Value::Levels(groups, levels))
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => count.fmt(f),
            Value::Number(number) => number.fmt(f),
            Value::Flag(flag) => flag.fmt(f),
            Value::Choice(choice) => choice.fmt(f),
            Value::Levels(groups, levels) => {
                let mut levels = levels.iter();
                let texts = groups.iter().map(|group| {
                    let levels = levels.by_ref().take(group.len());
                    levels.map(u8::to_string).collect::<Vec<_>>().join(",")
                });
                f.write_str(&texts.collect::<Vec<_>>().join("/"))
            }
        }
    }
}

/// What is wrong with `--set` options.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SettingsError {
    #[error("`{text}` is no setting; write key=value")]
    NotAPair { text: String },
    #[error("{model} has no setting `{name}`{hint}")]
    Unknown {
        model: String,
        name: String,
        hint: String,
    },
    #[error("setting `{name}` is `{value}`, expected {expected}")]
    BadValue {
        name: &'static str,
        value: String,
        expected: String,
    },
}

/// Settings as a user gave them, not yet checked against a network. The last of equal keys wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pairs: BTreeMap<String, String>,
}

impl Settings {
    /// Nothing set: all defaults.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads `key=value` texts.
    pub fn parse<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Result<Self, SettingsError> {
        let mut settings = Self::none();
        for text in texts {
            let text = text.as_ref();
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| SettingsError::NotAPair {
                    text: text.to_owned(),
                })?;
            settings = settings.with(key.trim(), value.trim());
        }
        Ok(settings)
    }

    /// The same with one more setting.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.pairs.insert(key.to_owned(), value.to_string());
        self
    }

    /// What was given for a setting.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.get(key).map(String::as_str)
    }

    /// The value of every declared setting: what the user gave, or the default.
    pub fn resolve(
        &self,
        model: &str,
        declared: &'static [Setting],
    ) -> Result<ChosenSettings, SettingsError> {
        let defaults = declared.iter().map(|s| (s.name, s.default_value()));
        let mut values: BTreeMap<&'static str, Value> = defaults.collect();
        for (key, text) in &self.pairs {
            let setting = declared.iter().find(|setting| setting.name == key);
            let setting = setting.ok_or_else(|| unknown(model, key, declared))?;
            values.insert(setting.name, setting.parse(text)?);
        }
        Ok(ChosenSettings { values })
    }
}

fn unknown(model: &str, name: &str, declared: &[Setting]) -> SettingsError {
    let known: Vec<&str> = declared.iter().map(|setting| setting.name).collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.is_empty() => "; it has none".to_owned(),
        None => format!("; it has {}", known.join(", ")),
    };
    SettingsError::Unknown {
        model: model.to_owned(),
        name: name.to_owned(),
        hint,
    }
}

/// Checked settings of one network. Asking for a setting that the network does not declare is a bug and panics.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenSettings {
    values: BTreeMap<&'static str, Value>,
}

impl ChosenSettings {
    /// A whole number.
    pub fn count(&self, name: &str) -> usize {
        match self.values.get(name) {
            Some(Value::Count(count)) => *count,
            other => panic!("setting `{name}` is declared as {other:?}, not as a count"),
        }
    }

    /// A number.
    pub fn number(&self, name: &str) -> f64 {
        match self.values.get(name) {
            Some(Value::Number(number)) => *number,
            other => panic!("setting `{name}` is declared as {other:?}, not as a number"),
        }
    }

    /// A switch.
    pub fn flag(&self, name: &str) -> bool {
        match self.values.get(name) {
            Some(Value::Flag(flag)) => *flag,
            other => panic!("setting `{name}` is declared as {other:?}, not as a flag"),
        }
    }

    /// A word.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.values.get(name) {
            Some(Value::Choice(choice)) => choice,
            other => panic!("setting `{name}` is declared as {other:?}, not as a choice"),
        }
    }

    /// The levels of all elastic axes that are not whole in `declared`.
    pub fn levels(&self, declared: &[Setting]) -> Choice {
        let mut choice = Choice::whole();
        for setting in declared {
            if let (SettingKind::Levels { groups, most }, Some(Value::Levels(_, levels))) =
                (setting.kind, self.values.get(setting.name))
            {
                let axes = groups.iter().copied().flatten();
                for (axis, &level) in axes.zip(levels).filter(|(_, level)| **level != most) {
                    choice = choice.with(*axis, usize::from(level));
                }
            }
        }
        choice
    }

    /// The same with every elastic axis whole.
    pub(crate) fn whole(&self, declared: &[Setting]) -> Self {
        let mut whole = self.clone();
        for setting in declared.iter().filter(|setting| setting.is_elastic()) {
            whole.values.insert(setting.name, setting.default_value());
        }
        whole
    }

    /// Every setting as (name, value), for reports.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.values
            .iter()
            .map(|(name, value)| (*name, value.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static DECLARED: [Setting; 5] = [
        Setting::levels("granularity", &[&["a", "b"], &["c"]], 4, "levels"),
        Setting::count_within("registers", 0, [0, 64], "register tokens"),
        Setting::flag("bias", true, "adds a bias"),
        Setting::choice("layout", &["torchvision", "timm"], "whose names"),
        Setting::number("voxel", 0.075, [0.01, 10.0], "metres"),
    ];

    fn resolve(texts: &[&str]) -> Result<ChosenSettings, String> {
        Settings::parse(texts)
            .and_then(|settings| settings.resolve("net", &DECLARED))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn levels_name_the_axes_that_are_not_whole() {
        let chosen = resolve(&["granularity=2,4/1"]).unwrap();
        let expected = Choice::whole().with("a", 2).with("c", 1);
        assert_eq!(chosen.levels(&DECLARED), expected);
        assert_eq!(chosen.whole(&DECLARED), resolve(&[]).unwrap());
        let text = chosen.iter().find(|(name, _)| *name == "granularity");
        assert_eq!(text.unwrap().1, "2,4/1");
    }

    #[test]
    fn given_values_replace_defaults() {
        let defaults = resolve(&[]).unwrap();
        assert_eq!(
            (defaults.count("registers"), defaults.flag("bias")),
            (0, true)
        );
        assert_eq!(defaults.choice("layout"), "torchvision");
        let given = resolve(&["registers=2", "layout=timm", "bias=false", "registers = 4"]);
        let given = given.unwrap();
        assert_eq!(defaults.number("voxel"), 0.075);
        assert_eq!(resolve(&["voxel=0.1"]).unwrap().number("voxel"), 0.1);
        assert_eq!((given.count("registers"), given.flag("bias")), (4, false));
        assert_eq!(given.choice("layout"), "timm");
    }

    #[test]
    fn errors_say_what_to_write() {
        let rows = [
            ("registers", "`registers` is no setting; write key=value"),
            (
                "register=4",
                "net has no setting `register`; did you mean `registers`?",
            ),
            (
                "colour=4",
                "net has no setting `colour`; it has granularity, registers, bias, layout, voxel",
            ),
            (
                "registers=many",
                "setting `registers` is `many`, expected a whole number from 0 to 64",
            ),
            (
                "registers=-1",
                "setting `registers` is `-1`, expected a whole number from 0 to 64",
            ),
            (
                "registers=65",
                "setting `registers` is `65`, expected a whole number from 0 to 64",
            ),
            (
                "voxel=nan",
                "setting `voxel` is `nan`, expected a number from 0.01 to 10",
            ),
            (
                "granularity=2,5/1",
                "setting `granularity` is `2,5/1`, expected levels from 1 to 4 like 4,4/4",
            ),
            (
                "granularity=2,2,1",
                "setting `granularity` is `2,2,1`, expected levels from 1 to 4 like 4,4/4",
            ),
            (
                "bias=yes",
                "setting `bias` is `yes`, expected true or false",
            ),
            (
                "layout=keras",
                "setting `layout` is `keras`, expected torchvision or timm",
            ),
        ];
        for (text, expected) in rows {
            assert_eq!(resolve(&[text]).unwrap_err(), expected);
        }
    }
}
