//! Options that verbs share, each defined once.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use percept_engine::{Empty, Integers, Memory, Mode, Options};
use percept_graph::Graph;
use percept_kernels::Cpu;
use percept_models::Model;
use percept_report::counted;

use crate::fail::{Blame, Fail, Result};
use crate::memory_report::MemoryReport;

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Print a JSON record instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress and no notes on stderr
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Threads to run on; `bench` takes a list [default: all cores]
    #[arg(long, short, global = true, value_name = "N", value_delimiter = ',', value_parser = parse_threads)]
    pub threads: Vec<usize>,
    /// Also write the JSON record into this folder
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Tell what the command and its parts did to memory: before, after, and at the peak
    #[arg(long, global = true)]
    pub memory_report: bool,
    /// What was watched so far.
    #[arg(skip)]
    pub watched: MemoryReport,
}

impl Common {
    /// The CPU that the verb runs on.
    pub fn cpu(&self) -> Result<Cpu> {
        match self.threads.as_slice() {
            [] => self.cpu_with(available_threads()),
            [threads] => self.cpu_with(*threads),
            _ => Err(Fail::usage(
                "--threads takes one number here; only `percept bench` takes a list",
            )),
        }
    }

    /// A CPU with this many threads.
    pub fn cpu_with(&self, threads: usize) -> Result<Cpu> {
        Cpu::new(threads).usage()
    }

    /// Does a part of the verb's work, and watches its memory where that was asked for.
    pub fn watch<R>(&self, what: &'static str, work: impl FnOnce() -> R) -> R {
        match self.memory_report {
            true => self.watched.watch(what, work),
            false => work(),
        }
    }

    /// Says something on stderr, unless told to be quiet.
    pub fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}

/// Cores that this process may use.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// How exactly to compute.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModeArg {
    /// The fastest kernels, Winograd included
    Fast,
    /// No Winograd: for references
    Exact,
}

/// What becomes of intermediate values.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MemoryArg {
    /// Free at the last use, reuse, write in place
    Frugal,
    /// Give every intermediate a buffer of its own
    Keep,
}

/// What becomes of the parts of a map that no LiDAR point reaches.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EmptyArg {
    /// Copy them from the answer to an empty map
    Skip,
    /// Compute them all the same: the same bits as skip, for comparison
    Compute,
    /// Do not look for them; differs from the others in Winograd's last bits
    Ignore,
}

/// How the engine runs a network.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// How exactly to compute
    #[arg(long, value_enum, default_value = "fast")]
    pub mode: ModeArg,
    /// What becomes of intermediate values
    #[arg(long, value_enum, default_value = "frugal")]
    pub memory: MemoryArg,
    /// What becomes of the parts of a map that no LiDAR point reaches
    #[arg(long, value_enum, default_value = "skip")]
    pub empty: EmptyArg,
    /// Layers in integers: the sums of direct convolution and residuals in floats, as other engines have them
    #[arg(long)]
    pub exact_integers: bool,
    /// Layers in integers: compute them on floats, on numbers moved to the grid
    #[arg(long, conflicts_with = "exact_integers")]
    pub simulate_integers: bool,
}

impl EngineArgs {
    /// The engine's form.
    pub fn options(&self) -> Options {
        Options {
            mode: match self.mode {
                ModeArg::Fast => Mode::Fast,
                ModeArg::Exact => Mode::Exact,
            },
            memory: match self.memory {
                MemoryArg::Frugal => Memory::Frugal,
                MemoryArg::Keep => Memory::Keep,
            },
            empty: match self.empty {
                EmptyArg::Skip => Empty::Skip,
                EmptyArg::Compute => Empty::Compute,
                EmptyArg::Ignore => Empty::Ignore,
            },
            integers: match (self.exact_integers, self.simulate_integers) {
                (false, false) => Integers::Kernels,
                (true, _) => Integers::Exact,
                (false, true) => Integers::Simulate,
            },
        }
    }

    /// The form of a network that these options run.
    pub fn form<'a>(&self, model: &'a Model) -> &'a Graph {
        model.form(self.options().memory == Memory::Frugal)
    }

    /// How exactly it computes: `fast`.
    pub fn describe_mode(&self) -> &'static str {
        match self.mode {
            ModeArg::Fast => "fast",
            ModeArg::Exact => "exact",
        }
    }

    /// For records: `fast, frugal`.
    pub fn describe(&self) -> String {
        format!("{:?}, {:?}", self.mode, self.memory).to_lowercase()
    }
}

/// A size of a map: `224` or `256x704` (height x width).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub [usize; 2]);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let side = |side: &str| match side.parse::<usize>() {
            Ok(side) if (1..=32_768).contains(&side) => Ok(side),
            _ => Err(
                "expected a side of 1 to 32768, such as 224, or HEIGHTxWIDTH, such as 256x704"
                    .to_owned(),
            ),
        };
        match text.split_once(['x', 'X']) {
            Some((height, width)) => Ok(Self([side(height)?, side(width)?])),
            None => side(text).map(|side| Self([side, side])),
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.0[0], self.0[1])
    }
}

/// The size of a part, or of every part that has one: `256x704` or `camera=256x704`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSize {
    pub part: Option<String>,
    pub size: Size,
}

impl std::str::FromStr for PartSize {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (part, size) = match text.split_once('=') {
            Some((part, size)) => (Some(part.to_owned()), size),
            None => (None, text),
        };
        Ok(Self {
            part,
            size: size.parse()?,
        })
    }
}

/// A number of threads.
fn parse_threads(text: &str) -> std::result::Result<usize, String> {
    let cores = available_threads();
    // A few more threads than cores is a fair question to ask of a machine; hundreds are a typing error.
    let most = 8 * cores;
    match text.parse() {
        Ok(threads) if (1..=most).contains(&threads) => Ok(threads),
        _ => Err(format!(
            "expected 1 to {most} threads: this machine has {}",
            counted(cores, "core")
        )),
    }
}

/// How many answers to show, at least 1.
pub fn parse_top(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(top) if top > 0 => Ok(top),
        _ => Err("expected a whole number, at least 1".to_owned()),
    }
}

/// A file to draw into.
pub fn parse_picture(text: &str) -> std::result::Result<PathBuf, String> {
    ending_in(text, &["png", "svg"])
}

/// A file to write weights into.
pub fn parse_weights(text: &str) -> std::result::Result<PathBuf, String> {
    ending_in(text, &["safetensors"])
}

/// A name that says in which of these forms the file is written; devices and pipes have none.
fn ending_in(text: &str, endings: &[&str]) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().and_then(|ending| ending.to_str());
    let is_device = std::fs::metadata(&path).is_ok_and(|file| !file.is_file() && !file.is_dir());
    match ending.is_some_and(|ending| endings.contains(&ending)) || is_device {
        true => Ok(path),
        false => Err(format!(
            "expected a name that ends in .{}",
            endings.join(" or .")
        )),
    }
}

/// Points of a cloud, 1 to 100 million.
pub fn parse_points(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(points) if (1..=100_000_000).contains(&points) => Ok(points),
        _ => Err("expected 1 to 100000000 points".to_owned()),
    }
}

/// A batch size, 1 to 4096.
pub fn parse_batch(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(batch) if (1..=4096).contains(&batch) => Ok(batch),
        _ => Err("expected a batch of 1 to 4096".to_owned()),
    }
}
