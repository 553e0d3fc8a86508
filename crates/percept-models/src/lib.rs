//! The networks of percept, one folder each
