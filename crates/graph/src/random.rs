//! Random bits that are a pure function of where they are used, so that one rank equals two and a recomputation redraws the same.
//!
//! A key is made of (seed, step, site, global sample); bits are drawn from it by element. Every device computes this very
//! function. Knows no operators, no ranks and no batches: the caller turns them into the global sample.

/// The random stream of one sample at one site of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    first: u32,
    second: u32,
}

/// The stream of (`seed`, `step`, `site`, `sample`): `site` is fixed at tracing, `sample` counts over the global batch.
pub fn sample_key(seed: u64, step: u64, site: u64, sample: u64) -> Key {
    let mut state = mix64(seed ^ 0x9e37_79b9_7f4a_7c15);
    for part in [step, site, sample] {
        state = mix64(state.rotate_left(23) ^ part.wrapping_add(0x9e37_79b9_7f4a_7c15));
    }
    Key { first: state as u32, second: (state >> 32) as u32 }
}

impl Key {
    /// 32 random bits of `element`, its row-major index within the sample.
    #[inline(always)]
    pub fn bits(self, element: u32) -> u32 {
        // Two rounds of a multiply-xorshift permutation of 32 bits with the halves of the key between them: only
        // 32-bit operations, which every vector unit has.
        let mut x = element.wrapping_mul(0x9e37_79b9) ^ self.first;
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x = (x ^ (x >> 16)).wrapping_add(self.second);
        x = (x ^ (x >> 16)).wrapping_mul(0x21f0_aaad);
        x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
        x ^ (x >> 15)
    }

    /// A uniform value in the open interval (0, 1) for `element`: the middle of one of 2^32 equal parts.
    pub fn uniform(self, element: u32) -> f64 {
        (f64::from(self.bits(element)) + 0.5) / 4_294_967_296.0
    }

    /// A standard normal value for `element`, by the Box-Muller transform of two independent uniform values.
    /// `libm` gives the same bits on every platform.
    pub fn normal(self, element: u32) -> f64 {
        let angle =
            Key { first: !self.first, second: self.second.rotate_left(16) }.uniform(element);
        let radius = libm::sqrt(-2.0 * libm::log(self.uniform(element)));
        radius * libm::cos(std::f64::consts::TAU * angle)
    }

    /// Whether `element` survives a drop of the probability behind `threshold` (see [`keep_threshold`]).
    #[inline(always)]
    pub fn keeps(self, element: u32, threshold: u32) -> bool {
        self.bits(element) >= threshold
    }
}

/// The number of a named site: the 64-bit FNV-1a hash of its name.
pub fn site(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The number below which 32 random bits mean "dropped", for a drop probability in [0, 1).
pub fn keep_threshold(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * 4_294_967_296.0).round().min(4_294_967_295.0) as u32
}

/// The finalizer of the SplitMix64 generator: a bijection of 64 bits in which every bit depends on every bit.
fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_dropped_elements_is_the_probability_for_every_part_of_the_key() {
        let n = 100_000u32;
        for (seed, step, site, sample) in
            [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]
        {
            let key = sample_key(seed, step, site, sample);
            for probability in [0.0, 0.1, 0.5, 0.9] {
                let threshold = keep_threshold(probability);
                let dropped = (0..n).filter(|&i| !key.keeps(i, threshold)).count() as f64;
                let spread = (probability * (1.0 - probability) / n as f64).sqrt();
                let off = (dropped / n as f64 - probability).abs();
                assert!(off <= 5.0 * spread, "{seed} {step} {site} {sample} {probability}: {off}");
            }
        }
    }

    #[test]
    fn streams_of_neighbouring_keys_agree_no_more_often_than_chance() {
        let reference = sample_key(7, 3, 11, 5);
        for other in [
            sample_key(8, 3, 11, 5),
            sample_key(7, 4, 11, 5),
            sample_key(7, 3, 12, 5),
            sample_key(7, 3, 11, 6),
            sample_key(3, 7, 11, 5),
        ] {
            let equal_bits: u32 =
                (0..10_000).map(|i| (!(reference.bits(i) ^ other.bits(i))).count_ones()).sum();
            let share = equal_bits as f64 / 320_000.0;
            assert!((share - 0.5).abs() < 0.005, "{share}");
        }
    }

    #[test]
    fn the_bits_of_a_key_do_not_change() {
        let key = sample_key(1, 2, 3, 4);
        let bits: Vec<String> = (0..4).map(|i| format!("{:08x}", key.bits(i))).collect();
        assert_eq!(bits.join(" "), "0ae3fffc 1fe8a762 a87621a7 008a6865");
    }
}
