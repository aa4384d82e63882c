//! The thread of one lane: takes calls in order, runs its steps, waits for other lanes' steps where the plan says so.
//!
//! Knows prepared steps; not plans.

use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, mpsc::Receiver},
};

use plan::Plan;

use super::{
    call_state::CallState,
    kernels::workers::Workers,
    memory::Memory,
    program::{Function, Prepared, Work},
    recorder::{StepRecord, now},
    typed::Spare,
};
use crate::{Channel, Communicator, HostTensor, Outputs, RuntimeError};

/// What all lanes of a rank share.
pub struct Rank {
    /// The plan, for messages.
    pub plan: Arc<Plan>,
    /// The rank's number.
    pub rank: usize,
    /// All blocks.
    pub memory: Memory,
    /// All functions.
    pub functions: Vec<Function>,
    /// The kernels' threads.
    pub workers: Workers,
    /// To tell other ranks of a failure.
    pub communicator: Mutex<Box<dyn Communicator>>,
    /// Records of finished calls.
    pub records: Mutex<Vec<StepRecord>>,
}

impl Rank {
    /// Tells all other ranks that this one has failed.
    pub fn abort(&self, reason: &str) {
        self.communicator.lock().unwrap_or_else(PoisonError::into_inner).abort(reason);
    }
}

/// One lane's thread.
pub struct LaneThread {
    rank: Arc<Rank>,
    lane: usize,
    channels: BTreeMap<u8, Box<dyn Channel>>,
    spare: Spare,
    records: Vec<StepRecord>,
}

impl LaneThread {
    /// The thread's state; `channels` are those its collectives use.
    pub fn new(
        rank: Arc<Rank>,
        lane: usize,
        channels: BTreeMap<u8, Box<dyn Channel>>,
    ) -> LaneThread {
        LaneThread { rank, lane, channels, spare: Spare::default(), records: vec![] }
    }

    /// Runs calls until the executable is dropped.
    pub fn run(mut self, calls: &Receiver<Arc<CallState>>) {
        while let Ok(call) = calls.recv() {
            call.wait_for_previous();
            let rank = self.rank.clone();
            let function = &rank.functions[call.function];
            for prepared in &function.lanes[self.lane] {
                let waiting_since = if call.record { now() } else { 0 };
                if !prepared.waits.iter().all(|&(lane, count)| call.wait_for(lane, count))
                    || call.has_failed()
                {
                    break;
                }
                let start = if call.record { now() } else { 0 };
                let work = AssertUnwindSafe(|| self.step(&call, prepared));
                let outcome = catch_unwind(work)
                    .unwrap_or_else(|panic| Err(self.panicked(prepared, &*panic)));
                if let Err(error) = outcome {
                    self.rank.abort(&error.to_string());
                    call.fail(error);
                    break;
                }
                if call.record {
                    let (function, lane, step) = (call.function, self.lane, prepared.step);
                    let (call, end) = (call.number, now());
                    let record =
                        StepRecord { call, function, lane, step, waiting_since, start, end };
                    self.records.push(record);
                }
                call.step_done(self.lane, prepared.awaited);
            }
            if call.record {
                self.rank
                    .records
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .append(&mut self.records);
            }
            if call.lane_done() {
                self.finish(&call, function);
            }
        }
    }

    fn finish(&self, call: &CallState, function: &Function) {
        let mut outputs = Outputs::new();
        if !call.has_failed() {
            for (name, ty, operand) in &function.outputs {
                let bytes = operand.dense_bytes(self.rank.memory.read(operand.block).bytes());
                outputs.insert(name.clone(), HostTensor { ty: ty.clone(), bytes });
            }
        }
        call.finish(outputs);
    }

    fn step(&mut self, call: &CallState, prepared: &Prepared) -> Result<(), RuntimeError> {
        let memory = &self.rank.memory;
        match &prepared.work {
            Work::Kernel(bound) => bound
                .run(memory, &self.rank.workers, self.rank.rank, &mut self.spare)
                .map_err(|reason| self.fault(call, prepared, reason)),
            Work::Input { name, target } => {
                if let Some((_, tensor)) = call.inputs.iter().find(|(n, _)| n == name) {
                    target.write_bytes(memory.write(target.block).bytes_mut(), &tensor.bytes);
                }
                Ok(())
            }
            Work::Zero { block, ranges } => {
                let mut guard = memory.write(*block);
                ranges.iter().for_each(|range| guard.bytes_mut()[range.clone()].fill(0));
                Ok(())
            }
            Work::Collective { collective, ty, input, output, lane } => {
                let Some(channel) = self.channels.get_mut(lane) else {
                    return Err(self.fault(call, prepared, format!("there is no channel {lane}")));
                };
                {
                    let guard = memory.read(input.block);
                    let bytes = guard.bytes();
                    if input.walk.is_dense() {
                        channel.contribute(*collective, ty, &bytes[input.start..input.end])?;
                    } else {
                        channel.contribute(*collective, ty, &input.dense_bytes(bytes))?;
                    }
                }
                let exchange = channel.complete()?;
                {
                    let mut guard = memory.write(output.block);
                    let bytes = guard.bytes_mut();
                    if output.walk.is_dense() {
                        exchange.write(&mut bytes[output.start..output.end]);
                    } else {
                        let mut dense = vec![0; output.walk.len() * output.dtype.bytes()];
                        exchange.write(&mut dense);
                        output.write_bytes(bytes, &dense);
                    }
                }
                exchange.settle();
                Ok(())
            }
        }
    }

    fn fault(&self, call: &CallState, prepared: &Prepared, reason: String) -> RuntimeError {
        let (path, operation) = self.describe(call.function, prepared);
        RuntimeError::Step { rank: self.rank.rank, path, operation, reason }
    }

    fn panicked(&self, prepared: &Prepared, panic: &(dyn Any + Send)) -> RuntimeError {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        RuntimeError::Stopped {
            rank: self.rank.rank,
            reason: format!("step {}: {text}", prepared.step),
        }
    }

    fn describe(&self, function: usize, prepared: &Prepared) -> (String, String) {
        let plan = &self.rank.plan;
        let node = plan.functions.get(function).and_then(|schedule| {
            let graph = &plan.program.function(&schedule.name)?.graph;
            Some(graph.node(schedule.steps.get(prepared.step)?.node))
        });
        node.map_or_else(Default::default, |node| (node.site.path.clone(), node.name().to_owned()))
    }
}
