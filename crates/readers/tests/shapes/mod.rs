//! Inputs of every format, written for the tests of the readers.

/// A trace of two ranks' first.
pub const KINETO: &str = r#"{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H200"}],"distributedInfo":{"backend":"nccl","rank":0,"world_size":2},"baseTimeNanoseconds":1700000000000000000,"traceEvents":[
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":11,"tid":11,"ts":1000.5,"dur":900.25,"args":{}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":11,"tid":11,"ts":1010,"dur":5,"args":{"correlation":7}},
{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":0,"tid":7,"ts":1020,"dur":300,"args":{"device":0,"stream":7,"correlation":7,"Collective name":"allreduce","In msg nelems":4096,"dtype":"Float","Group size":2}},
{"ph":"s","id":7,"pid":11,"tid":11,"ts":1010,"cat":"ac2g","name":"ac2g"},
{"ph":"f","id":7,"pid":0,"tid":7,"ts":1020,"cat":"ac2g","name":"ac2g","bp":"e"}]}"#;

/// Shapes beside the inputs of the rules' tests.
pub const SHAPES: &[&str] = &[
    KINETO,
    "{\"version\": 3, \"args\": [\"/opt/all_reduce_perf\"], \"env\": [\"NCCL_DEBUG=INFO\"], \"nccl_version\": \"2.28.9\", \"config\": {\"nthreads\": 1, \"warmup_iters\": 1}, \"devices\": [{\"rank\": 0, \"hostname\": \"alpha\"}], \"results\": [{\"size\": 1048576, \"type\": \"float\", \"out_of_place\": null, \"in_place\": {\"time\": 60.1, \"alg_bw\": 17.4, \"bus_bw\": 17.4}}], \"out_of_bounds\": {\"count\": 0}, \"average_bus_bandwidth\": {\"bandwidth\": 17.4}}",
    "{\"schema\": \"counterpoint.record/1\", \"rank\": 1, \"host\": \"alpha\", \"pid\": 811, \"facts\": {\"job.world_size\": 2, \"torch.version\": \"2.7.0\", \"memory.peak_bytes\": 12.5}}",
    "# gpu     pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk \n# Idx       W      C      C      %      %      %      %    MHz    MHz \n    0     690     64     70    100     40      0      0   2619   1755 \n",
    "index, name, temperature.gpu, clocks.sm [MHz], clocks_event_reasons.active\n0, NVIDIA H200, 44, 1980 MHz, 0x0000000000000044\n",
    "#Entity   POWR   GPUTL  TMPTR  SMCLK  TENSO\nID\nGPU 0     345.1  99     61     1605   0.412\n",
    "\"ID\",\"Process ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\"0\",\"11\",\"gemm<float, \"\"a\"\">\",\"DRAM Throughput\",\"%\",\"41,234.5\"\n",
    "|===========================================================================|\n|                  PyTorch CUDA memory summary, device ID 0                 |\n|            CUDA OOMs: 1            |        cudaMalloc retries: 1         |\n| Allocated memory      |   3174 MiB |   3809 MiB | 634879 MiB | 631705 MiB |\n| Non-releasable memory |  11366 MiB |  11366 MiB | 317439 MiB | 306073 MiB |\n",
    "{'active_size': 499214336, 'address': 1396,\n 'blocks': [{'size': 16515072, 'state': 'active_allocated'}, {'size': 11064000000, 'state': 'inactive'}],\n 'device': 0, 'segment_type': 'large', 'total_size': 11643387904}\n",
    "GPU 00000000:52:00.0\n    PCI\n        GPU Link Info\n            PCIe Generation\n                Max                       : 5\n                Current                   : 4\n    Max Clocks\n        SM                                : 1980 MHz\n",
    "[  123.456789] NVRM: Xid (PCI:0000:52:00): 79, pid=1234, GPU has fallen off the bus.\n[  124.0] AMD-Vi: Interrupt remapping enabled\n",
    " Data for node: node1\tNum slots: 2\tMax slots: 0\tNum procs: 2\n \tProcess OMPI jobid: [1,1] App: 0 Process rank: 1 Bound: socket 0[core 0[hwt 0-1]]:[BB/..][../..]\n",
    "[1,3]<stdout>:node1:5:6 [3] NCCL INFO Connected all ringsnode2:7:8 [1] NCCL INFO Using network IB\n",
    "              total        used        free      shared  buff/cache   available\nMem:           2015          40        1800           1         175        1960\n",
    "Epoch 1:  12%|#2  | 120/1000 [00:12<01:28, 9.91it/s, loss=1.2]\nstep 20 | tokens/sec 123,456.7 | step time (ms): 412.5\n",
];
