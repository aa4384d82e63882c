//! Who waits for whom, turned round: for each operation those that cannot start before it has ended.
//!
//! Knows operations' positions; nothing of times.

use super::rank::Op;

/// The followers of all operations of a rank, one list behind the other: 4 bytes for each operation and 4 for each
/// follower.
#[derive(Debug, Default)]
pub struct Followers {
    /// Where the list of each operation ends; it begins where that of the operation before ends.
    ends: Vec<u32>,
    all: Vec<u32>,
}

impl Followers {
    /// From what each operation follows. Each list is in launch order.
    pub fn of(ops: &[Op]) -> Followers {
        // Counted into `ends`, summed to where each list begins; filling a list moves that to where it ends.
        let mut ends = vec![0_u32; ops.len()];
        for before in ops.iter().flat_map(Op::before) {
            ends[before] += 1;
        }
        let mut total = 0;
        for end in &mut ends {
            let count = std::mem::replace(end, total);
            total += count;
        }
        let mut all = vec![0; total as usize];
        for (at, op) in (0..).zip(ops) {
            for before in op.before() {
                all[ends[before] as usize] = at;
                ends[before] += 1;
            }
        }
        Followers { ends, all }
    }

    /// Operations that cannot start before this one has ended: the next on its stream, and those that wait for it.
    pub fn after(&self, position: usize) -> impl Iterator<Item = usize> + '_ {
        let first = position.checked_sub(1).map_or(0, |before| self.ends[before]);
        let list = &self.all[first as usize..self.ends[position] as usize];
        list.iter().map(|&follower| follower as usize)
    }
}
