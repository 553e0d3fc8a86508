//! Ctrl-C that lets work come to a good end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::fail::{Blame, Result};

/// Set by the first Ctrl-C; the second ends the process, with the code by which shells know an interrupt.
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    // In this order: the first one finds the flag unset.
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop)).bug()?;
    flag::register(SIGINT, Arc::clone(&stop)).bug()?;
    Ok(stop)
}
