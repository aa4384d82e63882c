//! Exports of Nsight Systems of several shapes, made here: what is read from them, and what damage does.

use std::path::Path;

use readers::{Input, ReadError, Reading};
use rusqlite::Connection;
use timeline::{Kind, TrackKind};

const NEWER: &str = "
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'gemm'), (3, 'void gemm<float>(float*)'),
        (4, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'), (5, 'cudaMemcpyAsync_v3020');
    CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
    INSERT INTO PROCESSES VALUES (117440512, 7, 'python3'), (134217728, 8, 'python3');
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 110, 117440513, 1, 1), (120, 130, 117440513, 2, 5),
        (100, 110, 134217729, 1, 1), (120, 130, 134217729, 2, 1);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (200, 300, 0, 7, 1, 117440512, 3, 2), (200, 310, 0, 7, 1, 134217728, 3, 2),
        (310, 350, 0, 9, 2, 134217728, 4, 4), (500, 400, 0, 7, 9, 117440512, 3, 2);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (300, 400, 0, 7, 2, 117440512, 4096, 1, 0, 2);
    CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER, text TEXT, textId INTEGER);
    INSERT INTO NVTX_EVENTS VALUES (90, 190, 59, 117440513, 'step 3', NULL), (95, 99, 59, 117440513, 'aten::mm, op_id = 5', NULL),
        (96, NULL, 59, 117440513, 'open', NULL), (97, 98, 75, 117440513, 'domain', NULL);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
    INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200');
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779630014975716426);";

/// No process, no full names, no copies.
const OLDER: &str = "
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'gemm');
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, correlationId INTEGER, globalTid INTEGER, nameId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (100, 110, 1, 117440513, 1);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, shortName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (200, 300, 0, 7, 1, 2);";

fn made(folder: &Path, sql: &str) -> Vec<u8> {
    let path = folder.join("export.sqlite");
    let _ = std::fs::remove_file(&path);
    let connection = Connection::open(&path).expect("a database");
    connection.execute_batch(sql).expect("tables");
    drop(connection);
    std::fs::read(&path).expect("bytes")
}

fn read(bytes: Vec<u8>) -> Result<Reading, ReadError> {
    readers::read(Input::from_bytes("-", bytes)?)
}

#[test]
fn processes_kernels_copies_and_ranges_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let reading = read(made(folder.path(), NEWER)).unwrap();
    let timeline = &reading.timeline;
    assert_eq!(reading.format, "nsys");
    let pids: Vec<_> = timeline.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [Some(7), Some(8)]);
    let seen: Vec<String> = timeline
        .spans
        .ids()
        .filter(|&id| timeline.spans.get(id).kind != Kind::Call)
        .map(|id| {
            let span = timeline.spans.get(id);
            let launcher =
                timeline.spans.launcher(id).map(|call| timeline.spans.get(call).start.nanos());
            format!(
                "{:?} {} process {} at {} for {} launched {launcher:?}",
                span.kind,
                timeline.name_of(id),
                timeline.process_of(id),
                span.start.nanos(),
                span.duration.nanos()
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            "Compute void gemm<float>(float*) process 0 at 200 for 100 launched Some(100)",
            "Compute void gemm<float>(float*) process 1 at 200 for 110 launched Some(100)",
            "Communication ncclDevKernel_AllReduce_Sum_bf16_RING_LL process 1 at 310 for 40 launched Some(120)",
            "Copy Memcpy HtoD (Pageable -> Device) process 0 at 300 for 100 launched Some(120)",
            "Mark step 3 process 0 at 90 for 100 launched None",
            "HostOp aten::mm process 0 at 95 for 4 launched None",
        ]
    );
    assert!(timeline.names.find("cudaLaunchKernel").is_some());
    assert!(timeline.find_fact(Some(0), "device.0.name").is_some());
    assert_eq!(timeline.wall_clock_zero, Some(1_779_630_014_975_716_426));
    let mut reasons: Vec<&str> = timeline.skipped.iter().map(|s| s.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [
            "NVTX event that is no range",
            "NVTX range without an end",
            "row without a start and an end"
        ]
    );
}

#[test]
fn an_export_without_processes_is_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let timeline = read(made(folder.path(), OLDER)).unwrap().timeline;
    assert_eq!(timeline.processes.len(), 1);
    let streams = timeline.tracks.iter().filter(|t| matches!(t.kind, TrackKind::Stream { .. }));
    assert_eq!(streams.count(), 1);
    let kernel =
        timeline.spans.ids().find(|&id| timeline.spans.get(id).kind == Kind::Compute).unwrap();
    assert!(timeline.spans.launcher(kernel).is_some());
}

#[test]
fn other_databases_views_and_damage_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let trap = "CREATE TABLE a (x); CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS end FROM n;";
    let whole = made(folder.path(), NEWER);
    let mut cases = vec![made(folder.path(), trap), b"SQLite format 3\0".to_vec()];
    for cut in (16..whole.len()).step_by(4096) {
        cases.push(whole[..cut].to_vec());
    }
    for place in (100..whole.len()).step_by(97) {
        let mut damaged = whole.clone();
        for byte in &mut damaged[place..(place + 24).min(whole.len())] {
            *byte ^= 0xa5;
        }
        cases.push(damaged);
    }
    for bytes in cases {
        // Either something is read or the error says what it was; nothing panics and nothing hangs.
        if let Err(error) = read(bytes) {
            assert!(error.to_string().starts_with("nsys: "), "{error}");
        }
    }
}
