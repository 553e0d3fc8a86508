//! Panel tiles by AMX: registers of 16 rows of 64 bytes, multiplied whole by `tdpbssd`.
//!
//! A register of weights has 16 rows of 16 quads. One of activations has 16 quads of 16 pixels, which is how maps lie, and one of sums
//! 16 rows of 16 pixels. Two of each operand and four of sums are all eight that there are.

use std::arch::asm;
use std::sync::OnceLock;

use super::{GroupSums, Packing, Panel, PanelTiles, SUM_ROW, TILE_ROWS, Width};

/// Rows of a register, and quads of each.
const SIDE: usize = 16;
/// Bytes of a row.
const ROW_BYTES: usize = 4 * SIDE;
/// Groups of rows of weights in a register.
const GROUPS: usize = SIDE / TILE_ROWS;

pub(super) const PANEL_TILES: PanelTiles = PanelTiles {
    width: Width::Byte,
    packing: Packing {
        height: SIDE,
        deep: SIDE,
    },
    lifts: false,
    pixels: 2 * SIDE,
    tiles: [(low, GROUPS), (high, 2 * GROUPS)],
    spread: None,
};

/// Whether this CPU has such registers and the system lets this process use them.
pub(crate) fn is_supported() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *IS_SUPPORTED.get_or_init(|| has_instructions() && ask_permission())
}

/// Whether the CPU multiplies tiles of bytes.
fn has_instructions() -> bool {
    const TILES: u32 = 1 << 24;
    const BYTES: u32 = 1 << 25;
    let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
    features & TILES != 0 && features & BYTES != 0
}

/// Registers of a kilobyte make a thread's saved state large, so the system wants to be asked before the first use.
#[cfg(target_os = "linux")]
fn ask_permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call reads two numbers and changes what the process may do, nothing else.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask_permission() -> bool {
    false
}

/// What registers look like, as `ldtilecfg` reads it.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// The tile registers of this thread, whole, for as long as this lives.
pub(in crate::int8) struct TileRegisters {
    /// They belong to this thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl TileRegisters {
    /// Gives the registers their shapes, which takes 200 cycles: once for many tiles.
    pub(in crate::int8) fn take() -> TileRegisters {
        assert!(is_supported(), "tile registers on a CPU without them");
        let mut shapes = Shapes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        shapes.row_bytes[..8].fill(ROW_BYTES as u16);
        shapes.rows[..8].fill(SIDE as u8);
        // SAFETY: this CPU has the instruction, which reads 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &shapes, options(nostack, readonly)) };
        TileRegisters {
            _thread: std::marker::PhantomData,
        }
    }
}

impl Drop for TileRegisters {
    fn drop(&mut self) {
        // SAFETY: only a CPU with the instruction has made such a value.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Up to 16 rows.
unsafe fn low(depth: usize, a: *const u8, b: Panel, _: *const i32, sums: *mut GroupSums) {
    // SAFETY: passed on from the caller.
    unsafe {
        match b.pixels {
            ..=SIDE => one_by_one(depth, a, b, sums),
            _ => one_by_two(depth, a, b, sums),
        }
    }
}

/// Up to 32 rows.
unsafe fn high(depth: usize, a: *const u8, b: Panel, _: *const i32, sums: *mut GroupSums) {
    // SAFETY: passed on from the caller.
    unsafe {
        match b.pixels {
            ..=SIDE => two_by_one(depth, a, b, sums),
            _ => two_by_two(depth, a, b, sums),
        }
    }
}

/// A product of registers: the sums that it zeroes, what it multiplies at each depth, and where the sums go.
macro_rules! define_tile {
    ($(#[$doc:meta])* $name:ident, zero: [$($zero:literal),*], step: [$($step:literal),*], store: [$($store:literal),*]) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As of [`PanelTile`](super::PanelTile), while this thread has its [`TileRegisters`].
        unsafe fn $name(depth: usize, a: *const u8, b: Panel, sums: *mut GroupSums) {
            // SAFETY: registers read `depth` quads of 16 or 32 rows, which were filled up, and of whole runs of pixels, and write the
            // sums of 4 or 8 groups.
            unsafe {
                asm!(
                    $($zero,)*
                    "test {steps}, {steps}",
                    "jz 3f",
                    "2:",
                    $($step,)*
                    "add {a}, 1024",
                    "add {a_below}, 1024",
                    "add {b}, {b_step}",
                    "dec {steps}",
                    "jnz 2b",
                    "3:",
                    $($store,)*
                    steps = inout(reg) depth / SIDE => _,
                    a = inout(reg) a => _,
                    a_below = inout(reg) a.wrapping_add(depth * ROW_BYTES) => _,
                    b = inout(reg) b.quads => _,
                    b_step = in(reg) SIDE * 4 * b.stride,
                    b_row = in(reg) 4 * b.stride,
                    a_row = in(reg) ROW_BYTES,
                    sums = in(reg) sums,
                    sums_below = in(reg) sums.wrapping_add(GROUPS),
                    sums_row = in(reg) 4 * SUM_ROW,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                );
            }
        }
    };
}

define_tile! {
    /// 16 rows by 16 pixels.
    one_by_one,
    zero: ["tilezero tmm0"],
    step: [
        "tileloadd tmm4, [{a} + {a_row}]",
        "tileloadd tmm6, [{b} + {b_row}]",
        "tdpbssd tmm0, tmm4, tmm6"
    ],
    store: ["tilestored [{sums} + {sums_row}], tmm0", "# {sums_below}"]
}

define_tile! {
    /// 16 rows by 32 pixels.
    one_by_two,
    zero: ["tilezero tmm0", "tilezero tmm1"],
    step: [
        "tileloadd tmm4, [{a} + {a_row}]",
        "tileloadd tmm6, [{b} + {b_row}]",
        "tdpbssd tmm0, tmm4, tmm6",
        "tileloadd tmm7, [{b} + {b_row} + 64]",
        "tdpbssd tmm1, tmm4, tmm7"
    ],
    store: [
        "tilestored [{sums} + {sums_row}], tmm0",
        "tilestored [{sums} + {sums_row} + 64], tmm1",
        "# {sums_below}"
    ]
}

define_tile! {
    /// 32 rows by 16 pixels.
    two_by_one,
    zero: ["tilezero tmm0", "tilezero tmm2"],
    step: [
        "tileloadd tmm6, [{b} + {b_row}]",
        "tileloadd tmm4, [{a} + {a_row}]",
        "tdpbssd tmm0, tmm4, tmm6",
        "tileloadd tmm5, [{a_below} + {a_row}]",
        "tdpbssd tmm2, tmm5, tmm6"
    ],
    store: [
        "tilestored [{sums} + {sums_row}], tmm0",
        "tilestored [{sums_below} + {sums_row}], tmm2"
    ]
}

define_tile! {
    /// 32 rows by 32 pixels.
    two_by_two,
    zero: ["tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3"],
    step: [
        "tileloadd tmm4, [{a} + {a_row}]",
        "tileloadd tmm6, [{b} + {b_row}]",
        "tdpbssd tmm0, tmm4, tmm6",
        "tileloadd tmm5, [{a_below} + {a_row}]",
        "tdpbssd tmm2, tmm5, tmm6",
        "tileloadd tmm7, [{b} + {b_row} + 64]",
        "tdpbssd tmm1, tmm4, tmm7",
        "tdpbssd tmm3, tmm5, tmm7"
    ],
    store: [
        "tilestored [{sums} + {sums_row}], tmm0",
        "tilestored [{sums} + {sums_row} + 64], tmm1",
        "tilestored [{sums_below} + {sums_row}], tmm2",
        "tilestored [{sums_below} + {sums_row} + 64], tmm3"
    ]
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::isa::Isa;

    /// Whether this thread's registers have shapes.
    fn are_taken() -> bool {
        let mut shapes = [0xffu8; size_of::<Shapes>()];
        // SAFETY: called where the CPU has the instruction, which writes 64 bytes.
        unsafe { asm!("sttilecfg [{}]", in(reg) &mut shapes, options(nostack)) };
        shapes.iter().any(|&byte| byte != 0)
    }

    #[test]
    fn registers_are_given_back_by_a_panic_too() {
        if !Isa::Amx.is_supported() {
            return;
        }
        let panicked = catch_unwind(|| {
            let _registers = TileRegisters::take();
            assert!(are_taken());
            panic!("while the registers are taken");
        });
        assert!(panicked.is_err());
        assert!(!are_taken());
    }

    #[test]
    fn a_cpu_without_the_instructions_gets_no_permission() {
        assert!(has_instructions() || !ask_permission());
    }
}
