//! Lifetimes, arenas and offsets. Two buffers share bytes only where every step that touches the one is done before
//! any step that touches the other starts: order in the list is not enough, lanes run beside each other.
//!
//! Knows owners, steps and clocks; not what steps do.

use std::collections::BTreeMap;

use graph::{Kind, Origin, Program, StateKind, Value};

use super::{
    clocks::Clocks,
    lanes::Order,
    layout::{Laid, Root},
    place::{self, Demand},
    reuse,
    roles::Role,
};
use crate::{
    Arena, Buffer, BufferId, BufferKind, MemoryModel, PlanError, StatePlacement, Target, Window,
};

/// One function on its way through memory planning.
pub(super) struct Part {
    pub laid: Laid,
    pub order: Order,
}

/// The memory of the whole plan.
pub(super) struct Placement {
    pub buffers: Vec<Buffer>,
    pub states: Vec<StatePlacement>,
    /// Per function.
    pub windows: Vec<BTreeMap<Value, Window>>,
    /// Per function, per step.
    pub workspaces: Vec<Vec<Option<BufferId>>>,
}

/// The life of one owner's memory within one function.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub bytes: usize,
    /// A collective reads or writes it.
    pub communicates: bool,
    /// Read by the caller after the call.
    pub yielded: bool,
    pub steps: Vec<usize>,
}

/// Lives of all owners of one function.
pub(super) struct Lives(BTreeMap<Root, Life>);

impl Lives {
    fn of(part: &Part) -> Lives {
        let laid = &part.laid;
        let graph = &laid.function.graph;
        let mut lives = Lives(BTreeMap::new());
        for (step, ordered) in part.order.steps.iter().enumerate() {
            let node = graph.node(ordered.node);
            let collective = laid.roles[ordered.node.index()] == Role::Collective;
            // Filling the padding of a `pack` does not touch its inputs.
            let fills = matches!(laid.roles[ordered.node.index()], Role::Slots { .. });
            let inputs = if fills { &[][..] } else { &node.inputs };
            for value in graph.outputs(ordered.node).into_iter().chain(inputs.iter().copied()) {
                let life = lives.at(laid, laid.place(value).root);
                life.communicates |= collective;
                if life.steps.last() != Some(&step) {
                    life.steps.push(step);
                }
            }
        }
        for output in &laid.function.outputs {
            lives.at(laid, laid.place(output.value).root).yielded = true;
        }
        lives
    }

    fn at(&mut self, laid: &Laid, root: Root) -> &mut Life {
        self.0.entry(root).or_insert_with(|| {
            let bytes = match root {
                Root::Value(value) => laid.function.graph.ty(value).bytes(),
                Root::State(_) => 0,
            };
            Life { bytes, communicates: false, yielded: false, steps: vec![] }
        })
    }

    /// Whether `step` is the last to need the memory of `root`, so that `output` may take it.
    pub fn ends_with(&self, root: Root, output: Root, step: usize, clocks: &Clocks) -> bool {
        let (Some(life), Some(other)) = (self.0.get(&root), self.0.get(&output)) else {
            return false;
        };
        matches!(root, Root::Value(_))
            && !life.yielded
            && life.communicates == other.communicates
            && life.steps.iter().all(|&user| user == step || clocks.before(user, step))
    }

    /// One owner's memory becomes part of another's.
    pub fn merge(&mut self, from: Root, into: Root) {
        let Some(old) = self.0.remove(&from) else { return };
        if let Some(life) = self.0.get_mut(&into) {
            life.communicates |= old.communicates;
            life.yielded |= old.yielded;
            life.steps.extend(old.steps);
            life.steps.sort_unstable();
            life.steps.dedup();
        }
    }
}

/// Decides what is in place, then gives every buffer its arena and offset.
pub(super) fn run(
    program: &Program,
    parts: &mut [Part],
    target: &dyn Target,
    ranks: usize,
) -> Result<Placement, PlanError> {
    let _ = ranks;
    let mut lives: Vec<Lives> = vec![];
    for part in parts.iter_mut() {
        let mut own = Lives::of(part);
        reuse::run(part, &mut own);
        lives.push(own);
    }
    let (mut buffers, states) = place_states(program, &lives, target);
    let bases = [Arena::Transient, Arena::Communication].map(|arena| {
        let ends = buffers.iter().filter(|b: &&Buffer| b.arena == arena);
        ends.map(|b| b.offset + b.bytes).max().unwrap_or(0)
    });

    // All buffers of all functions as demands, with the owner or step they serve.
    let mut demands: Vec<Demand> = vec![];
    let mut serves: Vec<Serves> = vec![];
    for (number, (part, own)) in parts.iter().zip(&lives).enumerate() {
        for (&root, life) in &own.0 {
            let Root::Value(value) = root else { continue };
            let arena = if life.communicates { Arena::Communication } else { Arena::Transient };
            let steps = life.steps.iter().copied();
            let clocks = &part.order.clocks;
            demands.push(Demand::new(number, arena, life.bytes, steps, life.yielded, clocks));
            serves.push(Serves::Owner(number, value));
        }
        for (step, ordered) in part.order.steps.iter().enumerate() {
            let bytes = ordered.work.candidate.workspace;
            if bytes > 0 {
                let arena = Arena::Transient;
                let clocks = &part.order.clocks;
                demands.push(Demand::new(number, arena, bytes, [step].into_iter(), false, clocks));
                serves.push(Serves::Workspace(number, step));
            }
        }
    }
    let mut offsets = vec![0; demands.len()];
    for (arena, base) in [Arena::Transient, Arena::Communication].into_iter().zip(bases) {
        let own: Vec<usize> = (0..demands.len()).filter(|&d| demands[d].arena == arena).collect();
        let list: Vec<&Demand> = own.iter().map(|&d| &demands[d]).collect();
        let alignment = target.alignment();
        let placed = match target.memory_model() {
            MemoryModel::Offsets => place::offsets(&list, alignment),
            MemoryModel::Blocks => place::blocks(&list, alignment),
        };
        for (&demand, offset) in own.iter().zip(placed) {
            offsets[demand] = place::align(base, alignment) + offset;
        }
    }

    let mut owners: Vec<BTreeMap<Value, BufferId>> = vec![BTreeMap::new(); parts.len()];
    let mut workspaces: Vec<Vec<Option<BufferId>>> =
        parts.iter().map(|part| vec![None; part.order.steps.len()]).collect();
    for ((demand, serves), offset) in demands.iter().zip(&serves).zip(offsets) {
        let id = BufferId(buffers.len() as u32);
        let function = &parts[demand.function].laid.function;
        let kind = match *serves {
            Serves::Owner(number, value) => {
                owners[number].insert(value, id);
                kind_of(&parts[number].laid, value, demand)
            }
            Serves::Workspace(number, step) => {
                workspaces[number][step] = Some(id);
                BufferKind::Workspace
            }
        };
        let function = Some(function.name.clone());
        buffers.push(Buffer { arena: demand.arena, offset, bytes: demand.bytes, kind, function });
    }
    let windows = parts.iter().zip(&owners).map(|(part, owners)| windows(part, owners, &states));
    Ok(Placement { windows: windows.collect(), buffers, states, workspaces })
}

enum Serves {
    Owner(usize, Value),
    Workspace(usize, usize),
}

fn windows(
    part: &Part,
    owners: &BTreeMap<Value, BufferId>,
    states: &[StatePlacement],
) -> BTreeMap<Value, Window> {
    let graph = &part.laid.function.graph;
    let values = graph.ids().flat_map(|id| graph.outputs(id));
    values
        .filter_map(|value| {
            let place = part.laid.place(value);
            let buffer = match place.root {
                Root::State(state) => states[state].window.buffer,
                Root::Value(owner) => *owners.get(&owner)?,
            };
            Some((value, Window { buffer, elements: place.elements.clone() }))
        })
        .collect()
}

/// States in the order of the program; those that collectives touch in the communication arena.
fn place_states(
    program: &Program,
    lives: &[Lives],
    target: &dyn Target,
) -> (Vec<Buffer>, Vec<StatePlacement>) {
    let mut ends = [0_usize; 2];
    let (mut buffers, mut placements) = (vec![], vec![]);
    for (index, state) in program.states.iter().enumerate() {
        let root = Root::State(index);
        let communicates = lives.iter().any(|l| l.0.get(&root).is_some_and(|l| l.communicates));
        let end = &mut ends[usize::from(communicates)];
        let offset = place::align(*end, target.alignment());
        let bytes = state.ty.bytes();
        *end = offset + bytes;
        let window = Window {
            buffer: BufferId(index as u32),
            elements: graph::Strided::contiguous(&state.ty.shape),
        };
        let arena = if communicates { Arena::Communication } else { Arena::State };
        let kind = match state.kind {
            StateKind::Parameter => BufferKind::Parameter,
            StateKind::WorkingCopy { .. } => BufferKind::WorkingCopy,
            StateKind::Moment { .. } => BufferKind::Moment,
            StateKind::Gradient { .. } => BufferKind::Gradient,
            StateKind::Scalar => BufferKind::Scalar,
        };
        buffers.push(Buffer { arena, offset, bytes, kind, function: None });
        placements.push(StatePlacement { state: state.name.clone(), window });
    }
    (buffers, placements)
}

/// Bytes up to which a value counts as a scalar.
const SCALAR_BYTES: usize = 64;

fn kind_of(laid: &Laid, value: Value, demand: &Demand) -> BufferKind {
    let node = laid.function.graph.node(value.node);
    let reduces = demand.arena == Arena::Communication;
    match (&node.kind, node.site.origin) {
        _ if demand.bytes <= SCALAR_BYTES => BufferKind::Scalar,
        (Kind::Input { .. }, _) => BufferKind::Input,
        (_, Origin::Gradient | Origin::Reduction) if reduces => BufferKind::Gradient,
        _ => BufferKind::Activation,
    }
}
