//! Recorded runs as a trace that Chrome (chrome://tracing) and Perfetto open.

use percept_engine::{Recording, StepInfo};
use serde_json::{Value, json};

/// The trace events of all runs, one after the other on one track.
pub fn chrome_trace(infos: &[StepInfo], recording: &Recording, process: &str) -> Value {
    let mut events = vec![
        json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}}),
        json!({"ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": {"name": "layers"}}),
    ];
    let mut run_start_us = 0.0;
    for (index, run) in recording.runs.iter().enumerate() {
        let total_us = run.total.as_secs_f64() * 1e6;
        events.push(json!({
            "ph": "X", "pid": 1, "tid": 1, "cat": "run", "name": format!("run {}", index + 1),
            "ts": run_start_us, "dur": total_us,
        }));
        for time in &run.calls {
            let info = &infos[time.step];
            let absorbed: Vec<&str> = info
                .absorbed
                .iter()
                .map(|(name, _)| name.as_str())
                .collect();
            let start_us = run_start_us + time.start.as_secs_f64() * 1e6;
            events.push(json!({
                "ph": "X", "pid": 1, "tid": 1, "cat": info.kind, "name": info.name,
                "ts": start_us, "dur": time.elapsed.as_secs_f64() * 1e6,
                "args": {
                    "op": info.kind, "algorithm": info.algorithm, "fused": absorbed, "macs": info.macs,
                    "live_bytes": info.live_bytes, "allocated_bytes": info.allocated_bytes,
                },
            }));
            events.push(json!({
                "ph": "C", "pid": 1, "name": "live bytes", "ts": start_us, "args": {"live": info.live_bytes},
            }));
        }
        run_start_us += total_us;
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}
