//! The run record and its faces: tables, JSON, traces
