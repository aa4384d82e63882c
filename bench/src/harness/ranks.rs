//! Measurements on several devices: one process for each rank, candidates interleaved, the slower rank counts.
//!
//! The program that a person starts measures nothing: it starts itself once for each rank, once for each variant of
//! the environment (NCCL reads its variables once a process), and ends all ranks when one fails or time runs out.
//! Knows no particular measurement.

use std::{
    cell::RefCell,
    env,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use native::{
    DataType, driver,
    memory::DeviceBuffer,
    nccl::{self, Communicator, Reduction, UniqueId},
};
use serde_json::{Map, Value, json};

use super::{Common, Random, Report, Samples, Session, say};

const RANK: &str = "COUNTERPOINT_BENCH_RANK";
const RANKS: &str = "COUNTERPOINT_BENCH_RANKS";
const MEETING: &str = "COUNTERPOINT_BENCH_MEETING";
const VARIANT: &str = "COUNTERPOINT_BENCH_VARIANT";

/// Options of measurements on several devices.
#[derive(Debug, Clone, Args)]
pub struct RankOptions {
    #[command(flatten)]
    common: Common,
    /// Ranks, one for each device; all devices if not given
    #[arg(long)]
    ranks: Option<u32>,
    /// Seconds after which every rank is ended
    #[arg(long, default_value_t = 300.0)]
    limit: f64,
    /// Measure only this variant
    #[arg(long)]
    only: Option<String>,
}

/// A name and the environment variables that make it.
pub type Variant = (&'static str, &'static [(&'static str, &'static str)]);

/// The environment as it is.
pub const PLAIN: Variant = ("plain", &[]);

impl RankOptions {
    /// Whether only what needs no device is to be checked.
    pub fn dry_run(&self) -> bool {
        self.common.dry_run
    }

    /// Runs `body` in every rank's process, for one variant after the other.
    pub fn on_ranks(
        &self,
        variants: &[Variant],
        body: impl Fn(&mut Rank) -> Result<()>,
    ) -> Result<()> {
        if self.common.dry_run {
            say("dry run: nothing is measured");
            return Ok(());
        }
        if env::var_os(RANK).is_some() {
            return body(&mut self.rank()?);
        }
        let found = driver::devices()?.len() as u32;
        let ranks = self.ranks.unwrap_or(found);
        if ranks < 2 || ranks > found {
            bail!(
                "{ranks} ranks on {found} devices: at least 2 ranks and a device for each are needed"
            );
        }
        let wanted = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        if !variants.iter().any(|(name, _)| wanted(name)) {
            let names: Vec<&str> = variants.iter().map(|(name, _)| *name).collect();
            bail!("--only names no variant; there are: {}", names.join(", "));
        }
        let mut failed = vec![];
        for (name, variables) in variants.iter().filter(|(name, _)| wanted(name)) {
            if let Err(error) = self.run_variant(name, variables, ranks) {
                super::complain(&format!("variant {name}: {error:#}"));
                failed.push(*name);
            }
        }
        if !failed.is_empty() {
            bail!("these variants failed: {}", failed.join(", "));
        }
        Ok(())
    }

    fn run_variant(&self, name: &str, variables: &[(&str, &str)], ranks: u32) -> Result<()> {
        let meeting: String = UniqueId::new()?.0.iter().map(|b| format!("{b:02x}")).collect();
        let program = env::current_exe().context("cannot find this program's file")?;
        let mut children = vec![];
        for rank in 0..ranks {
            let mut command = Command::new(&program);
            command.args(env::args_os().skip(1)).envs(variables.iter().copied());
            command.env("NCCL_NVLS_ENABLE", "0").env(MEETING, &meeting).env(VARIANT, name);
            command.env(RANK, rank.to_string()).env(RANKS, ranks.to_string());
            children.push(command.spawn().context("cannot start a rank")?);
        }
        let outcome = wait_for(&mut children, Duration::from_secs_f64(self.limit));
        for child in &mut children {
            // Ranks that have ended already cannot be ended again.
            let _ = child.kill();
            let _ = child.wait();
        }
        outcome
    }

    fn rank(&self) -> Result<Rank> {
        let number = |name: &str| -> Result<u32> {
            env::var(name).context(name.to_owned())?.parse().with_context(|| name.to_owned())
        };
        let (rank, ranks) = (number(RANK)?, number(RANKS)?);
        let text = env::var(MEETING).context(MEETING)?;
        let mut meeting = [0u8; 128];
        for (at, byte) in meeting.iter_mut().enumerate() {
            let digits = text.get(2 * at..2 * at + 2).context(MEETING)?;
            *byte = u8::from_str_radix(digits, 16).context(MEETING)?;
        }
        let common = Common { device: rank as usize, ..self.common.clone() };
        let session = common.open()?.context("a rank has no device")?;
        let options = nccl::Options::default();
        let control =
            Communicator::new(&session.context, UniqueId(meeting), rank, ranks, &options)?;
        let scratch = RefCell::new(DeviceBuffer::zeroed(&session.context, 1 << 16)?);
        let variant = env::var(VARIANT).unwrap_or_default();
        let this = Rank { session, rank, ranks, variant, control, scratch, common };
        this.barrier()?;
        Ok(this)
    }
}

fn wait_for(children: &mut [Child], limit: Duration) -> Result<()> {
    let begin = Instant::now();
    loop {
        let mut running = 0;
        for (rank, child) in children.iter_mut().enumerate() {
            match child.try_wait()? {
                None => running += 1,
                Some(status) if status.success() => {}
                Some(status) => bail!("rank {rank} ended with {status}"),
            }
        }
        if running == 0 {
            return Ok(());
        }
        if begin.elapsed() > limit {
            bail!("{running} ranks still ran after {} s and were ended", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// One rank's side of a measurement.
pub struct Rank {
    /// The rank's device.
    pub session: Session,
    /// Number of this rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// The environment's variant.
    pub variant: String,
    control: Communicator,
    scratch: RefCell<DeviceBuffer<u32>>,
    common: Common,
}

impl Rank {
    /// Waits on the host until every rank is here and its device is idle.
    pub fn barrier(&self) -> Result<()> {
        self.align()?;
        Ok(self.session.stream.synchronize()?)
    }

    /// Makes the session's stream wait for the other ranks' streams, without the host.
    pub fn align(&self) -> Result<()> {
        let at = self.scratch.borrow().pointer();
        let kind = (DataType::F32, Reduction::Max);
        Ok(self.control.all_reduce(at, at, 1, kind, &self.session.stream)?)
    }

    /// The values of every rank, in the order of ranks; all must give the same number.
    pub fn gather(&self, values: &[f64]) -> Result<Vec<Vec<f64>>> {
        let (ranks, count) = (self.ranks as usize, values.len());
        let mut scratch = self.scratch.borrow_mut();
        let room = scratch.len() / 2 / (ranks + 1);
        if count > room {
            bail!("{count} values to gather, at most {room} at once");
        }
        let words: Vec<u32> =
            values.iter().flat_map(|v| [v.to_bits() as u32, (v.to_bits() >> 32) as u32]).collect();
        scratch.copy_from_slice(&words)?;
        let (from, to) = (scratch.pointer(), scratch.pointer_at(2 * count)?);
        self.control.all_gather(from, to, 2 * count, DataType::I32, &self.session.stream)?;
        self.session.stream.synchronize()?;
        let words = scratch.range_to_vec(2 * count, 2 * count * ranks)?;
        scratch.fill_byte(0)?;
        let value = |pair: &[u32]| f64::from_bits(u64::from(pair[0]) | u64::from(pair[1]) << 32);
        let all: Vec<f64> = words.chunks_exact(2).map(value).collect();
        Ok(if count == 0 {
            vec![vec![]; ranks]
        } else {
            all.chunks(count).map(<[_]>::to_vec).collect()
        })
    }

    /// Rank 0's value, on every rank.
    pub fn agree(&self, value: f64) -> Result<f64> {
        Ok(self.gather(&[value])?[0][0])
    }

    /// A new communicator of all ranks.
    pub fn communicator(&self, options: &nccl::Options) -> Result<Communicator> {
        let made = self.control.split(Some(0), self.rank as i32, options)?;
        made.context("a split gave no communicator")
    }

    /// Tables `name`; only rank 0 has them.
    pub fn report(&self, name: &str) -> Result<Option<Report>> {
        if self.rank != 0 {
            return Ok(None);
        }
        let header = self.header()?;
        Ok(Some(Report::new(&self.common, header, name)?))
    }

    fn header(&self) -> Result<Map<String, Value>> {
        let mut header = self.session.header()?;
        header.insert("ranks".into(), json!(self.ranks));
        header.insert("variant of the environment".into(), json!(self.variant));
        header.insert("NVLink multicast".into(), json!("off (NCCL_NVLS_ENABLE=0)"));
        header.insert("times".into(), json!("of the slower rank, sample by sample"));
        Ok(header)
    }

    /// Takes `rounds` samples of every candidate, after `discarded` rounds. In each round every candidate is sampled
    /// once, in a random order that is the same on all ranks: what ran before moves the clocks, so no candidate may
    /// always follow the same one. A sample is a list of figures; of each, the greatest over the ranks counts. Gives
    /// the figures of each candidate.
    pub fn interleave(
        &self,
        candidates: &mut [RankCandidate<'_>],
        rounds: usize,
        discarded: usize,
    ) -> Result<Vec<Figures>> {
        let mut raw: Vec<Vec<Vec<f64>>> = vec![vec![]; candidates.len()];
        for round in 0..rounds + discarded {
            for index in shuffled(candidates.len(), round as u64) {
                let candidate = &mut candidates[index];
                let sample = (candidate.body)(round).with_context(|| candidate.name.clone())?;
                if round >= discarded {
                    raw[index].push(sample);
                }
            }
        }
        let mut all = vec![];
        for samples in raw {
            let figures = samples.first().map_or(0, Vec::len);
            let flat: Vec<f64> = samples.into_iter().flatten().collect();
            let ranks = self.gather(&flat)?;
            let slower: Vec<f64> = (0..flat.len())
                .map(|i| ranks.iter().map(|r| r[i]).fold(f64::MIN, f64::max))
                .collect();
            let of = |figure| slower.iter().copied().skip(figure).step_by(figures).collect();
            all.push(Figures((0..figures).map(of).collect()));
        }
        Ok(all)
    }
}

/// What came of one candidate: for each figure its samples, of the slower rank.
pub struct Figures(Vec<Vec<f64>>);

impl Figures {
    /// The samples of a figure.
    pub fn of(&self, figure: usize) -> Result<Samples> {
        Samples::new(self.0[figure].clone()).context("no rounds were asked for")
    }

    /// The differences of two figures, sample by sample. Each is of the slower rank: where ranks wait for each other
    /// in one figure and not in the other, the difference of one rank alone would contain that of the cards.
    pub fn difference(&self, figure: usize, less: usize) -> Result<Samples> {
        let pairs = self.0[figure].iter().zip(&self.0[less]);
        Samples::new(pairs.map(|(a, b)| a - b).collect()).context("no rounds were asked for")
    }
}

/// One way of doing the work under measurement; `body` takes one sample on this rank.
pub struct RankCandidate<'a> {
    /// Name in the table.
    pub name: String,
    body: Box<dyn FnMut(usize) -> Result<Vec<f64>> + 'a>,
}

impl<'a> RankCandidate<'a> {
    /// `body(round)` submits the work, waits, and returns its figures. Every rank must call the same collectives in it.
    /// A body that compares two ways in one sample takes them in turn by the round's number.
    pub fn new(
        name: impl Into<String>,
        body: impl FnMut(usize) -> Result<Vec<f64>> + 'a,
    ) -> RankCandidate<'a> {
        RankCandidate { name: name.into(), body: Box::new(body) }
    }
}

/// The numbers below `count` in an order that depends on `seed` alone.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed + 1);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::shuffled;

    #[test]
    fn an_order_has_every_number_once_and_differs_by_seed() {
        for seed in 0..4 {
            let mut order = shuffled(9, seed);
            assert_eq!(order, shuffled(9, seed));
            assert_ne!(order, shuffled(9, seed + 1));
            order.sort_unstable();
            assert_eq!(order, (0..9).collect::<Vec<_>>());
        }
        assert!(shuffled(0, 1).is_empty());
    }
}
