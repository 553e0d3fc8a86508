//! `percept doctor`: what this machine is and what percept makes of it.

use percept_kernels::{Isa, machine};
use percept_report::{Table, bytes};
use serde_json::json;

use crate::fail::Result;
use crate::options::{Common, available_threads};
use crate::outcome::Outcome;

/// Show the CPU, the instruction set in use, measured peak and bandwidth, and memory
#[derive(clap::Args)]
#[command(after_help = "Examples:
  percept doctor
  PERCEPT_ISA=portable percept doctor --threads 1")]
pub struct Args {}

pub fn run(_: &Args, common: &Common) -> Result<Outcome> {
    let cpu = common.cpu()?;
    let one = common.cpu_with(1)?;
    let (peak, peak_of_one) = (machine::peak_gflops(&cpu), machine::peak_gflops(&one));
    let bandwidth = machine::read_bandwidth_gb_per_s(&cpu);
    let name = machine::cpu_name().unwrap_or_else(|| "unknown".to_owned());
    let memory = machine::machine_memory_bytes();
    let features = cpu_features();
    let usable: Vec<String> = Isa::usable().iter().map(Isa::to_string).collect();
    let mut table = Table::new(&["<what", "<found"]);
    table.row(["CPU".to_owned(), name.clone()]);
    table.row(["cores".to_owned(), available_threads().to_string()]);
    table.row(["features".to_owned(), features.join(" ")]);
    table.row(["instruction sets usable".to_owned(), usable.join(", ")]);
    table.row(["instruction set in use".to_owned(), cpu.isa().to_string()]);
    table.row(["threads".to_owned(), cpu.threads().to_string()]);
    table.row([
        "measured peak".to_owned(),
        format!("{peak:.1} GFLOP/s ({peak_of_one:.1} on one thread)"),
    ]);
    table.row([
        "measured read bandwidth".to_owned(),
        format!("{bandwidth:.1} GB/s"),
    ]);
    let (total, available) = memory.unzip();
    let shown = |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), bytes);
    table.row([
        "memory".to_owned(),
        format!("{}, {} available", shown(total), shown(available)),
    ]);
    let slow = cpu.isa() == Isa::Portable;
    let verdict = if slow {
        "the portable kernels run here: right, but several times slower than AVX2"
    } else {
        "everything percept has runs fast here"
    };
    let record = json!({
        "cpu": name, "cores": available_threads(), "features": features, "isa": cpu.isa().to_string(),
        "isas_usable": usable, "threads": cpu.threads(), "peak_gflops_per_s": peak,
        "peak_gflops_per_s_one_thread": peak_of_one, "read_bandwidth_gb_per_s": bandwidth,
        "memory_bytes": total, "available_memory_bytes": available, "verdict": verdict,
    });
    Ok(Outcome::new(
        format!("{}\n{verdict}\n", table.render()),
        record,
    ))
}

/// Vector features of this CPU that matter to percept, now or later.
fn cpu_features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let found = [
            ("sse4.2", is_x86_feature_detected!("sse4.2")),
            ("avx", is_x86_feature_detected!("avx")),
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("f16c", is_x86_feature_detected!("f16c")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
            ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ];
        found
            .into_iter()
            .filter(|(_, found)| *found)
            .map(|(name, _)| name)
            .collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}
