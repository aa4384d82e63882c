//! One rank's run: batches in, tickets out, one step behind the device so that it never waits for the host.
//!
//! Knows the functions of a training program by name; knows no model.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use graph::names;
use runtime::{Communicator, Executable, HostTensor, Ticket};

use super::{
    Job, Observer, Outcome, StepReport,
    control::Control,
    feed::{IGNORED, StepScalars, first_float, inputs},
    manifest, states,
};
use crate::{
    Error,
    checkpoint::{self, Snapshot},
    generate::{Choice, generate},
    loader::{Batch, Loader, read},
    recipe::{LossScale, NotFinite},
    sampler::Sampler,
};

/// Steps between two pieces of recorded timeline.
const RECORDED_STEPS: u64 = 50;

/// Carries out the job on the rank of `communicator`.
pub fn run(
    job: &Job<'_>,
    communicator: Box<dyn Communicator>,
    prompt: Option<&[i32]>,
    control: &Control,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    let rank = communicator.rank();
    let mut executable = job.device.load(job.plan.clone(), communicator, job.recipe.train.seed)?;
    if let Some(tensors) = &job.initial {
        states::write_parameters(executable.as_mut(), &job.plan, tensors)?;
    }
    if let Some(snapshot) = &job.resume {
        states::restore(executable.as_mut(), &job.plan, snapshot)?;
    }
    let origin = job
        .resume
        .as_ref()
        .map_or((0, 0), |snapshot| (snapshot.manifest.step, snapshot.manifest.position));
    let sampler = sampler(job, origin);
    let mut worker = Worker {
        job,
        rank,
        executable,
        sampler,
        observer,
        flight: VecDeque::new(),
        last_end: Instant::now(),
        outcome: Outcome {
            steps: origin.0,
            stopped: false,
            checkpoint: None,
            loss: None,
            validation: None,
            sample: vec![],
        },
        saved: job.resume.as_ref().map(|_| origin.0),
    };
    worker.train(control)?;
    worker.outcome.stopped = control.stopped();
    if let (Some(prompt), true) = (prompt.filter(|_| rank == 0), worker.can_generate()) {
        let choice = Choice { temperature: 0.8, top: Some(40), seed: job.recipe.train.seed };
        let count = usize::try_from(job.recipe.output.sample_tokens).unwrap_or(0);
        let (length, program) = (job.train.length(), &job.plan.program);
        worker.outcome.sample =
            generate(worker.executable.as_mut(), program, length, prompt, count, &choice)?;
    }
    Ok(worker.outcome)
}

fn sampler(job: &Job<'_>, origin: (u64, u64)) -> Sampler {
    let recipe = job.recipe;
    Sampler {
        seed: recipe.train.seed,
        samples: job.train.samples(),
        shuffle: recipe.data.shuffle,
        batch: recipe.train.batch,
        ranks: recipe.parallel.ranks,
        accumulation: recipe.train.accumulation,
        origin,
    }
}

/// A step whose results are still to come.
struct Flight {
    step: u64,
    learning_rate: f64,
    tokens: u64,
    tickets: Vec<Ticket>,
}

struct Worker<'a> {
    job: &'a Job<'a>,
    rank: usize,
    executable: Box<dyn Executable>,
    sampler: Sampler,
    observer: &'a dyn Observer,
    flight: VecDeque<Flight>,
    last_end: Instant,
    outcome: Outcome,
    /// The step of the last checkpoint.
    saved: Option<u64>,
}

impl Worker<'_> {
    fn train(&mut self, control: &Control) -> Result<(), Error> {
        let recipe = self.job.recipe;
        let steps = self.outcome.steps..recipe.train.steps;
        let (data, rank) = (Arc::clone(&self.job.train), self.rank as u64);
        let mut loader =
            Loader::start(data, self.sampler, rank, steps.clone(), recipe.data.prefetch);
        if self.rank == 0 {
            self.observer.started(steps.start);
        }
        if steps.start == 0 {
            self.validate()?;
        }
        self.executable.record(self.job.record);
        self.last_end = Instant::now();
        let ended = self.steps(steps, &mut loader, control);
        if self.job.record {
            self.take_timeline();
        }
        self.executable.record(false);
        let ended = ended.and_then(|()| self.validate());
        if let Err(Error::NotANumber { step, loss, .. }) = ended {
            let saved = self.set_aside()?;
            return Err(Error::NotANumber { step, loss, saved });
        }
        ended?;
        self.save(true)
    }

    fn steps(
        &mut self,
        steps: Range<u64>,
        loader: &mut Loader,
        control: &Control,
    ) -> Result<(), Error> {
        let recipe = self.job.recipe;
        for step in steps.clone() {
            if !control.goes_on(step) {
                break;
            }
            self.submit(step, loader)?;
            let due =
                |every: u64| every > 0 && (step + 1).is_multiple_of(every) && step + 1 < steps.end;
            let (validate, save) = (due(recipe.validation.every), due(recipe.checkpoint.every));
            let take = self.job.record && (step + 1).is_multiple_of(RECORDED_STEPS);
            // One step stays under way while the next is prepared, unless something needs its state.
            let behind = usize::from(!(validate || save || take));
            self.wait_for(behind)?;
            if take {
                self.take_timeline();
            }
            if validate {
                self.validate()?;
            }
            if save {
                self.save(false)?;
            }
            if validate || save || take {
                self.last_end = Instant::now();
            }
        }
        self.wait_for(0)
    }

    fn submit(&mut self, step: u64, loader: &mut Loader) -> Result<(), Error> {
        let recipe = self.job.recipe;
        let micro_steps = recipe.train.accumulation;
        let mut batches: Vec<Batch> = vec![];
        for _ in 0..micro_steps {
            let begin = Instant::now();
            let next = loader.next_batch();
            let (batch, waited) =
                next.ok_or_else(|| Error::Internal("the loader ended early".to_owned()))?;
            if waited > Duration::from_micros(1) {
                self.executable.record_host(
                    timeline::Kind::Data,
                    "wait for data",
                    begin,
                    begin + waited,
                );
            }
            batches.push(batch?);
        }
        let counted =
            |batch: &Batch| batch.labels.iter().filter(|&&label| label != IGNORED).count();
        #[expect(clippy::cast_precision_loss, reason = "a count of labels")]
        let local_count = batches.iter().map(counted).sum::<usize>() as f64;
        let learning_rate =
            recipe.optimizer.learning_rate * recipe.schedule.factor(step, recipe.train.steps);
        let scalars = StepScalars { learning_rate, seed: recipe.train.seed, step, local_count };
        let mut tickets = vec![];
        for batch in &batches {
            let name = match batch.micro {
                _ if micro_steps == 1 => names::STEP,
                0 => names::FIRST,
                micro if micro + 1 == micro_steps => names::LAST,
                _ => names::MIDDLE,
            };
            tickets.push(self.call(name, batch, &scalars)?);
        }
        let tokens = recipe.train.batch * self.job.train.length() as u64;
        self.flight.push_back(Flight { step, learning_rate, tokens, tickets });
        Ok(())
    }

    fn call(&mut self, name: &str, batch: &Batch, scalars: &StepScalars) -> Result<Ticket, Error> {
        let function = self.job.plan.program.function(name);
        let function =
            function.ok_or_else(|| Error::Internal(format!("the plan has no function {name}")))?;
        Ok(self.executable.submit(name, inputs(function, batch, scalars))?)
    }

    /// Waits until at most `behind` steps are under way, and reports the finished ones.
    fn wait_for(&mut self, behind: usize) -> Result<(), Error> {
        while self.flight.len() > behind {
            let Some(flight) = self.flight.pop_front() else { break };
            let mut sums: BTreeMap<String, f64> = BTreeMap::new();
            let mut last: BTreeMap<String, HostTensor> = BTreeMap::new();
            for ticket in flight.tickets {
                last = ticket.wait()?;
                for name in [names::LOSS_SUM, names::COUNT] {
                    *sums.entry(name.to_owned()).or_default() +=
                        output(&last, name).unwrap_or(f64::NAN);
                }
            }
            let end = Instant::now();
            let mark = format!("step {}", flight.step + 1);
            self.executable.record_host(timeline::Kind::Mark, &mark, self.last_end, end);
            let seconds = (end - self.last_end).as_secs_f64();
            self.last_end = end;
            let report = StepReport {
                step: flight.step + 1,
                loss: sums[names::LOSS_SUM] / sums[names::COUNT],
                learning_rate: flight.learning_rate,
                gradient_norm: output(&last, names::GRADIENT_NORM),
                skipped: output(&last, names::FOUND_INFINITE).is_some_and(|found| found != 0.0),
                loss_scale: output(&last, names::LOSS_SCALE),
                tokens: flight.tokens,
                seconds,
            };
            self.finish(&report)?;
        }
        Ok(())
    }

    fn finish(&mut self, report: &StepReport) -> Result<(), Error> {
        self.outcome.steps = report.step;
        self.outcome.loss = Some(report.loss);
        if self.rank == 0 {
            self.observer.step(report);
        }
        let recipe = self.job.recipe;
        // Overflow under a loss scale is how the scale finds its size.
        let scaled = recipe.precision.loss_scale != LossScale::None;
        let broken = !report.loss.is_finite() || (report.skipped && !scaled);
        if broken && recipe.train.nan == NotFinite::Stop {
            // What was submitted meanwhile is done too, so that the state has a step number.
            for flight in std::mem::take(&mut self.flight) {
                for ticket in flight.tickets {
                    ticket.wait()?;
                }
                self.outcome.steps = flight.step + 1;
            }
            return Err(Error::NotANumber {
                step: report.step,
                loss: report.loss,
                saved: String::new(),
            });
        }
        Ok(())
    }

    /// Mean loss over the validation batches, spread evenly over the set.
    fn validate(&mut self) -> Result<(), Error> {
        let recipe = self.job.recipe;
        let data = Arc::clone(&self.job.validation);
        let (ranks, batch) = (recipe.parallel.ranks, self.sampler.micro_batch());
        let wanted = recipe.validation.batches * ranks * batch;
        let (mut sum, mut count) = (0.0, 0.0);
        // As many calls as a step has micro-steps per validation batch would change the number of samples with the ranks.
        for call in 0..recipe.validation.batches {
            let mut one =
                Batch { step: 0, micro: 0, first_sample: 0, inputs: vec![], labels: vec![] };
            for index in 0..batch {
                let position = call * ranks * batch + self.rank as u64 * batch + index;
                let sample = u128::from(position) * u128::from(data.samples()) / u128::from(wanted);
                let fixed = Sampler {
                    samples: data.samples(),
                    shuffle: false,
                    batch: 1,
                    ranks: 1,
                    accumulation: 1,
                    origin: (0, 0),
                    seed: 0,
                };
                let next = read(&data, &fixed, u64::try_from(sample).unwrap_or(0), 0, 0)?;
                one.inputs.extend(next.inputs);
                one.labels.extend(next.labels);
            }
            let scalars = StepScalars {
                learning_rate: 0.0,
                seed: recipe.train.seed,
                step: 0,
                local_count: 0.0,
            };
            let outputs = self.call(names::EVALUATE, &one, &scalars)?.wait()?;
            sum += output(&outputs, names::LOSS_SUM).unwrap_or(f64::NAN);
            count += output(&outputs, names::COUNT).unwrap_or(f64::NAN);
        }
        self.outcome.validation = Some(sum / count);
        if self.rank == 0 {
            self.observer.validated(self.outcome.steps, sum / count);
        }
        // The sums are those of all ranks, so all of them end here together.
        if !(sum / count).is_finite() && recipe.train.nan == NotFinite::Stop {
            return Err(Error::NotANumber {
                step: self.outcome.steps,
                loss: sum / count,
                saved: String::new(),
            });
        }
        Ok(())
    }

    /// The state after the last finished step, on rank 0. Every rank calls it.
    fn snapshot(&mut self) -> Result<Option<Snapshot>, Error> {
        let step = self.outcome.steps;
        let manifest = manifest(self.job, step, self.sampler.position(step));
        states::read(self.executable.as_mut(), &self.job.plan, manifest, self.rank == 0)
    }

    /// Keeps the state of a run that ends with a loss that is no number, and says where: not among the checkpoints, since what
    /// led there is in it. Updates that were not finite were left out of it.
    fn set_aside(&mut self) -> Result<String, Error> {
        let Some(snapshot) = self.snapshot()? else { return Ok(String::new()) };
        let state = checkpoint::set_aside(self.job.folder, &snapshot)?;
        let newest = checkpoint::list(self.job.folder).pop();
        let newest = newest.map_or("none".to_owned(), |(_, path)| path.display().to_string());
        Ok(format!("; its state is in {}; newest checkpoint: {newest}", state.display()))
    }

    fn save(&mut self, last: bool) -> Result<(), Error> {
        let step = self.outcome.steps;
        if self.saved == Some(step) {
            return Ok(());
        }
        let snapshot = self.snapshot()?;
        self.saved = Some(step);
        let Some(snapshot) = snapshot else { return Ok(()) };
        match checkpoint::save(self.job.folder, &snapshot, self.job.recipe.checkpoint.keep) {
            Ok(path) => {
                self.observer.saved(step, &path);
                self.outcome.checkpoint = Some(path);
                Ok(())
            }
            Err(error) if last => Err(error),
            Err(error) => {
                self.observer.not_saved(step, &error);
                Ok(())
            }
        }
    }

    fn take_timeline(&mut self) {
        let timeline = self.executable.take_timeline();
        self.observer.timeline(self.rank, timeline);
    }

    fn can_generate(&self) -> bool {
        self.job.plan.program.function(names::GENERATE).is_some()
    }
}

fn output(outputs: &BTreeMap<String, HostTensor>, name: &str) -> Option<f64> {
    outputs.get(name).and_then(first_float)
}
