//! Offsets for buffers whose lives are known. Knows lives as clocks; not what buffers are for.

use super::clocks::Clocks;
use crate::Arena;

/// A buffer that wants an offset.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub function: usize,
    pub arena: Arena,
    pub bytes: usize,
    /// Per lane, how many of its steps are done when the last step that touches the buffer is done.
    end: Vec<u32>,
    /// Per lane, how many of its steps are done at least whenever a step that touches the buffer starts.
    start: Vec<u32>,
}

impl Demand {
    /// The demand of a buffer that these steps touch; `yielded` buffers are kept to the end of the call.
    pub fn new(
        function: usize,
        arena: Arena,
        bytes: usize,
        steps: impl Iterator<Item = usize>,
        yielded: bool,
        clocks: &Clocks,
    ) -> Demand {
        let mut start = vec![u32::MAX; clocks.width()];
        let mut end = vec![if yielded { u32::MAX } else { 0 }; clocks.width()];
        for step in steps {
            for (own, at) in start.iter_mut().zip(clocks.start(step)) {
                *own = (*own).min(*at);
            }
            let lane = clocks.lane(step);
            end[lane] = end[lane].max(clocks.position(step) + 1);
        }
        Demand { function, arena, bytes, end, start }
    }

    /// Whether both may be live at once.
    fn meets(&self, other: &Demand) -> bool {
        let after = |first: &Demand, second: &Demand| {
            first.end.iter().zip(&second.start).all(|(end, start)| end <= start)
        };
        self.function == other.function && !after(self, other) && !after(other, self)
    }
}

/// The next multiple of `alignment`.
pub(super) fn align(offset: usize, alignment: usize) -> usize {
    offset.next_multiple_of(alignment.max(1))
}

/// Largest first, each into the tightest gap between the buffers that may live at the same time.
pub(super) fn offsets(demands: &[&Demand], alignment: usize) -> Vec<usize> {
    let mut offsets = vec![0; demands.len()];
    let mut placed: Vec<usize> = vec![];
    for index in largest_first(demands) {
        let own = demands[index];
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(|&&other| own.meets(demands[other]) && demands[other].bytes > 0)
            .map(|&other| (offsets[other], offsets[other] + demands[other].bytes))
            .collect();
        taken.sort_unstable();
        let mut best: Option<(usize, usize)> = None;
        let mut end = 0;
        for (start, stop) in taken {
            let offset = align(end, alignment);
            if start >= offset + own.bytes {
                let gap = start - end;
                if best.is_none_or(|(smallest, _)| gap < smallest) {
                    best = Some((gap, offset));
                }
            }
            end = end.max(stop);
        }
        offsets[index] = best.map_or_else(|| align(end, alignment), |(_, offset)| offset);
        placed.push(index);
    }
    offsets
}

/// Largest first, each into the smallest block whose buffers never live at the same time.
pub(super) fn blocks(demands: &[&Demand], alignment: usize) -> Vec<usize> {
    let mut blocks: Vec<(usize, Vec<usize>)> = vec![];
    let mut block_of = vec![0; demands.len()];
    for index in largest_first(demands) {
        let own = demands[index];
        let fits = |members: &[usize]| members.iter().all(|&other| !own.meets(demands[other]));
        // Blocks were made in falling size: the last that fits is the smallest.
        let found = blocks.iter().rposition(|(_, members)| fits(members));
        let block = found.unwrap_or_else(|| {
            blocks.push((own.bytes, vec![]));
            blocks.len() - 1
        });
        blocks[block].1.push(index);
        block_of[index] = block;
    }
    let mut starts = vec![];
    let mut end = 0;
    for (bytes, _) in &blocks {
        starts.push(end);
        // An empty block still is one of its own.
        end = align(end + (*bytes).max(1), alignment);
    }
    block_of.into_iter().map(|block| starts[block]).collect()
}

fn largest_first(demands: &[&Demand]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(demands[index].bytes));
    order
}
