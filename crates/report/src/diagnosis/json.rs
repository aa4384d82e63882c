//! A diagnosis as JSON, schema `counterpoint.diagnosis/1`.
//!
//! Integers in `*_ns` are nanoseconds; every leaf is always present; unknown is `null`. Keys are only added under
//! the same major number. The schema itself is `crates/report/schema/diagnosis-1.json`.

use std::collections::BTreeMap;

use diagnose::{
    account::recording,
    align::{Matched, Relation, median},
    diagnosis::Diagnosis,
    finding::Finding,
    job::{Accounted, Job},
    leaf::{Account, Leaf},
    rules,
};
use serde_json::{Map, Value, json};
use timeline::FactValue;

use super::{abstained, placement};

/// The JSON Schema that every document fulfils.
pub const SCHEMA: &str = include_str!("../../schema/diagnosis-1.json");

/// The document.
pub fn document(job: &Job, diagnosis: &Diagnosis) -> Value {
    json!({
        "schema": "counterpoint.diagnosis/1",
        "version": env!("CARGO_PKG_VERSION"),
        "verdict": {
            "sentence": diagnosis.sentence,
            "bound_by": diagnosis.bound_by.name(),
            "waiting_fraction": diagnosis.waiting_fraction.map(|share| rounded(share, 4)),
            "finding": diagnosis.findings.first().map(|finding| finding.id),
        },
        "job": about(job),
        "settings": settings(job),
        "memory_peak_bytes": memory_peak(job),
        "steps": steps(job),
        "devices": devices(job),
        "clock": clock(job),
        "collectives": collectives(job),
        "replay": {
            "error": job.unchanged.as_ref().filter(|o| o.error.is_finite()).map(|o| rounded(o.error, 6)),
            "usable": job.replay_is_usable(),
        },
        "findings": diagnosis.findings.iter().map(finding).collect::<Vec<_>>(),
        "abstained": abstained(job)
            .into_iter()
            .map(|open| json!({"question": open.question, "why": open.why, "capture": open.capture}))
            .collect::<Vec<_>>(),
        "inputs": job
            .inputs
            .iter()
            .map(|input| json!({
                "file": input.name,
                "format": input.format,
                "rank": input.timeline.processes.first().and_then(|process| process.rank),
                "events": input.timeline.spans.len() + input.timeline.facts.len(),
                "skipped": input.timeline.skipped.iter().map(|skipped| skipped.count).sum::<u64>(),
            }))
            .collect::<Vec<_>>(),
        "skipped": skipped(job),
    })
}

fn rounded(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}

/// A fact of an input; where it has none, of another input about the same rank.
fn text_fact(job: &Job, input: usize, key: &str) -> Value {
    let rank = |index: usize| job.inputs[index].timeline.processes.first().and_then(|p| p.rank);
    let own = rank(input);
    let others = (0..job.inputs.len()).filter(|&other| own.is_some() && rank(other) == own);
    let mut facts = std::iter::once(input)
        .chain(others)
        .flat_map(|index| job.inputs[index].timeline.facts.iter())
        .filter(|fact| fact.key == key);
    let found = facts.next().map(|fact| match &fact.value {
        FactValue::Text(text) => json!(text),
        FactValue::Int(number) => json!(number.to_string()),
        FactValue::Float(number) => json!(number.to_string()),
    });
    found.unwrap_or(Value::Null)
}

fn about(job: &Job) -> Value {
    let mut ranks: Vec<u32> = job.participants.iter().map(|participant| participant.rank).collect();
    ranks.dedup();
    let mut hosts: Vec<&str> = job
        .inputs
        .iter()
        .flat_map(|input| &input.timeline.processes)
        .filter_map(|process| process.host.as_deref())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let device = job
        .participants
        .first()
        .map(|first| text_fact(job, first.input, &format!("device.{}.name", first.device.number)));
    let mut versions: Vec<(Value, Vec<u32>)> = vec![];
    for participant in &job.participants {
        let of = |key: &str| text_fact(job, participant.input, key);
        let found = json!({
            "torch": of("torch.version"),
            "cuda": of("cuda_runtime_version"),
            "nccl": of("nccl.version"),
            "driver": of("driver.version"),
        });
        match versions.iter_mut().find(|(known, _)| *known == found) {
            Some((_, ranks)) if ranks.last() == Some(&participant.rank) => {}
            Some((_, ranks)) => ranks.push(participant.rank),
            None => versions.push((found, vec![participant.rank])),
        }
    }
    let versions: Vec<Value> = versions
        .into_iter()
        .map(|(mut version, ranks)| {
            version["ranks"] = json!(ranks);
            version
        })
        .collect();
    let binding: Vec<Value> = placement::cores(job)
        .into_iter()
        .map(|(cores, ranks)| json!({ "cores": cores, "ranks": ranks }))
        .collect();
    json!({
        "world_size": job.world_size(),
        "ranks": ranks,
        "missing_ranks": job.missing_ranks(),
        "hosts": if hosts.is_empty() { Value::Null } else { json!(hosts.len()) },
        "device": device.unwrap_or(Value::Null),
        "launcher": placement::launcher(job),
        "binding": binding,
        "versions": versions,
    })
}

fn steps(job: &Job) -> Value {
    let lengths: Vec<i64> = job
        .accounted
        .iter()
        .flat_map(|accounted| accounted.steps.counted.iter().map(|step| step.end - step.start))
        .collect();
    let first = job.accounted.first();
    let source = job.participants.first().map_or("none", |first| first.device.step_source);
    json!({
        "source": source,
        "counted": first.map_or(0, |accounted| accounted.steps.counted.len()),
        "left_out": first
            .map(|accounted| {
                let left = accounted.steps.left_out.iter();
                left.map(|(step, why)| json!({"step": step, "why": why})).collect::<Vec<_>>()
            })
            .unwrap_or_default(),
        "mean_ns": job.mean_step().round() as i64,
        "min_ns": lengths.iter().min().copied().unwrap_or(0),
        "max_ns": lengths.iter().max().copied().unwrap_or(0),
    })
}

/// Every leaf and its nanoseconds.
fn account(account: &Account) -> Value {
    let leaves = account.iter().map(|(leaf, time)| (leaf.name().to_owned(), json!(time)));
    Value::Object(leaves.collect::<Map<_, _>>())
}

/// Least and greatest nanoseconds of each leaf in one step: what is noise between two runs.
fn ranges(accounted: &Accounted) -> Value {
    let steps: Vec<Account> =
        accounted.steps.counted.iter().map(|&step| accounted.parts.account(step)).collect();
    let range = |leaf: Leaf| {
        let times = || steps.iter().map(|step| step.get(leaf));
        json!([times().min().unwrap_or(0), times().max().unwrap_or(0)])
    };
    let leaves = Leaf::ALL.iter().map(|&leaf| (leaf.name().to_owned(), range(leaf)));
    Value::Object(leaves.collect::<Map<_, _>>())
}

/// Environment names whose values are echoed: switches of libraries that hold no user, path, address or key.
const ECHOED: &[&str] = &[
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_BUFFSIZE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_CROSS_NIC",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DMABUF_ENABLE",
    "NCCL_IB_DISABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_IB_PCI_RELAXED_ORDERING",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_IB_SL",
    "NCCL_IB_TC",
    "NCCL_IB_TIMEOUT",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_PLUGIN",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_PROTO",
    "NCCL_PXN_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "TORCH_NCCL_BLOCKING_WAIT",
];

/// Settings that are echoed, for comparing runs.
fn settings(job: &Job) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (_, fact) in job.facts("nccl.env") {
        let FactValue::Text(text) = &fact.value else { continue };
        let Some((name, value)) = text.split_once('=') else { continue };
        if ECHOED.contains(&name) {
            all.insert(name.to_owned(), json!(value));
        }
    }
    for key in ["torch.version", "nccl.version", "cuda_runtime_version", "driver.version"] {
        let known = (0..job.inputs.len()).map(|input| text_fact(job, input, key));
        if let Some(value) = known.into_iter().find(|value| !value.is_null()) {
            all.insert(key.to_owned(), value);
        }
    }
    Value::Object(all)
}

/// Peak bytes of the devices' allocators, where a summary says so.
fn memory_peak(job: &Job) -> Value {
    let stated = ["memory.peak_bytes", "memory.allocated_peak_bytes"];
    let facts = stated.into_iter().flat_map(|key| job.facts(key));
    let peaks = facts.filter_map(|(_, fact)| match fact.value {
        FactValue::Int(bytes) => Some(bytes),
        _ => None,
    });
    peaks.max().map_or(Value::Null, |bytes| json!(bytes))
}

fn devices(job: &Job) -> Vec<Value> {
    job.participants
        .iter()
        .zip(&job.accounted)
        .enumerate()
        .map(|(index, (participant, accounted))| {
            let process = job.timeline(index).processes.get(participant.device.process as usize);
            let count = accounted.steps.counted.len() as i64;
            let window = accounted.account.total();
            let beside = &accounted.beside;
            let whole = recording(&participant.device);
            json!({
                "rank": participant.rank,
                "device": participant.device.number,
                "host": process.and_then(|process| process.host.clone()),
                "pid": process.and_then(|process| process.pid),
                "steps": count,
                "step_ns": if count > 0 { (window + count / 2) / count } else { 0 },
                "window_ns": window,
                "account": account(&accounted.account),
                "ranges": ranges(accounted),
                "beside": {
                    "busy_ns": beside.busy,
                    "comm_ns": beside.communication,
                    "comm_hidden_ns": beside.communication_hidden,
                    "wait_hidden_ns": beside.wait_hidden,
                    "copy_hidden_ns": beside.copy_hidden,
                    "tensor_core_ns": Value::Null,
                    "flops": Value::Null,
                },
                "recording": {
                    "span_ns": whole.span,
                    "busy_ns": whole.busy,
                    "idle_ns": whole.span - whole.busy,
                    "compute_ns": whole.compute,
                    "comm_ns": whole.communication,
                    "comm_exposed_ns": whole.communication_exposed,
                    "copy_ns": whole.copies,
                    "copy_exposed_ns": whole.copies_exposed,
                },
            })
        })
        .collect()
}

fn clock(job: &Job) -> Value {
    let each = |value: &dyn Fn(&Relation) -> Value| -> Map<String, Value> {
        let others = job.participants.iter().zip(&job.clock.relations).skip(1);
        let known = others.filter_map(|(participant, relation)| {
            Some((participant.rank.to_string(), value(relation.as_ref()?)))
        });
        known.collect()
    };
    json!({
        "reference_rank": job.participants.first().map(|first| first.rank),
        "offsets_ns": each(&|relation| json!(relation.offset)),
        "drift_ppm": each(&|relation| json!(rounded(relation.drift * 1e6, 3))),
        "residual_ns": job.clock.residual,
        "matched": job.clock.matched.len(),
        "split": job.clock.split,
    })
}

fn collectives(job: &Job) -> Vec<Value> {
    // A job may exchange as many sizes as messages.
    let mut kinds: BTreeMap<(&str, &str, u64), Vec<&Matched>> = BTreeMap::new();
    for matched in &job.clock.matched {
        let kind = (matched.group.as_str(), matched.operation.as_str(), matched.bytes);
        kinds.entry(kind).or_default().push(matched);
    }
    let expected = rules::expected_bandwidth(job);
    kinds
        .into_iter()
        .map(|((group, operation, bytes), own)| {
            let mut transfers: Vec<i64> = own.iter().map(|matched| matched.transfer).collect();
            let mut waits: Vec<i64> = own.iter().map(|matched| matched.wait).collect();
            let mut rates: Vec<i64> =
                own.iter().map(|m| (rules::bus_bandwidth(m) * 1000.0) as i64).collect();
            let rate = median(&mut rates).filter(|_| bytes > 0).map(|rate| rate as f64 / 1000.0);
            json!({
                "group": group,
                "op": operation,
                "bytes": bytes,
                "count": own.len(),
                "transfer_ns": median(&mut transfers),
                "wait_ns": median(&mut waits),
                "busbw_gbs": rate.map(|rate| rounded(rate, 3)),
                "expected_gbs": expected.as_ref().map(|(rate, _)| *rate),
                "expected_from": expected.as_ref().map(|(_, from)| from.clone()),
            })
        })
        .collect()
}

fn finding(finding: &Finding) -> Value {
    let part = |take: fn(&diagnose::finding::Cost) -> f64| {
        finding.cost.as_ref().map(|cost| rounded(take(cost), 3))
    };
    json!({
        "id": finding.id,
        "layer": finding.layer,
        "ranks": finding.ranks,
        "severity": finding.severity,
        "title": finding.title,
        "cost_ms_per_step": part(|cost| cost.estimate),
        "cost_low": part(|cost| cost.low),
        "cost_high": part(|cost| cost.high),
        "cost_by": finding.cost.map_or(diagnose::finding::CostBy::None, |cost| cost.by),
        "confidence": finding.confidence,
        "evidence": finding.evidence,
        "refuted_by": finding.refuted_by,
        "remedy": finding.remedy,
        "verify": finding.verify,
    })
}

fn skipped(job: &Job) -> Vec<Value> {
    let mut all: Vec<Value> = job
        .unusable
        .iter()
        .map(|u| json!({"file": u.name, "reason": u.reason, "line": null, "count": 1}))
        .collect();
    all.extend(job.set_aside.iter().map(|(input, why)| {
        json!({"file": job.inputs[*input].name, "reason": why, "line": null, "count": 1})
    }));
    for input in &job.inputs {
        all.extend(input.timeline.skipped.iter().map(|skipped| {
            json!({
                "file": input.name,
                "reason": skipped.reason,
                "line": null,
                "count": skipped.count,
            })
        }));
    }
    all
}
