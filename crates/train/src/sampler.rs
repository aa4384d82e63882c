//! Which sample is where: a pure function of seed, epoch and global position, so that any number of ranks sees the same
//! global batches. Knows no files and keeps no state.

/// Order of samples and their division over ranks and micro-steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    /// Seed of the order.
    pub seed: u64,
    /// Samples of the data set; at least 1.
    pub samples: u64,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// Samples per step over all ranks and micro-steps.
    pub batch: u64,
    /// Ranks.
    pub ranks: u64,
    /// Micro-steps per step.
    pub accumulation: u64,
    /// A step and the global position at its start: where a run began or went on.
    pub origin: (u64, u64),
}

impl Sampler {
    /// Samples of one rank in one micro-step.
    pub fn micro_batch(&self) -> u64 {
        self.batch / (self.ranks * self.accumulation)
    }

    /// Global position of the first sample of `step`, counted in samples over all ranks.
    pub fn position(&self, step: u64) -> u64 {
        self.origin.1 + (step - self.origin.0) * self.batch
    }

    /// Global position of the first sample of `rank` in micro-step `micro` of `step`: the step's own + rank x B/R +
    /// micro x b.
    pub fn first_position(&self, step: u64, rank: u64, micro: u64) -> u64 {
        self.position(step) + rank * (self.batch / self.ranks) + micro * self.micro_batch()
    }

    /// The sample at a global position: position modulo samples, permuted by the epoch's order.
    pub fn sample(&self, position: u64) -> u64 {
        let (epoch, index) = (position / self.samples, position % self.samples);
        if self.shuffle { permute(index, self.samples, mix(self.seed ^ mix(epoch))) } else { index }
    }
}

/// Element `index` of a permutation of `0..count` chosen by `key`.
///
/// A balanced Feistel network of four rounds over the next power of four, walked until it lands below `count`; the
/// number of walks is below 4 on average because the domain is at most 4 x `count`.
fn permute(index: u64, count: u64, key: u64) -> u64 {
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let mut value = index;
    loop {
        let (mut left, mut right) = (value >> half, value & mask);
        for round in 0..4_u64 {
            let next = left ^ (mix(right ^ mix(key.wrapping_add(round))) & mask);
            (left, right) = (right, next);
        }
        value = (left << half) | right;
        if value < count {
            return value;
        }
    }
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
