//! Settings that make no sense.

use std::fmt::Debug;

use thiserror::Error;

/// A setting whose value makes no sense.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{setting} is {value}: expected {expected}")]
pub struct SettingError {
    /// The setting, as users name it.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// What would do.
    pub expected: String,
}

impl SettingError {
    /// Complains unless the value is fine.
    ///
    /// ```
    /// use percept_data::SettingError;
    /// let error = SettingError::unless(false, "flip", 1.5, "0 to 1").unwrap_err();
    /// assert_eq!(error.to_string(), "flip is 1.5: expected 0 to 1");
    /// ```
    pub fn unless(
        is_fine: bool,
        setting: &'static str,
        value: impl Debug,
        expected: impl Into<String>,
    ) -> Result<(), Self> {
        if is_fine {
            return Ok(());
        }
        Err(Self {
            setting,
            value: format!("{value:?}"),
            expected: expected.into(),
        })
    }
}
