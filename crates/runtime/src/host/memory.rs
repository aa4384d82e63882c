//! The memory of a plan on the host: one allocation per block of buffers, each behind a lock, so that lanes share it
//! without unsafe code.
//!
//! Knows buffers and bytes; not what lies in them.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytemuck::Zeroable;
use plan::{Arena, BufferId, Plan};

/// One cache line: the alignment of every block.
#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The bytes of one block.
pub struct Storage {
    lines: Vec<Line>,
    bytes: usize,
}

impl Storage {
    fn new(bytes: usize) -> Storage {
        Storage { lines: vec![Line::zeroed(); bytes.div_ceil(size_of::<Line>())], bytes }
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    /// All bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
    }
}

/// All blocks of a plan.
pub struct Memory {
    blocks: Vec<RwLock<Storage>>,
    /// Block and first byte of each buffer.
    places: Vec<(usize, usize)>,
    allocated: usize,
}

impl Memory {
    /// Allocates what the plan says. Buffers whose bytes overlap share a block.
    pub fn new(plan: &Plan) -> Memory {
        let mut memory =
            Memory { blocks: vec![], places: vec![(0, 0); plan.buffers.len()], allocated: 0 };
        for arena in [Arena::State, Arena::Transient, Arena::Communication] {
            let mut order: Vec<usize> =
                (0..plan.buffers.len()).filter(|&i| plan.buffers[i].arena == arena).collect();
            order.sort_by_key(|&i| plan.buffers[i].offset);
            // Starts of blocks within the arena; a block reaches to the next one's start.
            let mut starts: Vec<usize> = vec![];
            let mut end = 0;
            for &i in &order {
                let buffer = &plan.buffers[i];
                if starts.is_empty() {
                    starts.push(0);
                } else if buffer.offset >= end {
                    starts.push(buffer.offset);
                }
                end = end.max(buffer.offset + buffer.bytes);
                let start = starts[starts.len() - 1];
                memory.places[i] = (memory.blocks.len() + starts.len() - 1, buffer.offset - start);
            }
            for (index, &start) in starts.iter().enumerate() {
                let bytes = starts.get(index + 1).copied().unwrap_or(end) - start;
                memory.blocks.push(RwLock::new(Storage::new(bytes)));
                memory.allocated += bytes;
            }
        }
        memory
    }

    /// Block and first byte of a buffer.
    pub fn place(&self, buffer: BufferId) -> (usize, usize) {
        self.places[buffer.0 as usize]
    }

    /// Bytes of all blocks.
    pub fn allocated(&self) -> usize {
        self.allocated
    }

    /// Bytes of one block.
    pub fn block_bytes(&self, block: usize) -> usize {
        self.read(block).bytes
    }

    /// A block to read.
    pub fn read(&self, block: usize) -> RwLockReadGuard<'_, Storage> {
        // A lane that panicked has failed its call; the bytes are still bytes.
        self.blocks[block].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block to write.
    pub fn write(&self, block: usize) -> RwLockWriteGuard<'_, Storage> {
        self.blocks[block].write().unwrap_or_else(PoisonError::into_inner)
    }
}
