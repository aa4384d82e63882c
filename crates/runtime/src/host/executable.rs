//! A plan loaded on the host: lanes as threads, calls as messages to them.
//!
//! Knows how calls follow one another; what a step does is `lane` and `program`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Instant,
};

use plan::{Lane, Plan};
use timeline::{Kind, Timeline};

use super::{
    call_state::CallState,
    kernels::workers::Workers,
    lane::{LaneThread, Rank},
    memory::Memory,
    program,
    recorder::{self, HostRecord},
    states::States,
};
use crate::{
    Channel, Communicator, Executable, HostTensor, Inputs, RuntimeError, Ticket,
    communicator::CONTROL_LANE, ticket,
};

/// Calls that may be under way at once.
const DEPTH: usize = 2;

/// A loaded plan.
pub struct HostExecutable {
    rank: Arc<Rank>,
    states: States,
    lanes: Vec<Lane>,
    senders: Vec<mpsc::Sender<Arc<CallState>>>,
    threads: Vec<JoinHandle<()>>,
    control: Option<Box<dyn Channel>>,
    under_way: VecDeque<Arc<CallState>>,
    failed: Option<RuntimeError>,
    record: bool,
    calls: u64,
    host_records: Vec<HostRecord>,
}

impl HostExecutable {
    /// Allocates, prepares, initialises and starts the lanes.
    ///
    /// # Errors
    /// Where the plan cannot be carried out.
    pub fn new(
        plan: Arc<Plan>,
        communicator: Box<dyn Communicator>,
        seed: u64,
        threads: usize,
    ) -> Result<HostExecutable, RuntimeError> {
        // The recorder's zero lies before every record.
        recorder::now();
        let rank = communicator.rank();
        let memory = Memory::new(&plan);
        let functions = program::prepare(&plan, &memory, rank)?;
        let states = States::new(&plan, &memory, rank)?;
        states.initialise(&plan, &memory, seed)?;
        let lanes = program::lanes(&plan);
        let control =
            if communicator.ranks() > 1 { Some(communicator.channel(CONTROL_LANE)?) } else { None };
        let mut channels = vec![];
        for lane in &lanes {
            let mut own: BTreeMap<u8, Box<dyn Channel>> = BTreeMap::new();
            if let Lane::Communication(number) = lane {
                own.insert(*number, communicator.channel(*number)?);
            }
            channels.push(own);
        }
        let shared = Arc::new(Rank {
            plan,
            rank,
            memory,
            functions,
            workers: Workers::new(threads),
            communicator: Mutex::new(communicator),
            records: Mutex::default(),
        });
        let (mut senders, mut handles) = (vec![], vec![]);
        for (index, own) in channels.into_iter().enumerate() {
            let (sender, receiver) = mpsc::channel();
            let thread = LaneThread::new(shared.clone(), index, own);
            let handle = std::thread::Builder::new()
                .name(format!("rank {rank} {}", lanes[index]))
                .spawn(move || thread.run(&receiver))
                .map_err(|error| RuntimeError::Stopped { rank, reason: error.to_string() })?;
            senders.push(sender);
            handles.push(handle);
        }
        Ok(HostExecutable {
            rank: shared,
            states,
            lanes,
            senders,
            threads: handles,
            control,
            under_way: VecDeque::new(),
            failed: None,
            record: false,
            calls: 0,
            host_records: vec![],
        })
    }

    /// Waits until at most `left` calls are under way.
    fn drain(&mut self, left: usize) -> Result<(), RuntimeError> {
        while self.under_way.len() > left {
            let Some(call) = self.under_way.pop_front() else { break };
            call.wait_until_finished();
            if self.failed.is_none() {
                self.failed = call.error();
            }
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn check(&self, function: usize, inputs: &Inputs) -> Result<(), RuntimeError> {
        let function = &self.rank.functions[function];
        let problem = |name: &str, problem| RuntimeError::Input {
            function: function.name.clone(),
            name: name.to_owned(),
            problem,
        };
        for (name, _) in inputs {
            if !function.inputs.iter().any(|(known, _)| known == name) {
                return Err(problem(name, "unknown"));
            }
        }
        for (name, ty) in &function.inputs {
            let Some((_, tensor)) = inputs.iter().find(|(given, _)| given == name) else {
                return Err(problem(name, "missing"));
            };
            if tensor.ty != *ty || tensor.bytes.len() != ty.bytes() {
                return Err(RuntimeError::WrongType {
                    name: name.clone(),
                    found: tensor.ty.to_string(),
                    expected: ty.to_string(),
                });
            }
        }
        Ok(())
    }
}

impl Executable for HostExecutable {
    fn submit(&mut self, function: &str, inputs: Inputs) -> Result<Ticket, RuntimeError> {
        let index =
            self.rank.functions.iter().position(|f| f.name == function).ok_or_else(|| {
                RuntimeError::UnknownFunction {
                    name: function.to_owned(),
                    known: self.rank.functions.iter().map(|f| f.name.clone()).collect(),
                }
            })?;
        self.check(index, &inputs)?;
        self.drain(DEPTH - 1)?;
        let (sender, ticket) = ticket();
        let previous = self.under_way.back().cloned();
        let call = CallState::new(
            index,
            inputs,
            self.record,
            self.calls,
            previous,
            self.lanes.len(),
            sender,
        );
        self.calls += 1;
        for sender in &self.senders {
            let stopped = |_| RuntimeError::Stopped {
                rank: self.rank.rank,
                reason: "a lane has ended".to_owned(),
            };
            sender.send(call.clone()).map_err(stopped)?;
        }
        self.under_way.push_back(call);
        Ok(ticket)
    }

    fn read_state(&mut self, name: &str) -> Result<HostTensor, RuntimeError> {
        self.drain(0)?;
        let control = self.control.as_deref_mut();
        match control {
            Some(control) => self.states.read(name, &self.rank.memory, Some(control)),
            None => self.states.read(name, &self.rank.memory, None),
        }
    }

    fn write_state(&mut self, name: &str, value: &HostTensor) -> Result<(), RuntimeError> {
        self.drain(0)?;
        self.states.write(name, value, &self.rank.memory)
    }

    fn state_names(&self) -> Vec<String> {
        self.states.names()
    }

    fn record(&mut self, on: bool) {
        self.record = on;
    }

    fn take_timeline(&mut self) -> Timeline {
        // A failed call is kept for the next submission; what was recorded until then counts.
        drop(self.drain(0));
        let records =
            std::mem::take(&mut *self.rank.records.lock().unwrap_or_else(PoisonError::into_inner));
        let host = std::mem::take(&mut self.host_records);
        let Rank { plan, rank, .. } = &*self.rank;
        recorder::timeline(plan, &self.lanes, *rank, &records, &host)
    }

    fn record_host(&mut self, kind: Kind, name: &str, start: Instant, end: Instant) {
        if self.record {
            self.host_records.push(HostRecord { kind, name: name.to_owned(), start, end });
        }
    }

    fn allocated_bytes(&self) -> usize {
        self.rank.memory.allocated()
    }
}

impl Drop for HostExecutable {
    fn drop(&mut self) {
        self.senders.clear();
        for thread in self.threads.drain(..) {
            // A lane that panicked outside of a step has nothing left to say.
            drop(thread.join());
        }
    }
}
