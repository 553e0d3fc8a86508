//! Graph + weights -> Program: passes, buffer plan, execution, probes
