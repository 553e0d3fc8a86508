//! Errors as a user meets them: one line that names what and where, a hint when there is one, and an exit code.

use std::fmt::Display;

use percept_report::bytes;

/// Exit codes that scripts can rely on. 0 is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The reader of standard output has all that it wants (`percept ... | head`).
    ReaderLeft = 0,
    /// A check ran and failed.
    CheckFailed = 1,
    /// The command line asks for something that does not exist or cannot be.
    Usage = 2,
    /// A file is missing, corrupt or not supported.
    BadInput = 3,
    /// A bug of percept.
    Bug = 4,
    /// Ctrl-C, by the code that shells know it by; what was computed is kept.
    Interrupted = 130,
}

/// Why a verb stopped.
#[derive(Debug)]
pub struct Fail {
    pub exit: Exit,
    pub error: anyhow::Error,
    pub hint: Option<String>,
}

/// What a verb's parts return.
pub type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    /// A mistake in the command line.
    pub fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, anyhow::anyhow!("{message}"))
    }

    /// A file that cannot be used.
    pub fn bad_input(message: impl Display) -> Self {
        Self::new(Exit::BadInput, anyhow::anyhow!("{message}"))
    }

    fn new(exit: Exit, error: anyhow::Error) -> Self {
        Self {
            exit,
            error,
            hint: None,
        }
    }

    /// What went wrong and, behind it, those of its causes that it does not tell itself.
    pub fn message(&self) -> String {
        let mut message = String::new();
        for cause in self.error.chain().map(ToString::to_string) {
            if message.is_empty() {
                message = cause;
            } else if !message.contains(&cause) {
                message = format!("{message}: {cause}");
            }
        }
        message
    }

    /// Adds what the user can do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Says whose mistake an error is.
pub trait Blame<T> {
    /// The command line's.
    fn usage(self) -> Result<T>;
    /// A file's.
    fn bad_input(self) -> Result<T>;
    /// Ours.
    fn bug(self) -> Result<T>;
}

impl<T, E: Into<anyhow::Error>> Blame<T> for std::result::Result<T, E> {
    fn usage(self) -> Result<T> {
        self.map_err(|error| Fail::new(Exit::Usage, error.into()))
    }
    fn bad_input(self) -> Result<T> {
        self.map_err(|error| Fail::new(Exit::BadInput, error.into()))
    }
    fn bug(self) -> Result<T> {
        self.map_err(|error| Fail::new(Exit::Bug, error.into()))
    }
}

impl From<percept_data::FileError> for Fail {
    fn from(error: percept_data::FileError) -> Self {
        let hint = error.hint().map(str::to_owned);
        Self {
            hint,
            ..Fail::new(Exit::BadInput, error.into())
        }
    }
}

impl From<percept_data::SampleError> for Fail {
    fn from(error: percept_data::SampleError) -> Self {
        use percept_data::SampleError;
        let hint = match &error {
            SampleError::File(error) => error.hint(),
            SampleError::Points(error) => error.hint(),
            _ => None,
        };
        let hint = hint.map(str::to_owned);
        Self {
            hint,
            ..Fail::new(Exit::BadInput, error.into())
        }
    }
}

impl From<percept_samples::OpenError> for Fail {
    fn from(error: percept_samples::OpenError) -> Self {
        let exit = match error.is_usage() {
            true => Exit::Usage,
            false => Exit::BadInput,
        };
        Fail::new(exit, error.into())
    }
}

impl From<percept_places::PlaceError> for Fail {
    fn from(error: percept_places::PlaceError) -> Self {
        use percept_places::PlaceError;
        let exit = match &error {
            PlaceError::OtherMode { .. } => Exit::Usage,
            _ => Exit::BadInput,
        };
        let hint = match &error {
            PlaceError::OtherMode { .. } => Some(
                "--model and --without say what describes places; another index takes others"
                    .to_owned(),
            ),
            _ => None,
        };
        Fail {
            hint,
            ..Fail::new(exit, error.into())
        }
    }
}

impl From<percept_models::CardError> for Fail {
    fn from(error: percept_models::CardError) -> Self {
        use percept_models::CardError;
        let exit = match &error {
            CardError::File(_) | CardError::Damaged { .. } => Exit::BadInput,
            CardError::OtherNetwork { .. } | CardError::Contradiction { .. } => Exit::Usage,
        };
        Fail::new(exit, error.into())
    }
}

impl From<percept_data::ModelWeightsError> for Fail {
    fn from(error: percept_data::ModelWeightsError) -> Self {
        match error {
            percept_data::ModelWeightsError::File(error) => error.into(),
            error => Fail::new(Exit::BadInput, error.into()),
        }
    }
}

impl From<percept_models::ModelError> for Fail {
    fn from(error: percept_models::ModelError) -> Self {
        Fail::new(Exit::Usage, error.into())
    }
}

impl From<percept_graph::GraphError> for Fail {
    fn from(error: percept_graph::GraphError) -> Self {
        Fail::new(Exit::Usage, error.into())
    }
}

impl From<percept_engine::EngineError> for Fail {
    fn from(error: percept_engine::EngineError) -> Self {
        use percept_engine::EngineError;
        let exit = match &error {
            EngineError::Weight(_) => Exit::BadInput,
            EngineError::Plan { .. } => Exit::Bug,
            _ => Exit::Usage,
        };
        if let EngineError::TooLarge {
            needed_bytes,
            limit_bytes,
        } = error
        {
            return Fail::usage(format!(
                "an input of this size needs {} for one run; the machine has {} available",
                bytes(needed_bytes),
                bytes(limit_bytes)
            ));
        }
        Fail::new(exit, error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_told_already_is_not_told_again() {
        let message = |outer: &'static str| {
            let error = anyhow::anyhow!("no such file").context(outer);
            Fail::new(Exit::BadInput, error).message()
        };
        assert_eq!(message("scan.bin"), "scan.bin: no such file");
        assert_eq!(message("scan.bin: no such file"), "scan.bin: no such file");
    }
}
